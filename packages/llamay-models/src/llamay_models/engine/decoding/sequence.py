"""`EngineSequence`: one context at work in the engine, in prefill or decoding."""

from __future__ import annotations

import time
from collections.abc import Callable

import llamay_kv as kv
from llamay_models.engine.decoding.constraint_state import ConstraintState
from llamay_models.engine.decoding.generation_state import GenerationState
from llamay_models.engine.failures import wrapped
from llamay_models.engine.requests.channel import Channel
from llamay_models.engine.requests.results import FinishReason
from llamay_models.engine.state.context_state import State
from llamay_models.errors import LlamayError
from llamay_models.plan.records import Floats


class EngineSequence:
    """A context while the engine works on it. All of it belongs to the engine's thread, except the channel.

    Without `generation` the pending tokens are prefilled, and the logits after the last one are kept.

    Attributes:
        owns_context: whether the context is closed with the sequence.
        reuse, shared: whether cached prefixes are used, and how many tokens belong to no tenant.
        priority: sequences of higher priority come first.
        deadline: the `perf_counter` seconds at which the sequence ends; None for none.
        order: the sequence's number in the order of arrival.
        kept_tokens: how many of the tokens the prefix cache has.
        checkpoint_positions: where in the prompt recurrent layers keep a state.
        ending: the reason and the error with which the sequence is to end; None while it continues.
        last_prefill_step: the step in which the sequence last had prompt rows.
        preempted: whether the sequence waits because its pages were taken.
        was_preempted: whether that happened at any time.
        background: whether the sequence is a replay, which no caller asked for and no statistics count.
        used_rows: how many rows of logits of the last step were used.
        deferred_at: the position at which the sequence last waited for another one with an equal prompt.

    """

    __slots__ = (
        "background",
        "channel",
        "checkpoint_positions",
        "deadline",
        "deferred_at",
        "ending",
        "generation",
        "kept_tokens",
        "last_prefill_step",
        "order",
        "owns_context",
        "preempted",
        "priority",
        "release",
        "reuse",
        "shared",
        "state",
        "used_rows",
        "was_preempted",
    )

    def __init__(
        self,
        state: State,
        channel: Channel,
        generation: GenerationState | None,
        release: Callable[[], None],
        *,
        owns_context: bool,
        reuse: bool = True,
        shared: int = 0,
        priority: int = 0,
        timeout: float | None = None,
    ) -> None:
        self.state = state
        self.channel = channel
        self.generation = generation
        self.release = release
        self.owns_context = owns_context
        self.reuse = reuse
        self.shared = shared
        self.priority = priority
        self.deadline = None if timeout is None else channel.submitted + timeout
        self.order = 0
        self.kept_tokens = 0
        self.checkpoint_positions: tuple[int, ...] = ()
        self.last_prefill_step = 0
        self.used_rows = 0
        self.deferred_at: int | None = None
        self.preempted = False
        self.was_preempted = False
        self.background = False
        self.ending: tuple[FinishReason, LlamayError | None] | None = None

    @property
    def decoding(self) -> bool:
        """Whether the sequence generates, and only its last token is still to be computed."""
        return self.generation is not None and len(self.state.pending) == 1

    @property
    def constraint_state(self) -> ConstraintState | None:
        """The constraint at work on the text; None without one, and before the first token is chosen."""
        return None if self.generation is None else self.generation.constraint_state

    def adopt_prefix(self, found: kv.Context) -> None:
        """Continue from a cached prefix, which is longer than the computed part of the context."""
        state = self.state
        gain = len(found) - len(state.kv)
        state.kv.close()
        state.kv, state.pending = found, state.pending[gain:]
        self.kept_tokens = len(found)
        if self.generation is None:
            self.channel.put(gain)
        if not self.was_preempted:
            self.channel.cached_tokens += gain

    def verify(self, logits: list[Floats], drafts: list[int]) -> None:
        """Choose a token after the last pending one, and after each draft for as long as the drafts are right.

        There are logits for each. `used_rows` is then the number of rows that were used: one, and one more for every
        draft that equals the chosen token. The tokens of those rows can be committed.
        """
        for i, row in enumerate(logits):
            self.used_rows = i + 1
            self.choose(row)
            if i == len(drafts) or self.ending is not None or self.state.pending[-1] != drafts[i]:
                break
            self.end_if_complete()
            if self.ending is not None:
                break

    def mark_committed(self, n: int) -> None:
        """Remove the first n pending tokens, which were committed."""
        pending = self.state.pending
        del pending[:n]
        if self.generation is None and pending:
            self.channel.put(n)

    def choose(self, logits: Floats, position: int | None = None) -> None:
        """Choose the next token, emit the text it completes, and set `ending` if the sequence is to end.

        `position` is the position of that token, if it is known. Whether a constraint is satisfied is decided by
        `end_if_complete`. Without `generation` no token is chosen, and the logits are kept. At the end the context
        keeps the token as pending.
        """
        generation, state = self.generation, self.state
        if generation is None:
            state.logits = logits.copy()
            self.ending = ("stop", None)
            return
        before = len(state.pending)
        try:
            self._choose(generation, logits, len(state) if position is None else position)
        except BaseException:
            if len(state.pending) == before:
                state.logits = logits.copy()
            raise

    def _choose(self, generation: GenerationState, logits: Floats, position: int) -> None:
        channel, state = self.channel, self.state
        if not channel.first:
            channel.first = time.perf_counter()
        if channel.completion_tokens >= generation.limit:
            state.logits = logits.copy()
            self.ending = ("length", None)
            return
        mask = None
        if generation.make_constraint_state is not None:
            constraint = generation.constraint_state
            if constraint is None:
                constraint = generation.constraint_state = generation.make_constraint_state()
            if constraint.finished:
                if channel.completion_tokens == 0:
                    constraint.check_unused()
                state.logits = logits.copy()
                self.ending = ("stop", None)
                return
            mask = constraint.mask
        token, score = generation.sampler.choose(logits, position, mask)
        self._append(generation, token)
        if score is not None:
            generation.scores.append(score)
        self._emit_token(generation, token)

    def take_drawn(self, position: int) -> int:
        """Append the token that was drawn with the step, and leave the rest of `choose` to `emit`.

        Only for texts without scores, and for a token that neither ends the text nor is the last one allowed.
        """
        generation = self.generation
        assert generation is not None
        token = generation.sampler.take(position)
        self._append(generation, token)
        return token

    def emit(self, token: int) -> None:
        """Emit the text that a token completes, and set `ending` if the sequence is to end."""
        assert self.generation is not None
        self._emit_token(self.generation, token)

    def _append(self, generation: GenerationState, token: int) -> None:
        self.state.pending.append(token)
        self.state.logits = None
        self.channel.completion_tokens += 1
        if generation.drafter is not None:
            generation.drafter.push(token)

    def _emit_token(self, generation: GenerationState, token: int) -> None:
        channel = self.channel
        generation.tokens.append(token)
        if token in generation.ends:
            self.ending = ("stop", None)
            return
        stream = generation.text
        text = stream.feed(token)
        if text:
            self._put_piece(generation, text)
        if generation.constraint_state is not None:
            # Also before a stop string ends the text: the constraint may go on in another text.
            generation.constraint_state.accept(token)
        if stream.stopped is not None:
            channel.stop_sequence = generation.text.stopped
            self.ending = ("stop", None)
            return
        if channel.completion_tokens >= generation.limit:
            self.ending = ("length", None)

    @property
    def waits_for_mask(self) -> bool:
        """Whether the mask of the next token decides if the text is complete, and is computed before the next step."""
        constraint, ending = self.constraint_state, self.ending
        if constraint is None:
            return False
        return not constraint.stale_and_slow if ending is None else ending[0] == "length"

    def end_if_complete(self) -> None:
        """End a text whose constraint allows no further text. Raises ConstraintError, or what the constraint raised.

        A mask that takes long is computed while the next step runs, and decides after it.
        """
        constraint = self.constraint_state
        if constraint is not None and self.waits_for_mask and constraint.finished:
            self.ending = ("stop", None)

    def finish(self, reason: FinishReason, error: LlamayError | None = None) -> None:
        """End the sequence: emit the rest of its text, release its context, then notify the caller."""
        channel, generation = self.channel, self.generation
        if channel.finish_reason is not None:
            return
        channel.last = time.perf_counter()
        try:
            if generation is not None:
                self._finish_text(generation)
        except BaseException as failed:  # a decoder may raise anything
            reason, error = "error", error if error is not None else wrapped(failed)
        try:
            if self.owns_context:
                self.state.kv.close()
            self.release()
        finally:
            channel.finish(reason, error)

    def _finish_text(self, generation: GenerationState) -> None:
        """Emit the rest of the text."""
        if generation.drafter is not None:
            generation.drafter.close()
        text = generation.text.finish() if generation.text.stopped is None else ""
        if text or generation.tokens:
            self._put_piece(generation, text)

    @property
    def finished(self) -> bool:
        """Whether the sequence has ended."""
        return self.channel.finish_reason is not None

    def _put_piece(self, generation: GenerationState, text: str) -> None:
        self.channel.put((text, tuple(generation.tokens), tuple(generation.scores)))
        generation.tokens.clear()
        if generation.scores:
            generation.scores.clear()
