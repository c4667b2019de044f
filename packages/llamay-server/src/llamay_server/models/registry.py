"""The models that a server offers: found by name, loaded on demand, unloaded when idle.

`llamay_models.ModelPool` does the loading, and has the memory budget and keep-alive. The registry adds names, profiles,
draft models and adapters, and waiting in an event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from llamay_server.config import Config, ConfigError
from llamay_server.http.errors import ApiError
from llamay_server.http.refusals import from_load
from llamay_server.models.entry import Entry
from llamay_server.models.lora import AdapterScale, adapted, adapter_files
from llamay_server.store import Profile, Store, StoreError

if TYPE_CHECKING:
    from llamay_models.pool import Lease
    from llamay_server.engine.protocol import DurationHistogram, Loader, Model, Progress
    from llamay_server.http.exchange import Exchange
    from llamay_server.observability.metrics import Metrics

log = logging.getLogger("llamay.server")


def _named(text: str) -> tuple[str, str]:
    """Return the name and the path of `NAME=PATH`; the name is empty for a path alone."""
    name, equals, path = text.partition("=")
    return (name, path) if equals else ("", text)


def _template(path: str) -> str:
    try:
        return Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise ConfigError(f"chat_template_file {path}: {e}") from None


class Models:
    """The models of a server by name; the first one is the default."""

    def __init__(
        self, config: Config, metrics: Metrics, loader: Loader | None, store: Store | None = None
    ) -> None:
        from llamay_models.pool import ModelPool

        self.config, self.metrics, self.loader, self.store = config, metrics, loader, store
        self.entries: dict[str, Entry] = {}
        self.before_unload: list[Callable[[str], None]] = []
        self.starting = False
        """Whether the server listens already, but has not loaded its default model yet."""
        self.pool = ModelPool(
            budget_bytes=config.model_mem_budget or None,
            max_models=config.max_loaded_models or None,
            keep_alive=config.keep_alive,
            before_unload=lambda name, _: self._before_unload(name),
            loader=self._load,
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        metrics.models_loaded.set_function(lambda: sum(s.loaded for s in self.pool.status().values()))

    def add(self, item: Model | str | Path) -> Entry:
        """Offer a loaded model, a path, or `NAME=PATH`."""
        if isinstance(item, str | Path):
            name, eq, path = str(item).partition("=")
            file = Path(path if eq else str(item))
            name = name if eq else file.name.removesuffix(".gguf")
            entry = Entry(name, file, self.pool)
            if self.config.chat_template_file:
                entry.profile = Profile(template=_template(self.config.chat_template_file))
            elif self.store and self.store.find(name) == file:
                entry.profile = self.store.profile(name) or Profile()
                entry.stored = True
            return self._enter(entry)
        return self._enter(Entry(item.info.name, item.info.path, self.pool), item)

    def _enter(self, entry: Entry, model: Model | None = None) -> Entry:
        if entry.name in self.entries:
            raise ValueError(f"two models are called {entry.name!r}; name one with NAME=PATH")
        ready: Any = model
        self.pool.add(entry.name, entry.path or "", model=ready, entry=entry)
        self.entries[entry.name] = entry
        return entry

    def find(self, name: str | None) -> Entry:
        """Return the entry of a name as clients write it. Raises 404."""
        if not self.entries and not (self.store and name):
            raise ApiError("not_found", "No model is served here.", param="model", code="model_not_found")
        if not name or (self.config.single_model and name not in self.entries):
            return next(iter(self.entries.values()))
        for candidate in (name, name.removesuffix(":latest"), name + ":latest"):
            if entry := self.entries.get(candidate):
                return entry
        if self.store and (path := self.store.find(name)):
            profile = self.store.profile(name) or Profile()
            return self._enter(Entry(name, path, self.pool, profile, stored=True))
        known = ", ".join(list(self.entries)[:8])
        raise ApiError(
            "not_found",
            f"model '{name[:200]}' not found; this server has: {known}",
            param="model",
            code="model_not_found",
        )

    @contextlib.asynccontextmanager
    async def use(
        self, name: str | None, exchange: Exchange | None = None, lora: Sequence[AdapterScale] | None = None
    ) -> AsyncIterator[tuple[Entry, Model]]:
        """Yield the loaded model of a name, with the adapter scales of `lora`; it stays loaded while the block runs."""
        entry = self.find(name)
        self._loop = asyncio.get_running_loop()
        lease = self.pool.lease(entry.name)
        try:
            if exchange is not None:
                exchange.model = entry.name
            yield entry, await adapted(await self._ready(entry, lease, exchange), lora)
        finally:
            lease.release()

    async def frames(
        self,
        name: str | None,
        exchange: Exchange,
        make: Callable[[Entry, Model], AsyncGenerator[bytes, None]],
        lora: Sequence[AdapterScale] | None = None,
    ) -> AsyncGenerator[bytes, None]:
        """Yield the frames of `make` with the model of a name, which stays loaded while they come; see `use`."""
        async with (
            self.use(name, exchange, lora) as (entry, model),
            contextlib.aclosing(make(entry, model)) as frames,
        ):
            async for frame in frames:
                yield frame

    async def _ready(self, entry: Entry, lease: Lease, exchange: Exchange | None) -> Model:
        if lease.model is None:
            from llamay_models.errors import PoolFullError

            if exchange is not None:
                exchange.phase = "load"
            try:
                await asyncio.wrap_future(lease.ready)
            except PoolFullError as e:
                if e.passing:
                    raise ApiError("unavailable", f"{e}.") from e
                raise ApiError("storage", f"{e}.", param="model", code="out_of_memory", retry=False) from e
            except Exception as e:
                raise from_load(e, entry.name, self._files(entry)) from e
        return cast("Model", lease.model)

    def hold(self, name: str) -> Lease:
        """Return a lease that keeps a loaded model loaded until it is released."""
        return self.pool.lease(name)

    def _load(self, path: Path, *, progress: Progress, entry: Entry) -> Any:
        """Load a model, in a thread of the pool."""
        if self.loader is None or entry.path is None:
            raise ApiError("internal", f"model {entry.name} cannot be loaded: it has no file")
        try:
            model = self.loader(path, progress=progress, **self._beside(entry))
        except Exception as e:
            log.warning("model %s could not be loaded: %s", entry.name, e)
            raise
        model.use_name(entry.name)
        if entry.profile.template is not None:
            try:
                model.use_template(entry.profile.template)
            except BaseException:
                model.close()
                raise
        return model

    def _files(self, entry: Entry) -> list[Path]:
        """Return the model's file, and those that are loaded beside it."""
        from llamay_models.errors import ModelError

        try:
            beside = self._beside(entry)
        except ModelError:
            beside = {}
        adapters = [path for path, _ in beside.get("adapters", ())]
        return [entry.path or Path(), *([beside["draft"]] if "draft" in beside else []), *adapters]

    def _beside(self, entry: Entry) -> dict[str, Any]:
        """Return the files loaded beside a model, as arguments of the loader: its draft model and its LoRA adapters."""
        from llamay_models.errors import ModelError

        first = entry is next(iter(self.entries.values()))
        found: dict[str, Any] = {}
        for name, path in map(_named, self.config.drafts):
            if entry.name == name if name else first:
                found["draft"] = Path(path)
        settings = [
            path for name, path in map(_named, self.config.lora) if (entry.name == name if name else first)
        ]
        try:
            own = self.store.adapters(entry.name) if self.store and entry.stored else ()
        except StoreError as e:
            raise ModelError(str(e)) from e
        if own or settings:
            found["adapters"] = [*((path, 1.0) for path in own), *adapter_files(settings)]
        return found

    def _before_unload(self, name: str) -> None:
        """Call the listeners for a model that is about to be closed, in the thread of the event loop."""
        loop = self._loop
        if loop is None or not loop.is_running():
            return self._tell(name)
        done = threading.Event()

        def tell() -> None:
            try:
                self._tell(name)
            finally:
                done.set()

        loop.call_soon_threadsafe(tell)
        while not done.wait(0.1) and loop.is_running():
            pass
        return None

    def _tell(self, name: str) -> None:
        for listener in self.before_unload:
            listener(name)

    async def unload(self, entry: Entry) -> bool:
        """Unload a model, unless it is in use; its next use loads it again. Returns whether it was unloaded."""
        from llamay_models.errors import PoolFullError

        self._loop = asyncio.get_running_loop()
        try:
            await asyncio.to_thread(self.pool.unload, entry.name)
        except PoolFullError:
            return False
        return True

    async def drop(self, entry: Entry) -> bool:
        """Stop offering a model, unless it is in use. Returns whether that was done."""
        if entry.status.users or not await self.unload(entry) or entry.status.users:
            return False
        self.pool.remove(entry.name)
        self.entries.pop(entry.name, None)
        return True

    async def forget(self, name: str) -> None:
        """Stop offering a name whose files in the store are about to change. Raises a 409 while the model is in use."""
        for known in {name, name.removesuffix(":latest"), f"{name}:latest"}:
            entry = self.entries.get(known)
            if entry is None or (entry.path is not None and self.store and self.store.find(known) is None):
                continue
            if not await self.drop(entry):
                raise ApiError("conflict", f"model '{known[:200]}' is in use; try again when it is idle")

    async def preload(self) -> None:
        """Load the default model, so that the first request does not wait."""
        for entry in list(self.entries.values())[:1]:
            if entry.model is None:
                async with self.use(entry.name):
                    pass

    def stats(self) -> Mapping[str, Mapping[str, float]]:
        """Return the counters and gauges of each loaded engine, by model."""
        loaded = [(name, entry.model) for name, entry in list(self.entries.items())]
        return {name: model.stats() for name, model in loaded if model is not None}

    def durations(self) -> Mapping[str, Mapping[str, DurationHistogram]]:
        """Return the histograms of durations of each loaded engine, by model."""
        loaded = [(name, entry.model) for name, entry in list(self.entries.items())]
        return {name: model.durations() for name, model in loaded if model is not None}

    async def close(self) -> None:
        """Unload all."""
        await asyncio.to_thread(self.pool.close)
