"""Prometheus metrics. Labels hold names of served models, phases and outcomes, never text from requests."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from llamay_server.engine.protocol import DurationHistogram

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
        self.prompt_seconds = counter("prompt_seconds", "Time from submission to the first text", "model")
        self.generated_seconds = counter("generated_seconds", "Time from the first text to the last", "model")
        self.most_tokens = 0
        self._stats: Callable[[], Mapping[str, Mapping[str, float]]] = dict
        self.refused = counter("refused", "Requests refused before work began", "reason")
        self.truncated = counter("truncated", "Conversations shortened to fit, at the client's wish", "model")
        self.context_ops = counter("context_operations", "Operations on contexts", "model", "operation")
        self.snapshot_bytes = counter("snapshot_bytes", "Snapshot bytes moved", "direction")
        self.first_token = histogram("time_to_first_token", "From arrival to the first text", _LONG)
        self._gaps: dict[str, GapHistogram] = {}
        registry.register(_Gaps(self._gaps))
        self.end_to_end = histogram("request_duration", "From arrival to the last text", _LONG)
        self.running = Gauge(
            "llamay_generations_running", "Generations that have given text", registry=registry
        )
        self.waiting = Gauge(
            "llamay_generations_waiting", "Generations without text so far", registry=registry
        )
        self.contexts = Gauge("llamay_contexts", "Named contexts held", registry=registry)
        self.models_loaded = Gauge("llamay_models_loaded", "Models in memory", registry=registry)

    def gaps(self, model: str) -> GapHistogram:
        """Return the histogram of a model's times between two pieces of text of one choice."""
        return self._gaps.setdefault(model, GapHistogram())

    def watch_engines(
        self,
        stats: Callable[[], Mapping[str, Mapping[str, float]]],
        durations: Callable[[], Mapping[str, Mapping[str, DurationHistogram]]],
    ) -> None:
        """Add the numbers of the engines, read when scraped: both functions return name -> value by model."""
        self._stats = stats
        self.registry.register(_Engines(stats, durations))

    def text(self) -> bytes:
        """Return the exposition text."""
        return generate_latest(self.registry) + self._as_llamacpp()

    def _as_llamacpp(self) -> bytes:
        """Return the numbers over all models under llama.cpp's names, for dashboards that read those."""
        computed, cached = _sum(self.prompt_tokens) - _sum(self.cached_tokens), _sum(self.cached_tokens)
        generated, choices = _sum(self.generated_tokens), _sum(self.generations)
        prefill, decode = _sum(self.prompt_seconds), _sum(self.generated_seconds)
        engines = list(self._stats().values())

        def engine(name: str) -> float:
            return sum(numbers.get(name, 0.0) for numbers in engines)

        rows = (
            ("prompt_tokens_total", "counter", "Prompt tokens computed", computed),
            ("prompt_tokens_cached_total", "counter", "Prompt tokens found already computed", cached),
            ("prompt_seconds_total", "counter", "Time from submission to the first text", prefill),
            ("tokens_predicted_total", "counter", "Tokens generated", generated),
            ("tokens_predicted_seconds_total", "counter", "Time from the first text to the last", decode),
            ("n_decode_total", "counter", "Steps of the loaded engines", engine("steps_total")),
            ("n_tokens_max", "counter", "Most tokens that a sequence had", self.most_tokens),
            (
                "spec_decode_num_draft_tokens_total",
                "counter",
                "Draft tokens of the loaded engines",
                engine("drafted_tokens_total"),
            ),
            (
                "spec_decode_num_accepted_tokens_total",
                "counter",
                "Draft tokens that were accepted",
                engine("accepted_tokens_total"),
            ),
            (
                "prompt_tokens_seconds",
                "gauge",
                "Prompt tokens per second",
                computed / prefill if prefill else 0.0,
            ),
            (
                "predicted_tokens_seconds",
                "gauge",
                "Tokens per second after the first",
                max(0.0, generated - choices) / decode if decode else 0.0,
            ),
            ("requests_processing", "gauge", "Generations that have given text", _sum(self.running)),
            ("requests_deferred", "gauge", "Generations without text so far", _sum(self.waiting)),
        )
        lines = [
            f"# HELP llamacpp:{name} {text}\n# TYPE llamacpp:{name} {kind}\nllamacpp:{name} {float(value)}\n"
            for name, kind, text, value in rows
        ]
        return "".join(lines).encode()


def _sum(metric: Counter | Gauge) -> float:
    """Return the sum over all labels."""
    samples = (sample for family in metric.collect() for sample in family.samples)
    return sum(sample.value for sample in samples if not sample.name.endswith("_created"))


class GapHistogram:
    """A histogram of short times. It is updated with every token, where the library's histogram takes too long."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(_SHORT) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        """Count a time."""
        self.counts[bisect_left(_SHORT, seconds)] += 1
        self.total += seconds


class _Gaps:
    """A collector of the times between pieces of text."""

    def __init__(self, gaps: Mapping[str, GapHistogram]) -> None:
        self._gaps = gaps

    def collect(self) -> Iterator[Metric]:
        """Yield one histogram, labelled by model."""
        family = HistogramMetricFamily(
            "llamay_time_between_pieces_seconds", "Between two pieces of text of one choice", labels=["model"]
        )
        for model, gaps in list(self._gaps.items()):
            family.add_metric([model], _buckets(_SHORT, gaps.counts), gaps.total)
        yield family


def _buckets(bounds: Sequence[float], counts: Sequence[int]) -> list[tuple[str, float]]:
    """Return the buckets as the exposition format has them: cumulative counts by upper bound."""
    return list(zip([*map(str, map(float, bounds)), "+Inf"], map(float, accumulate(counts)), strict=True))


class _Engines:
    """A collector of the engines' own numbers."""

    def __init__(
        self,
        stats: Callable[[], Mapping[str, Mapping[str, float]]],
        durations: Callable[[], Mapping[str, Mapping[str, DurationHistogram]]],
    ) -> None:
        self._stats, self._durations = stats, durations

    def describe(self) -> Iterable[Metric]:
        """Describe no families before the engines are asked."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield one family per number, labelled by model."""
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
        for model, kinds in self._durations().items():
            for name, durations in kinds.items():
                histogram = histograms.setdefault(
                    name,
                    HistogramMetricFamily(
                        f"llamay_engine_{name}_seconds", f"Engine: {name} in seconds", labels=["model"]
                    ),
                )
                histogram.add_metric([model], _buckets(durations.bounds, durations.counts), durations.total)
        yield from histograms.values()
