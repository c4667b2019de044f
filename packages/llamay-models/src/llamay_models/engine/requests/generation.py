"""`Generation`: the caller's handle of a running generation."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import overload

from llamay_models.engine.requests.channel import Channel, PieceConsumer
from llamay_models.engine.requests.results import FinishReason, Piece, Timings, TokenScore, Usage
from llamay_models.engine.sampling import Sampling
from llamay_models.errors import LlamayError


class Generation:
    """A running generation.

    Iterate over it (`for` or `async for`) to receive it piece by piece; `.text` runs it to the end.

    It runs whether or not its pieces are read. Dropping the last reference cancels it. An error is raised where the
    text is read, after all text that came before it; `finish_reason` and `error` are set without raising.
    """

    def __init__(
        self,
        channel: Channel,
        sampling: Sampling,
        wake: threading.Event,
        branch: Callable[[Channel, int], list[Generation]],
    ) -> None:
        self._channel = channel
        self._wake = wake
        self._branch = branch
        self._text: list[str] = []
        self._tokens: list[int] = []
        self._scores: list[TokenScore] = []
        self.sampling = sampling
        """The sampling with the seed that is used."""

    def __iter__(self) -> Iterator[Piece]:
        while (item := self._channel.get()) is not None:
            if not isinstance(item, int):
                yield self._note(*item)
        self._raise()

    async def __aiter__(self) -> AsyncIterator[Piece]:
        while (item := await self._channel.aget()) is not None:
            if not isinstance(item, int):
                yield self._note(*item)
        self._raise()

    @property
    def text(self) -> str:
        """All the text. Waits for the end."""
        for _ in self:
            pass
        return "".join(self._text)

    @property
    def tokens(self) -> tuple[int, ...]:
        """The generated tokens, one that ends the generation included. Waits for the end."""
        for _ in self:
            pass
        return tuple(self._tokens)

    @property
    def scores(self) -> tuple[TokenScore, ...]:
        """The scores of the tokens, if they were requested. Waits for the end."""
        for _ in self:
            pass
        return tuple(self._scores)

    @property
    def finish_reason(self) -> FinishReason | None:
        """The reason why it ended; None while it runs.

        "stop": an end token, a stop string, or a finished constraint; "length": max_tokens, or the context
        is full; "timeout": the request's time was up; "cancelled"; "error".
        """
        return self._channel.finish_reason

    @property
    def stop_sequence(self) -> str | None:
        """The stop string that ended it, if one did."""
        return self._channel.stop_sequence

    @property
    def error(self) -> LlamayError | None:
        """The error, where `finish_reason` is "error"."""
        return self._channel.error

    @property
    def usage(self) -> Usage:
        """Tokens so far."""
        c = self._channel
        return Usage(c.prompt_tokens, c.cached_tokens, c.completion_tokens)

    @property
    def timings(self) -> Timings:
        """Seconds so far."""
        c, now = self._channel, time.perf_counter()
        started = c.started or now
        first = c.first or now
        return Timings(
            started - c.submitted, (first - started) if c.started else 0.0, max(0.0, c.last - first)
        )

    @overload
    def fork(self) -> Generation: ...
    @overload
    def fork(self, n: int) -> list[Generation]: ...
    def fork(self, n: int | None = None) -> Generation | list[Generation]:
        """Return a generation, or a list of n, that continues from the current token, while this one continues too.

        A fork shares the context so far, and its text begins with the next token. From there on it has a constraint,
        penalties and a mirostat of its own. Fork number i draws from random stream number i branched off this one's, so
        that forks differ and can be repeated. Raises ContextError after the end, or for a constraint that cannot fork.
        """
        forks = self._branch(self._channel, 1 if n is None else n)
        return forks[0] if n is None else forks

    def divert(self, consumer: PieceConsumer) -> None:
        """Give pieces to a function while a coroutine waits for them in `async for`.

        The function is called on the event loop's thread with text, tokens and scores, in order, and never while the
        coroutine is busy with an earlier piece, so many texts need no switch of tasks for each piece. A piece for which
        it returns False is iterated; an exception that it raises is raised by the iteration. Pieces that it took are
        not part of `text`, `tokens` and `scores`.
        """
        self._channel.consumer = consumer

    def cancel(self) -> None:
        """Stop the generation within one step, without waiting for that. Harmless after the end."""
        self._channel.cancelled = True
        self._wake.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end without reading. Return whether the generation has ended."""
        self._channel.check_thread()
        return self._channel.finished.wait(timeout)

    def __del__(self) -> None:
        channel: Channel | None = getattr(self, "_channel", None)
        if channel is not None and channel.finish_reason is None:
            self.cancel()

    def _note(self, text: str, tokens: tuple[int, ...], scores: tuple[TokenScore, ...]) -> Piece:
        self._text.append(text)
        self._tokens.extend(tokens)
        self._scores.extend(scores)
        return Piece(text, tokens, scores)

    def _raise(self) -> None:
        if self._channel.error is not None:
            raise self._channel.error
