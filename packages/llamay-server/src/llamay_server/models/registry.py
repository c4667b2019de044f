"""The models that a server offers: found by name, loaded on demand, unloaded when idle.

Loading, room and keep-alive are those of `llamay_models.ModelPool`; here are names, profiles and HTTP's way to wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from llamay_server.config import Config, ConfigError
from llamay_server.engine.protocol import BadPrompt, Loader, Model, ModelInfo, Progress, Times, UnusableModel
from llamay_server.http.call import Call
from llamay_server.http.errors import ApiError, from_load
from llamay_server.models.lora import AdapterScale, adapted, files_of
from llamay_server.observability.metrics import Metrics
from llamay_server.store import Profile, Store, StoreError

if TYPE_CHECKING:
    from llamay_models.pool import Lease, ModelPool, Status

log = logging.getLogger("llamay.server")


@dataclass(slots=True)
class Entry:
    """One model as it is offered; whether it is loaded its pool knows."""

    name: str
    path: Path | None
    pool: ModelPool
    profile: Profile = field(default_factory=Profile)
    stored: bool = False
    """Whether its file and all that it adds are those of its name in the store."""

    @property
    def model(self) -> Model | None:
        """The model itself, while it is loaded."""
        return cast("Model | None", self.pool.peek(self.name))

    @property
    def info(self) -> ModelInfo | None:
        """What is known of the model while it is loaded. It may be unloaded at any time: read this once."""
        model = self.model
        return None if model is None else model.info

    @property
    def status(self) -> Status:
        """What the pool has of it."""
        return self.pool.about(self.name)

    @property
    def nbytes(self) -> int:
        """What its weights take, by the size of its file; 0 where that is not known."""
        try:
            return 0 if self.path is None else self.path.stat().st_size
        except OSError:
            return 0

    @property
    def modified(self) -> float:
        """When its file was last changed, in epoch seconds; 0 where that is not known."""
        try:
            return 0.0 if self.path is None else self.path.stat().st_mtime
        except OSError:
            return 0.0

    @property
    def expires(self) -> float | None:
        """When it will be unloaded if nobody uses it from now on, in epoch seconds; None for never."""
        status = self.status
        if status.pinned or status.keep_alive < 0:
            return None
        at = time.monotonic() + status.keep_alive if status.expires is None else status.expires
        return time.time() + at - time.monotonic()

    def keep(self, seconds: float) -> None:
        """Say how long it stays after its last use, this time."""
        self.pool.keep(self.name, seconds)


def _named(text: str) -> tuple[str, str]:
    """Name and path of `NAME=PATH`; no name of a path alone."""
    name, equals, path = text.partition("=")
    return (name, path) if equals else ("", text)


def _template(path: str) -> str:
    try:
        return Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise ConfigError(f"chat_template_file {path}: {e}") from None


class Models:
    """All entries by name; the first one is the default."""

    def __init__(
        self, config: Config, metrics: Metrics, loader: Loader | None, store: Store | None = None
    ) -> None:
        from llamay_models.pool import ModelPool

        self.config, self.metrics, self.loader, self.store = config, metrics, loader, store
        self.entries: dict[str, Entry] = {}
        self.before_unload: list[Callable[[str], None]] = []
        self.starting = False
        """Whether the server has begun to listen and not yet loaded its default model."""
        self.pool = ModelPool(
            budget_bytes=config.model_mem_budget or None,
            max_models=config.max_loaded_models or None,
            keep_alive=config.keep_alive,
            before_unload=lambda name, _: self._tell(name),
            loader=self._read,
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
        """The entry of a name as clients write it. Raises 404."""
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
        self, name: str | None, call: Call | None = None, lora: Sequence[AdapterScale] | None = None
    ) -> AsyncIterator[tuple[Entry, Model]]:
        """The loaded model of a name, in the scales of its adapters that are wanted, for as long as the block runs."""
        entry = self.find(name)
        self._loop = asyncio.get_running_loop()
        lease = self.pool.lease(entry.name)
        try:
            if call is not None:
                call.model = entry.name
            yield entry, await adapted(await self._ready(entry, lease, call), lora)
        finally:
            lease.release()

    async def _ready(self, entry: Entry, lease: Lease, call: Call | None) -> Model:
        if lease.model is None:
            from llamay_models.errors import PoolFull

            if call is not None:
                call.phase = "load"
            try:
                await asyncio.wrap_future(lease.ready)
            except PoolFull as e:
                if e.passing:
                    raise ApiError("unavailable", f"{e}.") from e
                raise ApiError("storage", f"{e}.", param="model", code="out_of_memory", retry=False) from e
            except Exception as e:
                raise from_load(e, entry.name, self._files(entry)) from e
        return cast("Model", lease.model)

    def hold(self, name: str) -> Lease:
        """Keep a loaded model loaded until this is released."""
        return self.pool.lease(name)

    def _read(self, path: Path, *, progress: Progress, entry: Entry) -> Any:
        """Load a model, in a thread of the pool."""
        if self.loader is None or entry.path is None:
            raise ApiError("internal", f"model {entry.name} cannot be loaded: it has no file")
        try:
            model = self.loader(path, progress=progress, **self._beside(entry))
        except Exception as e:
            log.warning("model %s could not be loaded: %s", entry.name, e)
            raise
        if entry.profile.template is not None:
            try:
                model.use_template(entry.profile.template)
            except BaseException as e:
                model.close()
                if isinstance(e, BadPrompt):
                    raise UnusableModel(str(e)) from e
                raise
        return model

    def _files(self, entry: Entry) -> list[Path]:
        """The model's file, and those of what is loaded beside it."""
        try:
            beside = self._beside(entry)
        except UnusableModel:
            beside = {}
        adapters = [path for path, _ in beside.get("adapters", ())]
        return [entry.path or Path(), *([beside["draft"]] if "draft" in beside else []), *adapters]

    def _beside(self, entry: Entry) -> dict[str, Any]:
        """What is loaded beside a model: one that guesses for it, and adapters."""
        first = entry is next(iter(self.entries.values()))
        found: dict[str, Any] = {}
        for name, path in map(_named, self.config.drafts):
            if entry.name == name if name else first:
                found["draft"] = Path(path)
        texts = [
            path for name, path in map(_named, self.config.lora) if (entry.name == name if name else first)
        ]
        try:
            own = self.store.adapters(entry.name) if self.store and entry.stored else ()
        except StoreError as e:
            raise UnusableModel(str(e)) from e
        if own or texts:
            found["adapters"] = [*((path, 1.0) for path in own), *files_of(texts)]
        return found

    def _tell(self, name: str) -> None:
        """Let go of what hangs on a model, which is about to be closed: in the loop's thread, as all that does."""
        loop = self._loop
        if loop is None or not loop.is_running():
            return self._let_go(name)
        done = threading.Event()

        def let_go() -> None:
            try:
                self._let_go(name)
            finally:
                done.set()

        loop.call_soon_threadsafe(let_go)
        while not done.wait(0.1) and loop.is_running():
            pass
        return None

    def _let_go(self, name: str) -> None:
        for tell in self.before_unload:
            tell(name)

    async def unload(self, entry: Entry) -> bool:
        """Give the memory back, unless it is in use; the next use loads it again. Returns whether it is gone."""
        from llamay_models.errors import PoolFull

        self._loop = asyncio.get_running_loop()
        try:
            await asyncio.to_thread(self.pool.unload, entry.name)
        except PoolFull:
            return False
        return True

    async def drop(self, entry: Entry) -> bool:
        """Offer a model no more, unless it is in use. Returns whether it is gone."""
        if entry.status.users or not await self.unload(entry) or entry.status.users:
            return False
        self.pool.remove(entry.name)
        self.entries.pop(entry.name, None)
        return True

    async def forget(self, name: str) -> None:
        """Let go of what a name of the store meant, which is about to change. Raises a 409 while it is in use."""
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
        """Each loaded engine's own numbers."""
        loaded = [(name, entry.model) for name, entry in list(self.entries.items())]
        return {name: model.stats() for name, model in loaded if model is not None}

    def times(self) -> Mapping[str, Mapping[str, Times]]:
        """How each loaded engine's times are distributed."""
        loaded = [(name, entry.model) for name, entry in list(self.entries.items())]
        return {name: model.times() for name, model in loaded if model is not None}

    async def close(self) -> None:
        """Unload all."""
        await asyncio.to_thread(self.pool.close)
