"""One model in several scales of its LoRA adapters: made when they are asked for, over the same weights."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import llamay_models
from llamay_server.engine import protocol as p
from llamay_server.engine.stats import added, counted, joined, timed

T = TypeVar("T")
MOST = 8
"""Scales beside the ones that the model was loaded with; each has K/V and a thread of its own."""
_SETTLED = 10.0
"""Seconds for which one stays that was just given out and has no work yet."""


class Scales(Generic[T]):
    """What `wrap` makes of `model` in each tuple of scales, one for each adapter.

    `default` are the scales of those who do not say any. Methods may be called from any thread.
    """

    def __init__(
        self,
        model: llamay_models.Model,
        adapters: Sequence[llamay_models.adapters.Adapter],
        own: T,
        wrap: Callable[[llamay_models.Model], T],
    ) -> None:
        self.adapters = tuple(adapters)
        self.loaded = self.default = tuple(adapter.scale for adapter in adapters)
        self._model, self._own, self._wrap = model, own, wrap
        self._made: dict[tuple[float, ...], tuple[llamay_models.Model, T, float]] = {}
        self._counted: dict[str, float] = {}
        self._timed: dict[str, p.Times] = {}
        self._lock = threading.Lock()

    def at(self, scales: tuple[float, ...] | None) -> T:
        """Return the one of these scales, made if need be. Raises `p.Busy` where there are too many at work."""
        scales = self.default if scales is None else scales
        if scales == self.loaded:
            return self._own
        with self._lock:
            if scales in self._made:
                model, wrapped, _ = self._made[scales]
            else:
                self._make_room()
                pairs = [adapter.at(scale) for adapter, scale in zip(self.adapters, scales, strict=True)]
                model = self._model.adapted(pairs)
                wrapped = self._wrap(model)
            self._made[scales] = model, wrapped, time.monotonic()
            return wrapped

    def _make_room(self) -> None:
        if len(self._made) < MOST:
            return
        now = time.monotonic()
        idle = [
            (used, scales)
            for scales, (model, _, used) in self._made.items()
            if now - used > _SETTLED and scales != self.default and model.idle
        ]
        if not idle:
            raise p.Busy(f"{MOST} other scales of the adapters are at work; try again later")
        model = self._made.pop(min(idle)[1])[0]
        # Counters never fall: what it counted stays.
        self._counted = added(
            [self._counted, {k: v for k, v in counted(model).items() if k.endswith("_total")}]
        )
        self._timed = joined([self._timed, timed(model)])
        model.close()

    def counted(self) -> dict[str, float]:
        """What all of them count together, those that were closed too."""
        with self._lock:
            return added([self._counted, *(counted(model) for model in self._models())])

    def timed(self) -> dict[str, p.Times]:
        """How their times are distributed."""
        with self._lock:
            return joined([self._timed, *(timed(model) for model in self._models())])

    def _models(self) -> list[llamay_models.Model]:
        return [self._model, *(model for model, _, _ in self._made.values())]

    def close(self) -> None:
        """Close them."""
        with self._lock:
            for model, _, _ in self._made.values():
                model.close()
            self._made.clear()
