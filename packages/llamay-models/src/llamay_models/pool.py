"""`ModelPool`: several models by name, loaded when they are used and unloaded when memory or time asks for it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Self

from llamay_models.errors import LlamayError, ModelError, PoolFullError
from llamay_models.loading import load
from llamay_models.model import Model
from llamay_models.progress import Progress

Loader = Callable[..., Model]


@dataclass(frozen=True, slots=True)
class Status:
    """The status of a model in a pool.

    Attributes:
        name, path: as they were added.
        loaded: whether the model is in memory.
        loading: whether it is being loaded.
        pinned: whether it was added ready made, and so is never unloaded.
        users: the number of leases.
        nbytes: the bytes of its weights; before it is loaded, of its file.
        keep_alive: seconds that it stays after its last use; negative for ever.
        expires: `time.monotonic()` seconds at which it will be unloaded; None while it is used, and for never.
        loads, load_seconds: how often it was loaded, and the seconds of the last load.
        loaded_at: `time.monotonic()` seconds of the last load; 0 for never.

    """

    name: str
    path: Path
    loaded: bool
    loading: bool
    pinned: bool
    users: int
    nbytes: int
    keep_alive: float
    expires: float | None
    loads: int
    load_seconds: float
    loaded_at: float


class Lease:
    """A claim on a model, which is loaded if need be, and stays loaded until the claim is released.

    Attributes:
        model: the model; None while it loads.
        ready: a future of the model, which raises the error of the load: ModelError, PoolFullError, OSError.

    """

    def __init__(self, pool: ModelPool, entry: _Entry, progress: Progress | None) -> None:
        self.model: Model | None = None
        self.ready: Future[Model] = Future()
        self.ready.set_running_or_notify_cancel()  # only `release` ends it
        self._pool, self._entry, self._progress = pool, entry, progress

    def release(self) -> None:
        """Give the claim up. A load without other claims is abandoned. A second call does nothing."""
        self._pool._release(self._entry, self)

    def _given(self, model: Model) -> None:
        self.model = model
        self.ready.set_result(model)

    def _report(self, stage: str, done: int, total: int) -> None:
        """Report the progress of the load; an exception of the callback gives up this claim only."""
        if self._progress is None:
            return
        try:
            self._progress(stage, done, total)
        except BaseException as error:
            self.release()
            self.ready.set_exception(error)


class _UnwantedError(BaseException):
    """Raised in a load to abandon it, as no claim is left."""


@dataclass
class _Entry:
    name: str
    path: Path
    default_keep_alive: float
    options: dict[str, Any]
    nbytes: int
    keep_alive: float = -1.0
    pinned: bool = False
    model: Model | None = None
    arriving: bool = False
    """Whether a thread is loading the model, or making room for it."""
    loading: bool = False
    """Whether there is room for the model, which it takes already."""
    closing: bool = False
    leases: set[Lease] = field(default_factory=set)
    waiting: list[Lease] = field(default_factory=list)
    used: float = field(default_factory=time.monotonic)
    loads: int = 0
    load_seconds: float = 0.0
    loaded_at: float = 0.0

    @property
    def users(self) -> int:
        return len(self.leases)

    @property
    def present(self) -> bool:
        return self.model is not None or self.loading or self.closing

    @property
    def idle(self) -> bool:
        return self.model is not None and not self.leases and not self.pinned

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
        budget_bytes: the most bytes of the weights of all loaded models together; None for no bound.
        max_models: the most models that may be loaded at a time; None for no bound.
        keep_alive: seconds that a model stays after its last use; negative for ever, 0 not at all.
        before_unload: called with the name and the model before it is closed, to save its contexts.
        loader: the function that loads; it gets the path, the options of the model, and `progress`.
        options: the options of `load` for every model.

    Where there is no room, idle models are unloaded, the one unused for longest first. A model in use is never
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
        self,
        name: str,
        path: str | PathLike[str],
        *,
        keep_alive: float | None = None,
        model: Model | None = None,
        **options: Any,
    ) -> None:
        """Make a model known under a name. Nothing is loaded. Raises ValueError for a name that is taken.

        A `model` that is loaded already is pinned: the pool closes it only when it is closed itself.
        """
        entry = _Entry(
            name,
            Path(path),
            self.keep_alive if keep_alive is None else keep_alive,
            {**self._options, **options},
            _file_bytes(Path(path)),
        )
        entry.keep_alive = entry.default_keep_alive
        if model is not None:
            entry.model, entry.pinned, entry.loaded_at = model, True, time.monotonic()
            entry.nbytes = getattr(model, "nbytes", entry.nbytes)
        with self._changed:
            if name in self._entries:
                raise ValueError(f"there is a model called {name!r} already")
            self._entries[name] = entry

    def remove(self, name: str) -> None:
        """Unload a model and forget its name. Raises KeyError, or PoolFullError while it is used."""
        self.unload(name)
        with self._changed:
            del self._entries[name]

    def lease(self, name: str, *, progress: Progress | None = None) -> Lease:
        """Claim the model of a name without waiting. Raises KeyError for a name that is not known.

        Claims on a model that is being loaded wait for the same load. The `progress` of each is called on a thread of
        the pool; raising from it gives up that claim.
        """
        with self._changed:
            if self._closed:
                raise ModelError("the pool of models is closed")
            entry = self._known(name)
            lease = Lease(self, entry, progress)
            entry.leases.add(lease)
            if entry.model is not None:
                lease._given(entry.model)
                return lease
            entry.waiting.append(lease)
            if not entry.arriving:
                entry.arriving = True
                threading.Thread(
                    target=self._bring, args=(entry,), name=f"llamay load {name}", daemon=True
                ).start()
            return lease

    @contextlib.contextmanager
    def use(
        self, name: str, *, keep_alive: float | None = None, progress: Progress | None = None
    ) -> Iterator[Model]:
        """Give the model of a name, which stays loaded at least for as long as the block runs.

        Waits for it as `lease` does not. Raises KeyError for a name that is not known, ModelError, OSError, and
        PoolFullError where the models in use leave no room.
        """
        lease = self.lease(name, progress=progress)
        try:
            yield lease.ready.result()
            if keep_alive is not None:
                self.keep(name, keep_alive)
        finally:
            lease.release()

    def keep(self, name: str, seconds: float) -> None:
        """Set how long a model stays after its last use. Once it is unloaded, the value of `add` applies again."""
        with self._changed:
            self._known(name).keep_alive = seconds
            self._changed.notify_all()

    def peek(self, name: str) -> Model | None:
        """Return the model of a name if it is loaded, without claiming it. Raises KeyError."""
        return self._known(name).model

    def unload(self, name: str) -> bool:
        """Unload a model now; return whether it was loaded. Raises KeyError, or PoolFullError while it is used."""
        with self._changed:
            entry = self._known(name)
            while entry.closing or (entry.arriving and not entry.leases):
                self._changed.wait()
            if entry.leases or entry.pinned:
                why = f"is in use {entry.users} times" if entry.leases else "was given ready made"
                raise PoolFullError(f"{name} {why} and cannot be unloaded now")
            model = self._let_go(entry)
            if model is None:
                entry.keep_alive = entry.default_keep_alive
                return False
        self._close_model(entry, model)
        return True

    def status(self) -> Mapping[str, Status]:
        """Return the status of all models by name."""
        with self._changed:
            return {name: self.about(name) for name in self._entries}

    def about(self, name: str) -> Status:
        """Return the status of one model. Raises KeyError."""
        with self._changed:
            e = self._known(name)
            return Status(
                name=e.name,
                path=e.path,
                loaded=e.model is not None,
                loading=e.arriving,
                pinned=e.pinned,
                users=e.users,
                nbytes=e.nbytes,
                keep_alive=e.keep_alive,
                expires=e.expires,
                loads=e.loads,
                load_seconds=e.load_seconds,
                loaded_at=e.loaded_at,
            )

    def close(self) -> None:
        """Unload all models, also those in use: running generations end as cancelled."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            while any(e.arriving or e.closing for e in self._entries.values()):
                self._changed.wait()
            models = [(e, e.model) for e in self._entries.values() if e.model is not None]
            for entry, _ in models:
                self._let_go(entry)
        for entry, model in models:
            self._close_model(entry, model)
        if threading.current_thread() is not self._sweeper:
            self._sweeper.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- loading

    def _known(self, name: str) -> _Entry:
        if name not in self._entries:
            known = ", ".join(sorted(self._entries)) or "none"
            raise KeyError(f"no model is called {name!r}; known are: {known}")
        return self._entries[name]

    def _release(self, entry: _Entry, lease: Lease) -> None:
        with self._changed:
            if lease in entry.leases:
                entry.leases.remove(lease)
                if lease in entry.waiting:
                    entry.waiting.remove(lease)
                entry.used = time.monotonic()
                self._changed.notify_all()

    def _bring(self, entry: _Entry) -> None:
        """Load a model for the waiting claims. Runs on a thread of its own."""
        while True:
            loaded: Model | None = None
            failure: BaseException | None = None
            began = time.monotonic()
            try:
                self._make_room(entry)
                began = time.monotonic()
                loaded = self._loader(entry.path, progress=self._reporter(entry), **entry.options)
            except _UnwantedError:
                failure = None
            except BaseException as error:
                failure = error
            with self._changed:
                entry.loading = False
                waiting, entry.waiting = entry.waiting, []
                if loaded is not None:
                    entry.model, entry.loads = loaded, entry.loads + 1
                    entry.nbytes = getattr(loaded, "nbytes", entry.nbytes)
                    entry.used = entry.loaded_at = time.monotonic()
                    entry.load_seconds = entry.loaded_at - began
                elif failure is None and waiting:
                    entry.waiting = waiting  # a claim that came when the last one had just been given up
                    continue
                else:
                    entry.leases.difference_update(waiting)
                entry.arriving = False
                self._changed.notify_all()
            break
        for lease in waiting:
            if loaded is not None:
                lease._given(loaded)
            elif failure is not None:
                lease.ready.set_exception(failure)
        self._shrink()

    def _reporter(self, entry: _Entry) -> Progress:
        def report(stage: str, done: int, total: int) -> None:
            for lease in list(entry.waiting):
                lease._report(stage, done, total)
            if not entry.waiting:
                raise _UnwantedError

        return report

    def _make_room(self, entry: _Entry) -> None:
        """Unload idle models, the one unused for longest first, until there is room, and take it."""
        while True:
            with self._changed:
                if self._closed:
                    raise ModelError("the pool of models is closed")
                if not entry.waiting:
                    raise _UnwantedError
                victim = self._victim(entry)
                if victim is None:
                    if not entry.closing:
                        entry.loading = True
                        return
                    self._changed.wait()
                    continue
                if victim.closing:
                    self._changed.wait()
                    continue
                model = self._let_go(victim)
            assert model is not None
            self._close_model(victim, model)

    def _let_go(self, entry: _Entry) -> Model | None:
        """Take a model out of its entry, to be closed; no claim gets it from now on."""
        model, entry.model = entry.model, None
        entry.closing = model is not None
        return model

    def _shrink(self) -> None:
        """Unload idle models if the one that came is larger than its file said."""
        while True:
            with self._changed:
                present = [e for e in self._entries.values() if e.model is not None]
                idle = [e for e in present if e.idle]
                if (
                    self._closed
                    or self.budget_bytes is None
                    or not idle
                    or sum(e.nbytes for e in present) <= self.budget_bytes
                ):
                    return
                victim = min(idle, key=lambda e: e.used)
                model = self._let_go(victim)
            assert model is not None
            self._close_model(victim, model)

    def _victim(self, wanted: _Entry) -> _Entry | None:
        """Return the model that is or has to be unloaded before another one can be loaded; None if there is room.

        Raises PoolFullError where that cannot be made.
        """
        present = [e for e in self._entries.values() if e.present and e is not wanted]
        taken = sum(e.nbytes for e in present)
        many = self.max_models is not None and len(present) >= self.max_models
        large = self.budget_bytes is not None and taken + wanted.nbytes > self.budget_bytes
        if not many and not large:
            return None
        if self.budget_bytes is not None and wanted.nbytes > self.budget_bytes:
            raise PoolFullError(
                f"{wanted.name} takes {wanted.nbytes} bytes, but all models together may take {self.budget_bytes}",
                passing=False,
            )
        if (going := next((e for e in present if e.closing), None)) is not None:
            return going
        idle = [e for e in present if e.idle]
        if not idle:
            names = ", ".join(e.name for e in present)
            raise PoolFullError(
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
                entry.closing, entry.keep_alive = False, entry.default_keep_alive
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
                model = self._let_go(over)
            if model is not None:
                with contextlib.suppress(LlamayError, OSError):
                    self._close_model(over, model)


def _file_bytes(path: Path) -> int:
    """Return the size of a file, or 0 if there is none yet: an estimate of the model's bytes until it is loaded."""
    try:
        return path.stat().st_size if path.is_file() else 0
    except OSError:
        return 0


__all__ = ["Lease", "ModelPool", "Status"]
