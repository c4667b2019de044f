"""Prometheus metrics. Labels hold only names that the operator chose: models served, phases, outcomes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from ._protocol import Times

_SHORT = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_LONG = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class Metrics:
    """All metrics of one server, in a registry of its own so that two servers in one process do not mix."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry(auto_describe=True)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"llamay_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(f"llamay_{name}_seconds", text, ("model",), buckets=buckets, registry=registry)

        self.requests = counter("requests", "Requests answered", "dialect", "status")
        self.cancelled = counter(
            "cancelled", "Requests whose client left, by the phase they were in", "phase"
        )
        self.generations = counter("generations", "Generations ended, by reason", "model", "reason")
        self.prompt_tokens = counter("prompt_tokens", "Prompt tokens taken in", "model")
        self.cached_tokens = counter("cached_prompt_tokens", "Prompt tokens found already computed", "model")
        self.generated_tokens = counter("generated_tokens", "Tokens generated", "model")
        self.refused = counter("refused", "Requests refused before work began", "reason")
        self.truncated = counter("truncated", "Conversations shortened to fit, at the client's wish", "model")
        self.context_ops = counter("context_operations", "Operations on contexts", "operation")
        self.snapshot_bytes = counter("snapshot_bytes", "Snapshot bytes moved", "direction")
        self.first_token = histogram("time_to_first_token", "From arrival to the first text", _LONG)
        self.between = histogram("time_between_pieces", "Between two pieces of text of one choice", _SHORT)
        self.end_to_end = histogram("request_duration", "From arrival to the last text", _LONG)
        self.running = Gauge(
            "llamay_generations_running", "Generations that have given text", registry=registry
        )
        self.waiting = Gauge(
            "llamay_generations_waiting", "Generations without text so far", registry=registry
        )
        self.contexts = Gauge("llamay_contexts", "Named contexts held", registry=registry)
        self.models_loaded = Gauge("llamay_models_loaded", "Models in memory", registry=registry)

    def watch_engines(
        self,
        stats: Callable[[], Mapping[str, Mapping[str, float]]],
        times: Callable[[], Mapping[str, Mapping[str, Times]]],
    ) -> None:
        """Add what each engine says of itself, read when scraped: both give name -> value by model."""
        self.registry.register(_Engines(stats, times))

    def text(self) -> bytes:
        """The exposition text."""
        return generate_latest(self.registry)


class _Engines:
    """A collector over the engines' own numbers."""

    def __init__(
        self,
        stats: Callable[[], Mapping[str, Mapping[str, float]]],
        times: Callable[[], Mapping[str, Mapping[str, Times]]],
    ) -> None:
        self._stats, self._times = stats, times

    def describe(self) -> Iterable[Metric]:
        """Nothing is known before the engines are asked."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """One family per number, labelled by model."""
        families: dict[str, Metric] = {}
        for model, numbers in self._stats().items():
            for name, value in numbers.items():
                family = families.get(name)
                if family is None:
                    make = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
                    family = families[name] = make(
                        f"llamay_engine_{name}", f"Engine: {name}", labels=["model"]
                    )
                family.add_metric([model], value)  # type: ignore[attr-defined]
        yield from families.values()
        histograms: dict[str, HistogramMetricFamily] = {}
        for model, kinds in self._times().items():
            for name, times in kinds.items():
                histogram = histograms.setdefault(
                    name,
                    HistogramMetricFamily(
                        f"llamay_engine_{name}_seconds", f"Engine: {name} in seconds", labels=["model"]
                    ),
                )
                ends = [*map(str, times.bounds), "+Inf"]
                buckets = list(zip(ends, accumulate(times.counts), strict=True))
                histogram.add_metric([model], buckets, times.total)
        yield from histograms.values()
