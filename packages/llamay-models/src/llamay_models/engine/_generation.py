"""`Generation`: what a caller holds while the engine writes, and the channel between the two."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, overload

from llamay_models.engine._sampling import Sampling
from llamay_models.errors import LlamayError

if TYPE_CHECKING:
    import asyncio

FinishReason = Literal["stop", "length", "timeout", "cancelled", "error"]


@dataclass(frozen=True, slots=True)
class TokenScore:
    """A token with its natural-log probability, and the likeliest alternatives, best first."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Piece:
    """Text that became whole, the tokens that completed it, and their scores where they were asked for."""

    text: str
    tokens: tuple[int, ...] = ()
    logprobs: tuple[TokenScore, ...] = ()


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens: of the prompt, of these the ones that were computed before, and the ones generated."""

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds: in the queue, reading the prompt, and from the first token to the last."""

    queue: float
    prompt: float
    decode: float


Item = tuple[str, tuple[int, ...], tuple[TokenScore, ...]] | int
"""What goes through a channel: the parts of a piece, or, while a prompt is read, how many of its tokens were."""
Taker = Callable[[str, tuple[int, ...], tuple[TokenScore, ...]], bool]
"""Takes the text, tokens and scores of a piece, or gives False to leave it to whoever iterates."""


class Channel:
    """Items on their way from the engine's thread to a thread, or to a coroutine of any loop."""

    def __init__(self) -> None:
        self.finished = threading.Event()
        self.finish_reason: FinishReason | None = None
        self.stop_sequence: str | None = None
        self.error: LlamayError | None = None
        self.prompt_tokens = self.cached_tokens = self.completion_tokens = 0
        self.submitted = time.perf_counter()
        self.started = self.first = self.last = 0.0
        self.cancelled = False
        self.taker: Taker | None = None
        self._left: Item | None = None
        self._items: queue.SimpleQueue[Item | None] = queue.SimpleQueue()
        self._waiting: tuple[asyncio.AbstractEventLoop, asyncio.Future[None]] | None = None

    def put(self, item: Item) -> None:
        """From the engine's thread."""
        self._items.put(item)
        if self._waiting is not None:
            self._wake()

    def finish(self, reason: FinishReason, error: LlamayError | None = None) -> None:
        """End the stream. Only the first call counts."""
        if self.finish_reason is None:
            self.finish_reason, self.error = reason, error
            self._items.put(None)
            self.finished.set()
            if self._waiting is not None:
                self._wake()

    def get(self) -> Item | None:
        """Return the next item, or None at the end. Blocks."""
        item = self._items.get()
        if item is None:
            self._items.put(None)  # whoever asks again gets the same answer
        return item

    async def aget(self) -> Item | None:
        """Return the next item, or None at the end."""
        import asyncio  # who waits here has it loaded; everybody else starts faster without it

        loop = asyncio.get_running_loop()
        while True:
            if (left := self._left) is not None:
                self._left = None
                return left
            # Registered before the queue is looked at, so that no item can slip in between.
            future: asyncio.Future[None] = loop.create_future()
            self._waiting = (loop, future)
            try:
                item = self._items.get_nowait()
            except queue.Empty:
                await future
                continue
            self._waiting = None
            if item is None:
                self._items.put(None)
            return item

    def arrive(self, future: asyncio.Future[None]) -> None:
        """In the thread of the loop: give what came to the taker; what it leaves, to the coroutine that waits."""
        if future.done():
            return
        if (taker := self.taker) is not None:
            self._waiting = (future.get_loop(), future)  # as in `aget`
            try:
                while (item := self._items.get_nowait()) is not None:
                    if not isinstance(item, int) and not taker(*item):
                        self._left = item
                        break
                else:
                    self._items.put(None)
            except queue.Empty:
                return
            except Exception as error:
                self._waiting = None
                future.set_exception(error)
                return
            self._waiting = None
        future.set_result(None)

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is None:
            return
        loop, future = waiting
        held: Held | None = getattr(_thread, "held", None)
        if held is None:
            _tell(loop, [(self, future)])
        else:
            held.setdefault(loop, []).append((self, future))


_thread = threading.local()
_Arrivals: TypeAlias = "list[tuple[Channel, asyncio.Future[None]]]"
Held: TypeAlias = "dict[asyncio.AbstractEventLoop, _Arrivals]"
"""Who waits to be woken, by loop."""


def hold_wakes() -> Held:
    """From now on gather what this thread wakes: one call into a loop for a step, not one for every text of it.

    Each call costs a write to a socket, and hands the interpreter to the loop's thread in the middle of the step.
    Returns where they are gathered, for `wake_held`.
    """
    held: Held = {}
    _thread.held = held
    return held


def wake_held(held: Held) -> None:
    """Wake all that was gathered."""
    while held:
        _tell(*held.popitem())


def _tell(loop: asyncio.AbstractEventLoop, arrivals: _Arrivals) -> None:
    # A loop that was closed has nobody who waits any more.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(_arrive, arrivals)


def _arrive(arrivals: _Arrivals) -> None:
    for channel, future in arrivals:
        channel.arrive(future)


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

    def divert(self, taker: Taker) -> None:
        """Give pieces to a function while a coroutine waits for them in `async for`.

        It is called in the loop's thread with text, tokens and scores, in order, and never while the coroutine is
        busy with an earlier piece: many texts then cost no switch of tasks for each. Where it returns False the
        piece is iterated, and where it raises, iterating does. What it took is not part of `text`, `tokens` and
        `scores`.
        """
        self._channel.taker = taker

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
