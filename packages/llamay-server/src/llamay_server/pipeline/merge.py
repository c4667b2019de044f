"""Several streams of events as one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import TypeVar

T = TypeVar("T")


async def merged(sources: Sequence[AsyncGenerator[T, None]]) -> AsyncGenerator[T, None]:
    """Yield the items of all sources as they come.

    An exception of a source is raised here. All sources are closed in any case.
    """
    queue: asyncio.Queue[tuple[T] | BaseException | None] = asyncio.Queue()

    async def pump(source: AsyncGenerator[T, None]) -> None:
        try:
            async with contextlib.aclosing(source) as items:
                async for item in items:
                    queue.put_nowait((item,))
        except Exception as e:
            queue.put_nowait(e)
        queue.put_nowait(None)

    tasks = [asyncio.ensure_future(pump(source)) for source in sources]
    try:
        left = len(tasks)
        while left:
            found = await queue.get()
            if isinstance(found, BaseException):
                raise found
            if found is None:
                left -= 1
            else:
                yield found[0]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
