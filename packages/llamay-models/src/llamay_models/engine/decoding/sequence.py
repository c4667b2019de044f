"""`Sequence`: one context at work in the engine, reading a prompt or writing."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable

import llamay_kv as kv
from llamay_models.engine.decoding.constraint_state import Bounds
from llamay_models.engine.decoding.speculation import Drafter
from llamay_models.engine.decoding.text_stream import TextStream
from llamay_models.engine.decoding.token_sampler import Chooser
from llamay_models.engine.requests.channel import Channel
from llamay_models.engine.requests.results import FinishReason, TokenScore
from llamay_models.engine.state.context_state import State
from llamay_models.errors import LlamayError
from llamay_models.plan._records import Floats


class Writing:
    """How a sequence goes on once its prompt is read.

    `ends` are the tokens that end the text; `constraint` is looked at when the first token is chosen;
    `drafter` guesses what comes next. `stops`, `special` and `forbidden` are the stop strings, the
    control tokens that are shown, and the tokens that are never chosen, kept for branches.
    """

    __slots__ = (
        "bounds",
        "chooser",
        "constraint",
        "drafter",
        "ends",
        "forbidden",
        "limit",
        "scores",
        "special",
        "stops",
        "text",
        "tokens",
    )

    def __init__(
        self,
        chooser: Chooser,
        text: TextStream,
        ends: frozenset[int],
        limit: int,
        constraint: Callable[[], Bounds] | None,
        drafter: Drafter | None = None,
        *,
        stops: Iterable[str] = (),
        special: Collection[int] = (),
        forbidden: frozenset[int] = frozenset(),
    ) -> None:
        self.chooser = chooser
        self.text = text
        self.ends = ends
        self.limit = limit
        self.constraint = constraint
        self.drafter = drafter
        self.stops = stops
        self.special = special
        self.forbidden = forbidden
        self.bounds: Bounds | None = None
        self.tokens: list[int] = []
        self.scores: list[TokenScore] = []


class Sequence:
    """A context while the engine works on it. All of it belongs to the engine's thread, except the channel.

    Without `writing` it only reads what is pending, and keeps the logits after the last token.

    Attributes:
        owned: whether the context ends with the sequence.
        reuse, shared: whether prefixes are used, and how much of it is everybody's.
        priority, deadline: higher comes first; perf_counter seconds at which it ends.
        order: when it came, among all.
        kept: how many of its tokens the prefixes have.
        checkpoint_positions: where in its prompt recurrent layers keep a state.
        ending: why and with what error it is to end.
        last_prefill_step: the step in which it last read.
        preempted: whether it waits because its memory was taken; `was_preempted`, whether that ever was so.
        background: whether nobody asked for it; it is in no statistics.
        used: how many rows of logits of its last step were of use.
        passed: where it stood when it last let an equal prompt read for it.

    """

    __slots__ = (
        "background",
        "channel",
        "checkpoint_positions",
        "deadline",
        "ending",
        "kept",
        "last_prefill_step",
        "order",
        "owned",
        "passed",
        "preempted",
        "priority",
        "release",
        "reuse",
        "shared",
        "state",
        "used",
        "was_preempted",
        "writing",
    )

    def __init__(
        self,
        state: State,
        channel: Channel,
        writing: Writing | None,
        release: Callable[[], None],
        *,
        owned: bool,
        reuse: bool = True,
        shared: int = 0,
        priority: int = 0,
        timeout: float | None = None,
    ) -> None:
        self.state = state
        self.channel = channel
        self.writing = writing
        self.release = release
        self.owned = owned
        self.reuse = reuse
        self.shared = shared
        self.priority = priority
        self.deadline = None if timeout is None else channel.submitted + timeout
        self.order = 0
        self.kept = 0
        self.checkpoint_positions: tuple[int, ...] = ()
        self.last_prefill_step = 0
        self.used = 0
        self.passed: int | None = None
        self.preempted = False
        self.was_preempted = False
        self.background = False
        self.ending: tuple[FinishReason, LlamayError | None] | None = None

    @property
    def decoding(self) -> bool:
        """Whether it writes, and not more than the last token is to be computed."""
        return self.writing is not None and len(self.state.pending) == 1

    def begin_with(self, found: kv.Context) -> None:
        """Go on from a prefix that was computed before, a longer one than it has."""
        state = self.state
        gain = len(found) - len(state.kv)
        state.kv.close()
        state.kv, state.pending = found, state.pending[gain:]
        self.kept = len(found)
        if self.writing is None:
            self.channel.put(gain)
        if not self.was_preempted:
            self.channel.cached_tokens += gain

    def verify(self, logits: list[Floats], drafts: list[int]) -> None:
        """Choose a token after the last pending one, and after each draft for as long as the drafts were right.

        There are logits for each. `used` then says how many rows were of use: one, and one more for every
        draft that is what was chosen. The tokens of those rows can be committed.
        """
        for i, row in enumerate(logits):
            self.used = i + 1
            self.choose(row)
            if i == len(drafts) or self.ending is not None or self.state.pending[-1] != drafts[i]:
                break
            self.look()
            if self.ending is not None:
                break

    def took(self, n: int) -> None:
        """Go on after the first n pending tokens were committed."""
        pending = self.state.pending
        del pending[:n]
        if self.writing is None and pending:
            self.channel.put(n)

    def choose(self, logits: Floats, position: int | None = None) -> None:
        """Choose the next token, let out the text it completes, and say in `ending` if the sequence is to end.

        `position` is that token's, if it is known. Whether a constraint is satisfied is for `look` to say. Without
        `writing` nothing is chosen; the logits are kept. At the end the context keeps the token as pending.
        """
        writing, state = self.writing, self.state
        if writing is None:
            state.logits = logits.copy()
            self.ending = ("stop", None)
            return
        before = len(state.pending)
        try:
            self._choose(writing, logits, len(state) if position is None else position)
        except BaseException:
            if len(state.pending) == before:
                state.logits = logits.copy()
            raise

    def _choose(self, writing: Writing, logits: Floats, position: int) -> None:
        channel, state = self.channel, self.state
        if not channel.first:
            channel.first = time.perf_counter()
        if channel.completion_tokens >= writing.limit:
            state.logits = logits.copy()
            self.ending = ("length", None)
            return
        mask = None
        if writing.constraint is not None:
            bounds = writing.bounds
            if bounds is None:
                bounds = writing.bounds = writing.constraint()
            if bounds.finished:
                state.logits = logits.copy()
                self.ending = ("stop", None)
                return
            mask = bounds.mask
        token, score = writing.chooser.choose(logits, position, mask)
        self._take(writing, token)
        if score is not None:
            writing.scores.append(score)
        self._tell(writing, token)

    def take_drawn(self, position: int) -> int:
        """Take the next token, which was drawn with the step, and leave the rest of `choose` to `tell`.

        Only for texts without constraint and scores, for a token that is neither an end nor the last one allowed.
        """
        writing = self.writing
        assert writing is not None
        token = writing.chooser.take(position)
        self._take(writing, token)
        return token

    def tell(self, token: int) -> None:
        """Let out the text that a token completes, and say in `ending` if the sequence is to end."""
        assert self.writing is not None
        self._tell(self.writing, token)

    def _take(self, writing: Writing, token: int) -> None:
        self.state.pending.append(token)
        self.state.logits = None
        self.channel.completion_tokens += 1
        if writing.drafter is not None:
            writing.drafter.push(token)

    def _tell(self, writing: Writing, token: int) -> None:
        channel = self.channel
        writing.tokens.append(token)
        if token in writing.ends:
            self.ending = ("stop", None)
            return
        stream = writing.text
        text = stream.feed(token)
        if text:
            self._let_out(writing, text)
        if writing.bounds is not None:
            writing.bounds.accept(token)  # also before a stop string ends the text: it may go on in another
        if stream.stopped is not None:
            channel.stop_sequence = writing.text.stopped
            self.ending = ("stop", None)
            return
        if channel.completion_tokens >= writing.limit:
            self.ending = ("length", None)

    @property
    def waits_for_mask(self) -> bool:
        """Whether only the mask of the next token tells whether the text is complete, and it is worth waiting for."""
        writing, ending = self.writing, self.ending
        if writing is None or writing.bounds is None:
            return False
        return not writing.bounds.slow if ending is None else ending[0] == "length"

    def look(self) -> None:
        """End a text whose constraint allows nothing more. Raises ConstraintError, or what the constraint raised.

        A mask that takes long is computed while the next step runs, and looked at after it.
        """
        bounds = None if self.writing is None else self.writing.bounds
        if bounds is not None and self.waits_for_mask and bounds.finished:
            self.ending = ("stop", None)

    def finish(self, reason: FinishReason, error: LlamayError | None = None) -> None:
        """End the sequence: let out the rest of its text, give back what it held, then tell the caller."""
        channel, writing = self.channel, self.writing
        if channel.finish_reason is not None:
            return
        channel.last = time.perf_counter()
        if writing is not None:
            if writing.drafter is not None:
                writing.drafter.close()
            text = writing.text.finish() if writing.text.stopped is None else ""
            if text or writing.tokens:
                self._let_out(writing, text)
        if self.owned:
            self.state.kv.close()
        self.release()
        channel.finish(reason, error)

    @property
    def finished(self) -> bool:
        """Whether it has ended."""
        return self.channel.finish_reason is not None

    def _let_out(self, writing: Writing, text: str) -> None:
        self.channel.put((text, tuple(writing.tokens), tuple(writing.scores)))
        writing.tokens.clear()
        if writing.scores:
            writing.scores.clear()
