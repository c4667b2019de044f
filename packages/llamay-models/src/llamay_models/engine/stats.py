"""The counters of an engine, and the distributions of its times."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field


@dataclass(slots=True)
class Stats:
    """Counters since the engine began.

    Seconds are the wall time of the engine's thread: in all steps, and inside the plan. Prompt tokens are those that
    were computed, cached tokens those that were found in the prefix cache. A preempted text gave its pages to others
    and continued later; recomputed tokens are the cost of that. Replayed tokens are those of finished texts that were
    prefilled, while no request waited, in the form in which a client would send them back.
    """

    steps: int = 0
    rows: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    recomputed_tokens: int = 0
    replayed_tokens: int = 0
    finished: int = 0
    failed: int = 0
    cancelled: int = 0
    timed_out: int = 0
    preempted: int = 0
    refused: int = 0
    busy_seconds: float = 0.0
    run_seconds: float = 0.0


# Two for each factor of ten, from 10 microseconds to 1000 seconds.
BOUNDS = (*(round(m * 10.0**e, 6) for e in range(-5, 3) for m in (1.0, 3.0)), 1000.0)


_MANY = 64  # times that are sorted into buckets together


class Histogram:
    """The number of times, in seconds, in each of the buckets between `BOUNDS`; the last bucket has no upper end.

    One thread adds; others may read meanwhile, and see all times that were added before, or for a moment a few less.
    """

    __slots__ = ("_counted", "_fresh")

    def __init__(self) -> None:
        self._counted: tuple[list[int], float] = ([0] * (len(BOUNDS) + 1), 0.0)
        # Adding a time only appends it, to cost little between two steps: sorting into buckets is done for many.
        self._fresh: list[float] = []

    @property
    def bounds(self) -> tuple[float, ...]:
        """The upper ends of the buckets in seconds; longer times are in one more bucket."""
        return BOUNDS

    @property
    def count(self) -> int:
        """The number of all times."""
        return sum(self.counts)

    @property
    def counts(self) -> list[int]:
        """The number of times in each bucket."""
        return self._tally()[0]

    @property
    def total(self) -> float:
        """The sum of all times in seconds."""
        return self._tally()[1]

    def add(self, seconds: float) -> None:
        """Add a time."""
        fresh = self._fresh
        fresh.append(seconds)
        if len(fresh) == _MANY:
            counted = self._tally()
            self._fresh = []
            self._counted = counted

    def copy(self) -> Histogram:
        """Return a copy as of now."""
        twin = Histogram()
        twin._counted = self._tally()
        return twin

    def _tally(self) -> tuple[list[int], float]:
        fresh = list(self._fresh)
        counts, total = self._counted
        counts = list(counts)
        for seconds in fresh:
            counts[bisect_left(BOUNDS, seconds)] += 1
            total += seconds
        return counts, total


@dataclass(slots=True)
class Histograms:
    """Seconds: in the queue, to the first token, between tokens of a text, and of a step."""

    queue: Histogram = field(default_factory=Histogram)
    first_token: Histogram = field(default_factory=Histogram)
    between_tokens: Histogram = field(default_factory=Histogram)
    step: Histogram = field(default_factory=Histogram)
