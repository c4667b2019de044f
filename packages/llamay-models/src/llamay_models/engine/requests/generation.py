"""`Generation`: what a caller holds while the engine writes."""

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

    It runs whether or not anybody reads. Dropping the last reference to it cancels it. An error raises
    where the text is read, after all that came before it; `finish_reason` and `error` tell without
    raising.
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
        """The scores of the tokens, where they were asked for. Waits for the end."""
        for _ in self:
            pass
        return tuple(self._scores)

    @property
    def finish_reason(self) -> FinishReason | None:
        """Why it ended; None while it runs.

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
        """What went wrong, where `finish_reason` is "error"."""
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
        """Return a generation, or a list of n, that goes on from where this one is now, while this one goes on too.

        A fork shares the context so far and begins with the next token: its text is what comes after. It has
        its constraint, its penalties and what mirostat learned from here on for itself, and fork number i draws
        from stream number i split off this one's, so that forks differ and can be repeated. Raises ContextError
        after the end, or for a constraint that cannot fork.
        """
        forks = self._branch(self._channel, 1 if n is None else n)
        return forks[0] if n is None else forks

    def divert(self, consumer: PieceConsumer) -> None:
        """Give pieces to a function while a coroutine waits for them in `async for`.

        It is called in the loop's thread with text, tokens and scores, in order, and never while the coroutine is
        busy with an earlier piece: many texts then cost no switch of tasks for each. Where it returns False the
        piece is iterated, and where it raises, iterating does. What it took is not part of `text`, `tokens` and
        `scores`.
        """
        self._channel.consumer = consumer

    def cancel(self) -> None:
        """Stop it within one step. Harmless after the end. Does not wait; `wait` does."""
        self._channel.cancelled = True
        self._wake.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end without reading. Returns whether it came."""
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
