"""What engines count, and how their times are distributed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

import llamay_models
from llamay_server.engine import protocol as p


def counted(model: llamay_models.Model) -> dict[str, float]:
    """Counters, whose names end in `_total`, and gauges of a model's engine and memory."""
    engine, pool = model.engine, model.pool
    out: dict[str, float] = {f"{k}_total": v for k, v in dataclasses.asdict(engine.stats).items()}
    out |= {"queued": engine.queued, "active": engine.active, "kv_bytes": pool.used_bytes}
    out |= {"kv_pages": sum(pool.live_pages), "kv_budget_bytes": pool.budget_bytes}
    out |= {"kv_peak_bytes": pool.peak_bytes}
    return out | {f"spill_{k}": v for k, v in pool.spill_counters().items()}


def timed(model: llamay_models.Model) -> dict[str, p.Times]:
    """How long requests wait, for their first token and between tokens, and how long a step takes."""
    found = model.engine.histograms
    out = {}
    for each in dataclasses.fields(found):
        histogram = getattr(found, each.name).copy()
        out[each.name] = p.Times(histogram.bounds, tuple(histogram.counts), histogram.total)
    return out


def added(all_counts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """The sums of what several count."""
    out: dict[str, float] = {}
    for counts in all_counts:
        for name, value in counts.items():
            out[name] = out.get(name, 0) + value
    return out


def joined(all_times: Iterable[Mapping[str, p.Times]]) -> dict[str, p.Times]:
    """The distributions of several as one; their bounds are the same."""
    out: dict[str, p.Times] = {}
    for times in all_times:
        for name, more in times.items():
            known = out.get(name)
            if known is not None:
                counts = tuple(a + b for a, b in zip(known.counts, more.counts, strict=True))
                more = p.Times(more.bounds, counts, known.total + more.total)
            out[name] = more
    return out
