"""What an engine counts: sums, and how its times are distributed."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field


@dataclass(slots=True)
class Stats:
    """Counters since the engine began.

    Seconds are its thread's wall time: in all, and inside the plan. Prompt tokens are those that were
    computed, cached tokens those that need not be. A suspended text gave its memory to others and went on
    later; recomputed tokens are what that cost. Replayed tokens are those of texts that were read as a client
    would send them back, while nobody waited.
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
    suspended: int = 0
    refused: int = 0
    busy_seconds: float = 0.0
    run_seconds: float = 0.0


# Two for each factor of ten, from 10 microseconds to 1000 seconds.
BOUNDS = (*(round(m * 10.0**e, 6) for e in range(-5, 3) for m in (1.0, 3.0)), 1000.0)


@dataclass(slots=True)
class Histogram:
    """How often a time in seconds was at most each of `BOUNDS`; the last count is of all that were longer."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    total: float = 0.0
    # All texts of a step have waited the same: one look at the buckets will do.
    _last: tuple[float, int] = field(default=(-1.0, 0), repr=False, compare=False)

    @property
    def bounds(self) -> tuple[float, ...]:
        """The upper ends of the buckets in seconds; what is longer is in one more."""
        return BOUNDS

    @property
    def count(self) -> int:
        """How many there were."""
        return sum(self.counts)

    def add(self, seconds: float) -> None:
        """Count one."""
        if seconds != self._last[0]:
            self._last = (seconds, bisect_left(BOUNDS, seconds))
        self.counts[self._last[1]] += 1
        self.total += seconds

    def copy(self) -> Histogram:
        """Return it as it is now."""
        return Histogram(list(self.counts), self.total)


@dataclass(slots=True)
class Histograms:
    """Seconds: in the queue, to the first token, between tokens of a text, and of a step."""

    queue: Histogram = field(default_factory=Histogram)
    first_token: Histogram = field(default_factory=Histogram)
    between_tokens: Histogram = field(default_factory=Histogram)
    step: Histogram = field(default_factory=Histogram)
