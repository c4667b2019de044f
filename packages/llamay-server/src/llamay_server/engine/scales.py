"""One model with several scales of its LoRA adapters: made when a request asks for them, over the same weights."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import llamay_models
from llamay_models.errors import QueueFullError
from llamay_server.engine.protocol import DurationHistogram
from llamay_server.engine.stats import engine_counts, engine_durations, sum_counts, sum_durations

T = TypeVar("T")
MOST = 8
"""Scales beside the ones that the model was loaded with; each has K/V and a thread of its own."""
_SETTLED = 10.0
"""Seconds for which a model that was just given to a request stays open without work."""


class Scales(Generic[T]):
    """The models that `wrap` makes of `model`, one for each tuple of scales (one scale for each adapter).

    `default` are the scales for requests that ask for none. Methods may be called from any thread.
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
        self._closed_counts: dict[str, float] = {}
        self._closed_durations: dict[str, DurationHistogram] = {}
        self._lock = threading.Lock()

    def at(self, scales: tuple[float, ...] | None) -> T:
        """Return the wrapped model with these scales; it is made where it does not exist.

        Raises `QueueFullError` where the limit of other scales is in use.
        """
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
        """Close the model that was idle for longest, where the limit of models is reached."""
        if len(self._made) < MOST:
            return
        now = time.monotonic()
        idle = [
            (used, scales)
            for scales, (model, _, used) in self._made.items()
            if now - used > _SETTLED and scales != self.default and model.idle
        ]
        if not idle:
            raise QueueFullError(f"{MOST} other scales of the adapters are at work; try again later")
        model = self._made.pop(min(idle)[1])[0]
        # Counters never fall: the counts of a closed model stay in the sum.
        totals = {k: v for k, v in engine_counts(model).items() if k.endswith("_total")}
        self._closed_counts = sum_counts([self._closed_counts, totals])
        self._closed_durations = sum_durations([self._closed_durations, engine_durations(model)])
        model.close()

    def counts(self) -> dict[str, float]:
        """Return the gauges and counters of all engines of this model, closed ones included."""
        with self._lock:
            return sum_counts([self._closed_counts, *(engine_counts(model) for model in self._models())])

    def durations(self) -> dict[str, DurationHistogram]:
        """Return the histograms of durations over all engines of this model, closed ones included."""
        with self._lock:
            return sum_durations(
                [self._closed_durations, *(engine_durations(model) for model in self._models())]
            )

    def _models(self) -> list[llamay_models.Model]:
        return [self._model, *(model for model, _, _ in self._made.values())]

    def close(self) -> None:
        """Close the models of all scales but the loaded ones."""
        with self._lock:
            for model, _, _ in self._made.values():
                model.close()
            self._made.clear()
