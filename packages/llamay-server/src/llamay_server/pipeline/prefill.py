"""Prefill ahead of generations: contexts for several choices, and its progress."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, TypeVar

from llamay_server.engine.blocking import in_thread_watched
from llamay_server.pipeline.events import PrefillProgress

if TYPE_CHECKING:
    from llamay_server.engine.protocol import Context, Progress

T = TypeVar("T")


def prefill_tenant(tenant: str, *, reuse: bool) -> str:
    """Return the tenant of a prefill; without `reuse`, a new tenant whose prefix cache is empty."""
    return tenant if reuse else f"{tenant}\x00{secrets.token_hex(16)}"


def forks(context: Context, n: int) -> list[Context]:
    """Return `n` forks, each of which continues exactly as the context would.

    They are forked one by one: the engine gives each of several forks made at once a random stream of its own, but the
    choices of a request already have different seeds.
    """
    return [context.fork() for _ in range(n)]


async def watched_prefill(
    work: Callable[[Progress], T], made: list[T], total: int, *, held: int = 0, index: int = 0
) -> AsyncGenerator[PrefillProgress, None]:
    """Run a prefill off the event loop and yield its progress.

    Args:
        work: the blocking prefill.
        made: the prefill's result is appended to it.
        total: tokens of the prompt.
        held: how many of these tokens were computed before.
        index: the choice in the events of progress.

    """
    began = time.monotonic()
    cached, told = -1, -1
    async with contextlib.aclosing(in_thread_watched(work, made)) as reports:
        async for done, _ in reports:
            if cached < 0:
                cached = held + done
            if held + done > told:
                told = held + done
                seconds = time.monotonic() - began if told > cached else 0.0
                yield PrefillProgress(index, total, cached, told, seconds)
