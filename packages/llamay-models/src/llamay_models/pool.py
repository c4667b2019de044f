"""`ModelPool`: several models by name, loaded when they are used and unloaded when memory or time asks for it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Self

from llamay_models.engine import Progress
from llamay_models.errors import LlamayError, ModelError, PoolFull
from llamay_models.loading import load
from llamay_models.model import Model

Loader = Callable[..., Model]


@dataclass(frozen=True, slots=True)
class Status:
    """What a pool has of a model.

    Attributes:
        name, path: as they were added.
        loaded: whether it is in memory; `loading`, whether it is on its way.
        users: how many use it now.
        nbytes: what its weights take, or by the size of its file will take.
        keep_alive: seconds it stays after its last use; negative for ever.
        expires: `time.monotonic()` seconds at which it will be unloaded; None while it is used, and for never.
        loads, load_seconds: how often it was loaded, and how long that took the last time.

    """

    name: str
    path: Path
    loaded: bool
    loading: bool
    users: int
    nbytes: int
    keep_alive: float
    expires: float | None
    loads: int
    load_seconds: float


@dataclass
class _Entry:
    name: str
    path: Path
    keep_alive: float
    options: dict[str, Any]
    nbytes: int
    model: Model | None = None
    loading: bool = False
    users: int = 0
    used: float = field(default_factory=time.monotonic)
    loads: int = 0
    load_seconds: float = 0.0

    @property
    def idle(self) -> bool:
        return self.model is not None and self.users == 0

    @property
    def expires(self) -> float | None:
        return self.used + self.keep_alive if self.idle and self.keep_alive >= 0 else None


class ModelPool:
    """Models that share a machine's memory. May be used from many threads.

    ```python
    with llamay.ModelPool(budget_bytes=16 << 30) as pool:
        pool.add("small", "small.gguf")
        with pool.use("small") as model:
            print(model.context("Once upon a time").generate(max_tokens=16).text)
    ```

    Args:
        budget_bytes: what the weights of all loaded models may take together; None for no bound.
        max_models: how many may be loaded at a time; None for no bound.
        keep_alive: seconds that a model stays after its last use; negative for ever, 0 not at all.
        before_unload: called with the name and the model before it is closed, to save what hangs on it.
        loader: what loads; gets path, the options of the model, and `progress`.
        options: of `load`, for every model.

    Where there is no room, idle models go, the one unused for longest first. A model that is used is never
    unloaded. Memory of K/V is bounded for each model by its option `kv_budget`.

    """

    def __init__(
        self,
        *,
        budget_bytes: int | None = None,
        max_models: int | None = None,
        keep_alive: float = 300.0,
        before_unload: Callable[[str, Model], None] | None = None,
        loader: Loader = load,
        **options: Any,
    ) -> None:
        self.budget_bytes, self.max_models, self.keep_alive = budget_bytes, max_models, keep_alive
        self._before_unload, self._loader, self._options = before_unload, loader, options
        self._entries: dict[str, _Entry] = {}
        self._changed = threading.Condition()
        self._closed = False
        self._sweeper = threading.Thread(target=self._sweep, name="llamay model pool", daemon=True)
        self._sweeper.start()

    def add(
        self, name: str, path: str | PathLike[str], *, keep_alive: float | None = None, **options: Any
    ) -> None:
        """Make a model known under a name. Nothing is loaded. Raises ValueError for a name that is taken."""
        entry = _Entry(
            name,
            Path(path),
            self.keep_alive if keep_alive is None else keep_alive,
            {**self._options, **options},
            _file_bytes(Path(path)),
        )
        with self._changed:
            if name in self._entries:
                raise ValueError(f"there is a model called {name!r} already")
            self._entries[name] = entry

    def remove(self, name: str) -> None:
        """Unload a model and forget its name. Raises KeyError, or PoolFull while it is used."""
        self.unload(name)
        with self._changed:
            del self._entries[name]

    @contextlib.contextmanager
    def use(
        self, name: str, *, keep_alive: float | None = None, progress: Progress | None = None
    ) -> Iterator[Model]:
        """Give the model of a name, which stays loaded at least for as long as the block runs.

        Several that ask for a model while it loads wait for the one load. `progress` is that of `load`, for
        the one that loads. Raises KeyError for a name that is not known, ModelError, and PoolFull where the
        models in use leave no room.
        """
        entry = self._take(name, progress)
        model = entry.model
        assert model is not None
        try:
            yield model
        finally:
            with self._changed:
                entry.users -= 1
                entry.used = time.monotonic()
                if keep_alive is not None:
                    entry.keep_alive = keep_alive
                self._changed.notify_all()

    def unload(self, name: str) -> bool:
        """Unload a model now; return whether it was loaded. Raises KeyError, or PoolFull while it is used."""
        with self._changed:
            entry = self._entries[name]
            while entry.loading:
                self._changed.wait()
            if entry.users:
                raise PoolFull(f"{name} is in use {entry.users} times and cannot be unloaded now")
            model, entry.model = entry.model, None
            entry.loading = model is not None  # nobody takes it until it is gone
        if model is None:
            return False
        self._close_model(entry, model)
        return True

    def status(self) -> Mapping[str, Status]:
        """What there is, by name."""
        with self._changed:
            return {
                e.name: Status(
                    e.name,
                    e.path,
                    e.model is not None,
                    e.loading,
                    e.users,
                    e.nbytes,
                    e.keep_alive,
                    e.expires,
                    e.loads,
                    e.load_seconds,
                )
                for e in self._entries.values()
            }

    def close(self) -> None:
        """Unload everything, also what is in use: generations that run end as cancelled."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            while any(e.loading for e in self._entries.values()):
                self._changed.wait()
            models = [(e, e.model) for e in self._entries.values() if e.model is not None]
            for entry, _ in models:
                entry.model = None
        for entry, model in models:
            self._close_model(entry, model)
        if threading.current_thread() is not self._sweeper:
            self._sweeper.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- loading

    def _take(self, name: str, progress: Progress | None) -> _Entry:
        """Count one more user of a loaded model, loading it if need be."""
        while True:
            with self._changed:
                if self._closed:
                    raise ModelError("the pool of models is closed")
                if name not in self._entries:
                    known = ", ".join(sorted(self._entries)) or "none"
                    raise KeyError(f"no model is called {name!r}; known are: {known}")
                entry = self._entries[name]
                if entry.loading:
                    self._changed.wait()
                    continue
                if entry.model is not None:
                    entry.users += 1
                    return entry
                victim = self._victim(entry)
                if victim is None:
                    entry.loading = True
                    entry.users += 1
                    break
                model, victim.model = victim.model, None
                victim.loading = True
            assert model is not None
            self._close_model(victim, model)
        began = time.monotonic()
        loaded: Model | None = None
        try:
            loaded = self._loader(entry.path, progress=progress, **entry.options)
        finally:
            with self._changed:
                entry.loading, entry.model = False, loaded
                if loaded is None:
                    entry.users -= 1
                else:
                    entry.nbytes, entry.loads = loaded.nbytes, entry.loads + 1
                    entry.load_seconds = time.monotonic() - began
                self._changed.notify_all()
        self._shrink()
        return entry

    def _shrink(self) -> None:
        """Unload idle models if the one that came is larger than its file said."""
        while True:
            with self._changed:
                present = [e for e in self._entries.values() if e.model is not None]
                idle = [e for e in present if e.idle]
                if (
                    self.budget_bytes is None
                    or not idle
                    or sum(e.nbytes for e in present) <= self.budget_bytes
                ):
                    return
                victim = min(idle, key=lambda e: e.used)
                model, victim.model = victim.model, None
                victim.loading = True
            assert model is not None
            self._close_model(victim, model)

    def _victim(self, wanted: _Entry) -> _Entry | None:
        """Return who has to go before a model can be loaded; None if there is room.

        Raises PoolFull where that cannot be made.
        """
        present = [e for e in self._entries.values() if e.model is not None or e.loading]
        taken = sum(e.nbytes for e in present)
        many = self.max_models is not None and len(present) >= self.max_models
        large = self.budget_bytes is not None and taken + wanted.nbytes > self.budget_bytes
        if not many and not large:
            return None
        if self.budget_bytes is not None and wanted.nbytes > self.budget_bytes:
            raise PoolFull(
                f"{wanted.name} takes {wanted.nbytes} bytes, but all models together may take {self.budget_bytes}"
            )
        idle = [e for e in present if e.idle]
        if not idle:
            names = ", ".join(e.name for e in present)
            raise PoolFull(
                f"there is no room for {wanted.name} beside the models in use: {names}; try again later"
            )
        return min(idle, key=lambda e: e.used)

    def _close_model(self, entry: _Entry, model: Model) -> None:
        try:
            if self._before_unload is not None:
                self._before_unload(entry.name, model)
        finally:
            model.close()
            with self._changed:
                entry.loading = False
                self._changed.notify_all()

    def _sweep(self) -> None:
        while True:
            with self._changed:
                if self._closed:
                    return
                now = time.monotonic()
                times = [(e.expires, e) for e in self._entries.values() if e.expires is not None]
                over = next((e for at, e in times if at is not None and at <= now), None)
                if over is None:
                    soonest = min((at for at, _ in times if at is not None), default=None)
                    self._changed.wait(None if soonest is None else max(0.0, soonest - now))
                    continue
                model, over.model = over.model, None
                over.loading = True
            if model is not None:
                with contextlib.suppress(LlamayError, OSError):
                    self._close_model(over, model)


def _file_bytes(path: Path) -> int:
    """The size of a file, or 0 if it is not there yet: what a model will take until it says so itself."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


__all__ = ["ModelPool", "Status"]
