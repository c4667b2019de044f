"""`Finisher`: ends sequences, and keeps their computed prefixes."""

from __future__ import annotations

import contextlib

from llamay_models.engine.decoding.sequence import EngineSequence
from llamay_models.engine.requests.results import FinishReason
from llamay_models.engine.scheduling.replay import Replays
from llamay_models.engine.state.prefix_cache import PrefixCache
from llamay_models.engine.stats import Stats
from llamay_models.errors import LlamayError


class Finisher:
    """Ends sequences, and adds their tokens to the prefix cache. Belongs to the engine's thread.

    Attributes:
        count: the number of ended sequences; while it does not change, no sequence has given memory back.
        keeps_prefixes: whether computed prefixes are kept; not while the engine closes.

    """

    def __init__(self, stats: Stats, prefixes: PrefixCache | None, replays: Replays) -> None:
        self.count = 0
        self.keeps_prefixes = True
        self._stats = stats
        self._prefixes = prefixes
        self._replays = replays

    def finish_if_ending(self, sequence: EngineSequence) -> None:
        """End a sequence whose `ending` is set."""
        if sequence.ending is None:
            return
        reason, error = sequence.ending
        if error is not None:
            self.end(sequence, error)
            return
        self._stats.finished += not sequence.background
        self._finish(sequence, reason)

    def end(self, sequence: EngineSequence, error: LlamayError | None, *, cancelled: bool = False) -> None:
        """End a sequence with an error, or as cancelled."""
        if sequence.background:
            pass
        elif cancelled:
            self._stats.cancelled += 1
        else:
            self._stats.failed += 1
        self._finish(sequence, "cancelled" if cancelled else "error", error)

    def end_if_over(self, sequence: EngineSequence, now: float) -> bool:
        """End a sequence that was cancelled, or whose time is up. Return whether it has ended."""
        if sequence.channel.cancelled:
            self.end(sequence, None, cancelled=True)
        elif sequence.deadline is not None and now >= sequence.deadline:
            self._stats.timed_out += 1
            sequence.ending = ("timeout", None)
            self.finish_if_ending(sequence)
        return sequence.finished

    def _finish(
        self, sequence: EngineSequence, reason: FinishReason, error: LlamayError | None = None
    ) -> None:
        self.count += 1
        # What is kept for later texts is no part of this one, which is complete.
        with contextlib.suppress(BaseException):
            self._keep(sequence, reason)
        sequence.finish(reason, error)

    def _keep(self, sequence: EngineSequence, reason: FinishReason) -> None:
        """Keep the state, the prefix and the text of a sequence that ends."""
        state, prefixes = sequence.state, self._prefixes
        if (
            not sequence.owns_context
            and sequence.generation is not None
            and not (state.kv.closed or state.kv.leased)
        ):
            state.kv.checkpoint()  # at the end of a turn recurrent layers keep a state
        if prefixes is not None and sequence.reuse and not sequence.finished and self.keeps_prefixes:
            # A context that may be continued keeps its last, partly filled page for itself; states are elsewhere.
            whole = sequence.owns_context or prefixes.recurrent
            prefixes.keep(
                state.kv,
                state.tenant,
                sequence.shared,
                up_to=None if whole else prefixes.shareable_length(state.kv),
            )
            prefixes.save(state.kv, state.tenant)
        if not sequence.background and not state.has_vectors and self._comes_back(sequence, reason):
            self._replays.note(state.tokens, sequence.channel.completion_tokens, state.tenant)

    def _comes_back(self, sequence: EngineSequence, reason: FinishReason) -> bool:
        """Return whether a client may send this text back, as a turn of a longer prompt."""
        kept = self._prefixes is not None and sequence.reuse and sequence.state.kv.marking is None
        return kept and sequence.generation is not None and reason in ("stop", "length")
