"""Pulls in progress, each with its followers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Any

from llamay_server.engine.blocking import AbandonedError
from llamay_server.http.errors import ApiError
from llamay_server.store import StoreError

if TYPE_CHECKING:
    from llamay_server.store import Store


class Pulls:
    """Pulls in progress, by name: clients that want the same model share one download."""

    def __init__(self) -> None:
        self._running: dict[str, tuple[asyncio.Task[None], list[asyncio.Queue[Any]]]] = {}

    async def follow(
        self, store: Store, name: str, insecure: bool
    ) -> AsyncGenerator[Mapping[str, Any], None]:
        """Yield the status lines of a pull, which is begun or joined; it ends when the last of its followers leaves."""
        queue: asyncio.Queue[Any] = asyncio.Queue()
        running = self._running.get(name)
        if running is None:
            followers = [queue]
            task = asyncio.ensure_future(self._pull(store, name, insecure, followers))
            self._running[name] = (task, followers)
        else:
            running[1].append(queue)
            followers = running[1]
        try:
            while (item := await queue.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            followers.remove(queue)

    async def _pull(
        self, store: Store, name: str, insecure: bool, followers: list[asyncio.Queue[Any]]
    ) -> None:
        loop = asyncio.get_running_loop()

        def tell(item: Any) -> None:
            for queue in followers:
                queue.put_nowait(item)

        def status(line: Mapping[str, Any]) -> None:
            if not followers:
                raise AbandonedError
            loop.call_soon_threadsafe(tell, dict(line))

        try:
            await asyncio.to_thread(lambda: store.pull(name, insecure=insecure, status=status))
            tell(None)
        except StoreError as e:
            tell(ApiError("not_found" if e.missing else "invalid", str(e)))
        except AbandonedError:
            pass
        except Exception as e:
            tell(e)
        finally:
            self._running.pop(name, None)
