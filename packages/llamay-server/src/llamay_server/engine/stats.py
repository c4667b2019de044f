"""Counters, gauges and histograms of durations of engines."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

import llamay_models
from llamay_server.engine.protocol import DurationHistogram


def engine_counts(model: llamay_models.Model) -> dict[str, float]:
    """Return the counters, whose names end in `_total`, and the gauges of a model's engine and of its K/V memory."""
    engine, pool = model.engine, model.pool
    out: dict[str, float] = {f"{k}_total": v for k, v in dataclasses.asdict(engine.stats).items()}
    out |= {"queued": engine.queued, "active": engine.active, "kv_bytes": pool.used_bytes}
    out |= {"kv_pages": sum(pool.live_pages), "kv_budget_bytes": pool.budget_bytes}
    out |= {"kv_peak_bytes": pool.peak_bytes}
    return out | {f"spill_{k}": v for k, v in pool.spill_counters().items()}


def engine_durations(model: llamay_models.Model) -> dict[str, DurationHistogram]:
    """Return the histograms of an engine: time in the queue, to the first token, between tokens, and of a step."""
    found = model.engine.histograms
    out = {}
    for each in dataclasses.fields(found):
        histogram = getattr(found, each.name).copy()
        out[each.name] = DurationHistogram(histogram.bounds, tuple(histogram.counts), histogram.total)
    return out


def sum_counts(all_counts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the sums of the counters and gauges of several engines."""
    out: dict[str, float] = {}
    for counts in all_counts:
        for name, value in counts.items():
            out[name] = out.get(name, 0) + value
    return out


def sum_durations(
    all_durations: Iterable[Mapping[str, DurationHistogram]],
) -> dict[str, DurationHistogram]:
    """Return the histograms of several engines, whose bounds are the same, added up."""
    out: dict[str, DurationHistogram] = {}
    for durations in all_durations:
        for name, more in durations.items():
            known = out.get(name)
            if known is not None:
                counts = tuple(a + b for a, b in zip(known.counts, more.counts, strict=True))
                more = DurationHistogram(more.bounds, counts, known.total + more.total)
            out[name] = more
    return out
