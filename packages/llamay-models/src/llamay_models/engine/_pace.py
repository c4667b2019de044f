"""`Pace`: how many prompt tokens a step may read beside the streams that are writing."""

from __future__ import annotations

STALL = 2.5
"""A step that reads beside writers may take so many times as long as one that only writes,"""
STALL_SECONDS = 0.05
"""or this long, if that is more."""

_FIRST = 32  # rows before anything is known
_LEAST = 8  # rows that a step reads whatever it takes: the prompt would never end


class Pace:
    """Bounds the time of a step.

    While nothing is being written a step takes all the rows there are; otherwise as many as took about as long
    as a step may take when they were last tried. How long a row takes depends on how much is before it, and on
    how many come with it, so this is found separately for each depth, by powers of two, and followed as it
    changes.

    Results do not depend on it: how a prompt is cut does not change a bit of what is computed.
    """

    def __init__(self, max_rows: int, stall: float = STALL, stall_seconds: float = STALL_SECONDS) -> None:
        self._max_rows = max_rows
        self._stall, self._stall_seconds = stall, stall_seconds
        self._writing_step = 0.0
        self._row = 0.0
        self._rows: dict[int, float] = {}
        self._writers = _Line(0.98)

    @property
    def row_seconds(self) -> float | None:
        """What reading a token takes, by what recent steps have shown; None before the first."""
        return self._row or None

    def budget(self, writing: int, depth: int = 0) -> int:
        """Prompt rows that the next step may have beside this many rows that write.

        `depth` is how many positions are before them.
        """
        if not writing:
            return self._max_rows
        return min(self._max_rows - writing, max(_LEAST, int(self._at(depth.bit_length()))))

    def row_share(self, writing: int) -> float:
        """What one more row costs, as a share of what each of so many writing rows costs; from 0 to 1."""
        step, row = self._writers.at(writing), self._writers.slope
        if not step or not row:
            return 0.5
        return min(1.0, row * writing / step)

    def observe(self, seconds: float, writing: int, reading: int, depth: int = 0) -> None:
        """A step with so many rows of each kind, the reading ones around `depth`, took this long."""
        if not reading:
            self._writers.add(writing, seconds)
            self._writing_step = _blend(self._writing_step, seconds)
            return
        extra = max(1e-9, seconds - (self._writing_step if writing else 0.0))
        self._row = _blend(self._row, extra / reading)
        if writing and self._writing_step:
            target = max(self._stall * self._writing_step, self._stall_seconds) - self._writing_step
            bucket = depth.bit_length()
            rows = self._at(bucket)
            # Fewer rows than were allowed say nothing of how many would have been too many.
            if reading >= rows / 2 or extra > target:
                rows *= min(1.5, max(0.5, target / extra))
            self._rows[bucket] = min(float(self._max_rows), max(1.0, rows))

    def _at(self, bucket: int) -> float:
        """Rows at a depth: what was found there, or what the next smaller known depth lets expect."""
        for known in range(bucket, -1, -1):
            if known in self._rows:
                return max(1.0, self._rows[known] / 1.5 ** (bucket - known))
        return float(_FIRST)


def _blend(old: float, new: float) -> float:
    return new if old == 0.0 else old + 0.2 * (new - old)


class _Line:
    """A straight line through recent points by least squares, older points counting less and less."""

    def __init__(self, memory: float) -> None:
        self._memory = memory
        self._n = self._x = self._y = self._xx = self._xy = 0.0

    def add(self, x: float, y: float) -> None:
        k = self._memory
        self._n = k * self._n + 1.0
        self._x = k * self._x + x
        self._y = k * self._y + y
        self._xx = k * self._xx + x * x
        self._xy = k * self._xy + x * y

    @property
    def mean(self) -> float:
        return self._y / self._n if self._n else 0.0

    def at(self, x: float) -> float:
        return max(self.mean / 4.0, self.mean + self.slope * (x - self._x / self._n)) if self._n else 0.0

    @property
    def slope(self) -> float:
        if not self._n:
            return 0.0
        mx, my = self._x / self._n, self._y / self._n
        spread = self._xx / self._n - mx * mx
        # Without a spread to speak of the slope would be noise.
        return max(0.0, (self._xy / self._n - mx * my) / spread) if spread > 0.02 * (mx * mx + 1.0) else 0.0
