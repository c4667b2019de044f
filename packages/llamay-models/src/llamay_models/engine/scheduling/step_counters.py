"""`StepCounters`: counts the tokens of steps, and the times between them."""

from __future__ import annotations

from llamay_models.engine.decoding.sequence import EngineSequence
from llamay_models.engine.requests.channel import Channel
from llamay_models.engine.scheduling.batch_entry import BatchEntry
from llamay_models.engine.stats import Histograms, Stats


class StepCounters:
    """Adds to the statistics of an engine. Belongs to the engine's thread."""

    def __init__(self, stats: Stats, histograms: Histograms) -> None:
        self._stats = stats
        self._histograms = histograms

    def count_rows(self, rows: int, seconds: float) -> None:
        """Count the rows of a step, and the seconds that the plan took."""
        self._stats.rows += rows
        self._stats.run_seconds += seconds

    def count_tokens(self, channel: Channel, before: int, now: float) -> None:
        """Count the tokens that a text has got beyond `before`, and the time since the tokens before them."""
        n = channel.completion_tokens - before
        if n:
            self._stats.generated_tokens += n
            if before:
                self._histograms.between_tokens.add(now - channel.last)
            else:
                self._histograms.first_token.add(now - channel.submitted)
            channel.last = now

    def count_prefill(self, sequence: EngineSequence, n: int) -> None:
        """Count n computed tokens of a prompt; those that are computed again after a preemption are not counted."""
        if sequence.background:
            self._stats.replayed_tokens += n
        elif not sequence.was_preempted:
            self._stats.prompt_tokens += n

    def count_drafts(self, entry: BatchEntry) -> None:
        """Count the drafts of an entry, and let its drafter learn how many were right."""
        drafts, right = len(entry.drafts or ()), entry.sequence.used_rows - 1
        self._stats.drafted_tokens += drafts
        self._stats.accepted_tokens += right
        generation = entry.sequence.generation
        if generation is not None and generation.drafter is not None:
            generation.drafter.learn(drafts, right)
