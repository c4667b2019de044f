"""Blocking work of an engine, run in threads, and cancelled when its client has left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from llamay_server.engine.protocol import Context, Progress

T = TypeVar("T")


class AbandonedError(Exception):
    """Raised out of a progress callback to stop work whose client has left."""


async def in_thread(work: Callable[[Progress], T]) -> T:
    """Run `work(progress)` in a thread. On cancellation its progress callback raises, which frees its memory.

    A result that the work returns after its cancellation is closed.
    """
    stopped = False

    def progress(*_: Any) -> None:
        if stopped:
            raise AbandonedError

    future = asyncio.ensure_future(asyncio.to_thread(work, progress))
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        stopped = True

        def clean(ended: asyncio.Future[T]) -> None:
            if not ended.cancelled() and ended.exception() is None:
                result = ended.result()
                for item in result if isinstance(result, list) else [result]:
                    if hasattr(item, "close"):
                        release(item)

        future.add_done_callback(clean)
        raise


async def in_thread_watched(
    work: Callable[[Progress], T], result: list[T]
) -> AsyncGenerator[tuple[int, int], None]:
    """Do as `in_thread`, and yield each report (done, total) of progress; the work's result is appended to `result`."""
    loop = asyncio.get_running_loop()
    reports: asyncio.Queue[tuple[int, int] | None] = asyncio.Queue()

    def watched(check: Progress) -> T:
        def progress(stage: str, done: int, total: int) -> None:
            check(stage, done, total)
            loop.call_soon_threadsafe(reports.put_nowait, (done, total))

        return work(progress)

    task = asyncio.ensure_future(in_thread(watched))
    task.add_done_callback(lambda _: reports.put_nowait(None))
    try:
        while (report := await reports.get()) is not None:
            yield report
        result.append(await task)
    finally:
        task.cancel()


def release(context: Context | Any) -> None:
    """Close a context off the event loop: closing one whose generation was just cancelled waits for a step to end."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        context.close()
        return
    loop.run_in_executor(None, context.close)
