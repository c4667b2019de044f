"""The models that a server offers: found by name, loaded on demand, unloaded when idle."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ._call import Call
from ._config import Config, ConfigError
from ._errors import ApiError, from_load
from ._http import Abandoned
from ._lora import AdapterScale, adapted, files_of
from ._metrics import Metrics
from ._protocol import BadPrompt, Loader, Model, Times, UnusableModel
from ._store import Profile, Store

log = logging.getLogger("llamay.server")


@dataclass(slots=True)
class Entry:
    """One model: its file, and itself while it is loaded."""

    name: str
    path: Path | None
    profile: Profile = field(default_factory=Profile)
    stored: bool = False
    """Whether its file and all that it adds are those of its name in the store."""
    model: Model | None = None
    loading: asyncio.Task[Model] | None = None
    turn: int = 0
    """Which load of the server this is."""
    waiters: int = 0
    users: int = 0
    keep_alive: float = -1.0
    last_used: float = field(default_factory=time.monotonic)
    last_used_wall: float = field(default_factory=time.time)
    loaded_at: float = 0.0
    pinned: bool = False
    """Handed in ready made: there is no file to load it from again, so it is never unloaded."""

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
        """When it will be unloaded, in epoch seconds; None for never."""
        return None if self.keep_alive < 0 or self.pinned else self.last_used_wall + self.keep_alive


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
        self.config, self.metrics, self.loader, self.store = config, metrics, loader, store
        self.entries: dict[str, Entry] = {}
        self.holders: dict[str, int] = {}
        self._turn = 0
        self.before_unload: list[Callable[[str], None]] = []
        self.starting = False
        """Whether the server has begun to listen and not yet loaded its default model."""

    def add(self, item: Model | str | Path) -> Entry:
        """Offer a loaded model, a path, or `NAME=PATH`."""
        if isinstance(item, str | Path):
            name, eq, path = str(item).partition("=")
            file = Path(path if eq else str(item))
            entry = Entry(
                name if eq else file.name.removesuffix(".gguf"), file, keep_alive=self.config.keep_alive
            )
            if self.config.chat_template_file:
                entry.profile = Profile(template=_template(self.config.chat_template_file))
            elif self.store and self.store.find(entry.name) == file:
                entry.profile = self.store.profile(entry.name) or Profile()
                entry.stored = True
        else:
            info = item.info
            entry = Entry(info.name, info.path, model=item, keep_alive=self.config.keep_alive, pinned=True)
            self.metrics.models_loaded.inc()
        if entry.name in self.entries:
            raise ValueError(f"two models are called {entry.name!r}; name one with NAME=PATH")
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
            entry = Entry(name, path, keep_alive=self.config.keep_alive)
            entry.profile = self.store.profile(name) or Profile()
            entry.stored = True
            self.entries[name] = entry
            return entry
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
        entry.users += 1
        try:
            if call is not None:
                call.model = entry.name
            yield entry, await adapted(await self._loaded(entry, call), lora)
        finally:
            entry.users -= 1
            entry.last_used, entry.last_used_wall = time.monotonic(), time.time()

    async def _loaded(self, entry: Entry, call: Call | None) -> Model:
        if entry.model is not None:
            return entry.model
        if call is not None:
            call.phase = "load"
        if entry.loading is None:
            # Set before anything is waited for: whoever asks meanwhile waits for the same load.
            self._turn += 1
            entry.turn = self._turn
            entry.loading = asyncio.ensure_future(self._load(entry))
        entry.waiters += 1
        try:
            return await asyncio.shield(entry.loading)
        finally:
            entry.waiters -= 1

    async def _load(self, entry: Entry) -> Model:
        loader, path = self.loader, entry.path
        if loader is None or path is None:
            raise ApiError("internal", f"model {entry.name} cannot be loaded: it has no file")

        def progress(stage: str, done: int, total: int) -> None:
            if entry.waiters == 0:
                raise Abandoned

        try:
            await self._make_room(entry)
            more = self._beside(entry)
            model = await asyncio.to_thread(lambda: loader(path, progress=progress, **more))
            if entry.profile.template is not None:
                try:
                    model.use_template(entry.profile.template)
                except BadPrompt as e:
                    model.close()
                    raise UnusableModel(str(e)) from e
                except BaseException:
                    model.close()
                    raise
        except Abandoned:
            raise ApiError("unavailable", f"Loading {entry.name} was given up.") from None
        except Exception as e:
            error = from_load(e, entry.name, path)
            log.warning("model %s could not be loaded: %s", entry.name, e)
            raise error from e
        finally:
            entry.loading = None
        entry.model, entry.loaded_at = model, time.monotonic()
        self.metrics.models_loaded.inc()
        return model

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
        own = self.store.adapters(entry.name) if self.store and entry.stored else ()
        if own or texts:
            found["adapters"] = [*((path, 1.0) for path in own), *files_of(texts)]
        return found

    async def _make_room(self, wanted: Entry) -> None:
        """Unload idle models, the one unused for longest first, until there is room. Raises a 503 if there is not."""
        limit, budget = self.config.max_loaded_models, self.config.model_mem_budget
        while True:
            # Of those that load, the ones that were asked for earlier: two must not refuse each other.
            others = [
                e
                for e in self.entries.values()
                if e is not wanted and (e.model or (e.loading and e.turn < wanted.turn))
            ]
            many = limit > 0 and len(others) >= limit
            large = budget > 0 and sum(e.nbytes for e in others) + wanted.nbytes > budget
            if not many and not large:
                return
            if budget > 0 and wanted.nbytes > budget:
                raise ApiError(
                    "storage",
                    f"{wanted.name} takes {wanted.nbytes} bytes, but all models together may take {budget}.",
                    param="model",
                    code="out_of_memory",
                    retry=False,
                )
            idle = [e for e in others if e.model is not None and not self.busy(e) and not e.pinned]
            if not idle:
                why = f"All {limit} places for models" if many else f"The {budget} bytes for models"
                raise ApiError("unavailable", f"{why} are in use; {wanted.name} cannot be loaded now.")
            await self.unload(min(idle, key=lambda e: e.last_used))

    def busy(self, entry: Entry) -> bool:
        """Whether requests or named contexts hold it."""
        return entry.users > 0 or self.holders.get(entry.name, 0) > 0

    async def unload(self, entry: Entry) -> None:
        """Give the memory back; the next use loads it again."""
        model, entry.model = entry.model, None
        entry.keep_alive = self.config.keep_alive  # what a request asked for was for this time
        if model is not None:
            for tell in self.before_unload:
                tell(entry.name)
            self.metrics.models_loaded.dec()
            await asyncio.to_thread(model.close)

    async def forget(self, name: str) -> None:
        """Let go of what a name of the store meant, which is about to change. Raises a 409 while it is in use."""
        for known in {name, name.removesuffix(":latest"), f"{name}:latest"}:
            entry = self.entries.get(known)
            if entry is None or (entry.path is not None and self.store and self.store.find(known) is None):
                continue
            if entry.pinned or entry.loading is not None or self.busy(entry):
                raise ApiError("conflict", f"model '{known[:200]}' is in use; try again when it is idle")
            await self.unload(entry)
            self.entries.pop(known, None)

    async def sweep(self) -> None:
        """Unload what has been idle for its time."""
        now = time.monotonic()
        for entry in list(self.entries.values()):
            idle = entry.model is not None and not self.busy(entry) and not entry.pinned
            if idle and entry.keep_alive >= 0 and now - entry.last_used >= entry.keep_alive:
                await self.unload(entry)

    async def preload(self) -> None:
        """Load the default model, so that the first request does not wait."""
        for entry in list(self.entries.values())[:1]:
            if entry.model is None:
                async with self.use(entry.name):
                    pass

    def stats(self) -> Mapping[str, Mapping[str, float]]:
        """Each loaded engine's own numbers."""
        return {name: entry.model.stats() for name, entry in self.entries.items() if entry.model is not None}

    def times(self) -> Mapping[str, Mapping[str, Times]]:
        """How each loaded engine's times are distributed."""
        return {name: entry.model.times() for name, entry in self.entries.items() if entry.model is not None}

    async def close(self) -> None:
        """Unload all."""
        for entry in self.entries.values():
            if entry.loading is not None:
                with contextlib.suppress(BaseException):
                    await entry.loading
            await self.unload(entry)
