"""`Sequence`: one context at work in the engine, reading a prompt or writing."""

from __future__ import annotations

import time
from collections.abc import Callable

import llamay_kv as kv
from llamay_models.engine._constraint import Bounds
from llamay_models.engine._generation import Channel, FinishReason, Piece, TokenScore
from llamay_models.engine._sampler import Chooser
from llamay_models.engine._state import State
from llamay_models.engine._text import TextStream
from llamay_models.errors import LlamayError
from llamay_models.plan._records import Floats


class Writing:
    """How a sequence goes on once its prompt is read.

    `ends` are the tokens that end the text; `constraint` is looked at when the first token is chosen.
    """

    __slots__ = ("bounds", "chooser", "constraint", "ends", "limit", "scores", "text", "tokens")

    def __init__(
        self,
        chooser: Chooser,
        text: TextStream,
        ends: frozenset[int],
        limit: int,
        constraint: Callable[[], Bounds] | None,
    ) -> None:
        self.chooser = chooser
        self.text = text
        self.ends = ends
        self.limit = limit
        self.constraint = constraint
        self.bounds: Bounds | None = None
        self.tokens: list[int] = []
        self.scores: list[TokenScore] = []


class Sequence:
    """A context while the engine works on it. All of it belongs to the engine's thread, except the channel.

    Without `writing` it only reads what is pending, and keeps the logits after the last token.
    """

    __slots__ = ("channel", "ending", "kept", "owned", "release", "reuse", "shared", "state", "writing")

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
    ) -> None:
        self.state = state
        self.channel = channel
        self.writing = writing
        self.release = release
        self.owned = owned
        self.reuse = reuse
        self.shared = shared
        self.kept = 0  # how many tokens the prefixes have of it
        self.ending: tuple[FinishReason, LlamayError | None] | None = None

    @property
    def ready(self) -> bool:
        """Whether the next token can be chosen without computing anything."""
        return not self.state.pending and self.state.logits is not None

    def begin_with(self, found: kv.Context) -> None:
        """Go on from a prefix that was computed before."""
        state, n = self.state, len(found)
        state.kv.close()
        state.kv, state.pending = found, state.pending[n:]
        self.kept = n
        if self.writing is None:
            self.channel.put(n)
        else:
            self.channel.cached_tokens = n

    def took(self, n: int, logits: Floats | None) -> None:
        """Go on after the first n pending tokens were computed.

        `logits` belong to the last of them where it is the last of all.
        """
        state = self.state
        state.pending = state.pending[n:]
        if state.pending:
            if self.writing is None:
                self.channel.put(n)
            return
        if self.writing is None:
            assert logits is not None
            state.logits = logits.copy()
            self.ending = ("stop", None)
        else:
            assert logits is not None
            self.choose(logits)

    def choose(self, logits: Floats) -> None:
        """Choose the next token, let out the text it completes, and say in `ending` if the sequence is to end.

        At the end the context keeps the token as pending.
        """
        try:
            self._choose(logits)
        except BaseException:
            if not self.state.pending:
                self.state.logits = logits.copy()
            raise

    def _choose(self, logits: Floats) -> None:
        writing, channel, state = self.writing, self.channel, self.state
        assert writing is not None
        if not channel.first:
            channel.first = time.perf_counter()
        if channel.completion_tokens >= writing.limit:
            state.logits = logits.copy()
            self.ending = ("length", None)
            return
        if writing.constraint is not None and writing.bounds is None:
            writing.bounds = writing.constraint()
            if writing.bounds.finished:
                state.logits = logits.copy()
                self.ending = ("stop", None)
                return
        mask = None if writing.bounds is None else writing.bounds.mask
        token, score = writing.chooser.choose(logits, len(state), mask)
        state.append([token])
        channel.completion_tokens += 1
        writing.tokens.append(token)
        if score is not None:
            writing.scores.append(score)
        if token in writing.ends:
            self.ending = ("stop", None)
            return
        self._let_out(writing.text.feed(token))
        if writing.text.stopped is not None:
            channel.stop_sequence = writing.text.stopped
            self.ending = ("stop", None)
            return
        if writing.bounds is not None:
            writing.bounds.accept(token)
        if writing.bounds is not None and writing.bounds.finished:
            self.ending = ("stop", None)
        elif channel.completion_tokens >= writing.limit:
            self.ending = ("length", None)

    def finish(self, reason: FinishReason, error: LlamayError | None = None) -> None:
        """End the sequence: let out the rest of its text, give back what it held, then tell the caller."""
        channel, writing = self.channel, self.writing
        if channel.finish_reason is not None:
            return
        channel.last = time.perf_counter()
        if writing is not None:
            text = writing.text.finish() if writing.text.stopped is None else ""
            if text or writing.tokens:
                self._let_out(text, last=True)
        if self.owned:
            self.state.kv.close()
        self.release()
        channel.finish(reason, error)

    @property
    def finished(self) -> bool:
        """Whether it has ended."""
        return self.channel.finish_reason is not None

    def _let_out(self, text: str, *, last: bool = False) -> None:
        writing = self.writing
        assert writing is not None
        if text or last:
            self.channel.put(Piece(text, tuple(writing.tokens), tuple(writing.scores)))
            writing.tokens, writing.scores = [], []
