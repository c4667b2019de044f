"""`Channel`: the way of a generation's pieces from the engine's thread to the caller."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from llamay_models.engine.failures import described
from llamay_models.engine.requests.results import FinishReason, TokenScore
from llamay_models.errors import ContextError, LlamayError

if TYPE_CHECKING:
    import asyncio

Item = tuple[str, tuple[int, ...], tuple[TokenScore, ...]] | int
"""An item of a channel: the parts of a piece, or, during prefill, the number of prompt tokens that were computed."""
PieceConsumer = Callable[[str, tuple[int, ...], tuple[TokenScore, ...]], bool]
"""Takes the text, tokens and scores of a piece, or returns False to leave it to the iteration."""


class Channel:
    """A queue of items from the engine's thread to a thread, or to a coroutine of any event loop."""

    def __init__(self) -> None:
        self.finished = threading.Event()
        self.finish_reason: FinishReason | None = None
        self.stop_sequence: str | None = None
        self.error: LlamayError | None = None
        self.prompt_tokens = self.cached_tokens = self.completion_tokens = 0
        self.submitted = time.perf_counter()
        self.started = self.first = self.last = 0.0
        self.cancelled = False
        self.consumer: PieceConsumer | None = None
        self.engine_thread: int | None = None  # its identifier, once the engine has the sequence
        self._awaited = False
        self._undelivered: Item | None = None
        self._items: queue.SimpleQueue[Item | None] = queue.SimpleQueue()
        self._waiting: tuple[asyncio.AbstractEventLoop, asyncio.Future[None]] | None = None

    def put(self, item: Item) -> None:
        """Append an item. Called on the engine's thread."""
        self._items.put(item)
        if self._waiting is not None:
            self._wake()

    def finish(self, reason: FinishReason, error: LlamayError | None = None) -> None:
        """End the items. Only the first call counts."""
        if self.finish_reason is None:
            self.finish_reason, self.error = reason, error
            self._items.put(None)
            self.finished.set()
            if self._waiting is not None:
                self._wake()

    def get(self) -> Item | None:
        """Return the next item, or None at the end. Blocks. Raises ContextError on the engine's own thread."""
        self.check_thread()
        item = self._items.get()
        if item is None:
            self._items.put(None)  # a later call gets the same answer
        return item

    def check_thread(self) -> None:
        """Raise ContextError on the engine's own thread while it has yet to finish this."""
        if self.engine_thread == threading.get_ident() and not self.finished.is_set():
            raise ContextError(
                "the engine's own thread, on which constraints run, cannot wait for a generation"
            )

    async def aget(self) -> Item | None:
        """Return the next item, or None at the end. Raises ContextError while another coroutine waits for it."""
        if self._awaited:
            raise ContextError("another coroutine reads this generation already; give each text one reader")
        self._awaited = True
        try:
            return await self._next()
        finally:
            self._awaited = False

    async def _next(self) -> Item | None:
        import asyncio  # the caller has imported it already; other programs start faster without it

        loop = asyncio.get_running_loop()
        while True:
            if (left := self._undelivered) is not None:
                self._undelivered = None
                return left
            # Registered before the queue is looked at, so that no item is missed in between.
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

    def deliver(self, future: asyncio.Future[None]) -> None:
        """Give the new items to the consumer, and those that it leaves to the waiting coroutine.

        Called on the thread of the event loop.
        """
        if future.done():
            return
        if (consumer := self.consumer) is not None:
            self._waiting = (future.get_loop(), future)  # as in `aget`
            try:
                while (item := self._items.get_nowait()) is not None:
                    if not isinstance(item, int) and not consumer(*item):
                        self._undelivered = item
                        break
                else:
                    self._items.put(None)
            except queue.Empty:
                return
            except BaseException as error:
                self._waiting = None
                future.set_exception(_settable(error))
                return
            self._waiting = None
        future.set_result(None)

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is None:
            return
        loop, future = waiting
        held: HeldWakes | None = getattr(_thread, "held", None)
        if held is None:
            _call_loop(loop, [(self, future)])
        else:
            held.setdefault(loop, []).append((self, future))


_thread = threading.local()
_Arrivals: TypeAlias = "list[tuple[Channel, asyncio.Future[None]]]"
HeldWakes: TypeAlias = "dict[asyncio.AbstractEventLoop, _Arrivals]"
"""The waiting coroutines that are to be woken, by event loop."""


def hold_wakes() -> HeldWakes:
    """Gather the coroutines that this thread wakes from now on: one call into an event loop for a whole step.

    Each call costs a write to a socket, and hands the interpreter to the loop's thread in the middle of the step.
    Returns the collection, for `wake_held`.
    """
    held: HeldWakes = {}
    _thread.held = held
    return held


def wake_held(held: HeldWakes) -> None:
    """Wake all gathered coroutines."""
    while held:
        _call_loop(*held.popitem())


def _settable(error: BaseException) -> Exception:
    """Return what a consumer raised as an error that a future takes, and that ends no event loop."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    ours = LlamayError(f"the consumer of a generation raised {described(error)}")
    ours.__cause__ = error
    return ours


def _call_loop(loop: asyncio.AbstractEventLoop, arrivals: _Arrivals) -> None:
    # A closed event loop has no waiting coroutines any more.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(_deliver_all, arrivals)


def _deliver_all(arrivals: _Arrivals) -> None:
    for channel, future in arrivals:
        channel.deliver(future)
