"""`Pace`: how many prompt tokens a step may read beside the streams that are writing."""

from __future__ import annotations

_GRAIN = 16
_LEAST = 16
STALL = 2.5
"""A step that reads beside writers may take so many times as long as one that only writes."""


class Pace:
    """Bounds the time of a step.

    While nothing is being written a step takes all the rows there are; otherwise as many as fit into `stall`
    times the time of a step that only writes, by what recent steps have shown. A row costs more the more
    positions are before it, so what it costs is a line over its position, fitted to recent steps.

    Results do not depend on it: how a prompt is cut does not change a bit of what is computed.
    """

    def __init__(self, max_rows: int, stall: float = STALL) -> None:
        self._max_rows = max_rows
        self._stall = stall
        self._writing_step = 0.0
        self._line = _Line(0.85)
        self._writers = _Line(0.98)

    @property
    def row_seconds(self) -> float | None:
        """What reading a token takes, by what recent steps have shown; None before the first."""
        return self._line.mean or None

    def budget(self, writing: int, depth: int = 0) -> int:
        """Prompt rows that the next step may have beside this many rows that write.

        `depth` is how many positions are before them.
        """
        if not writing:
            return self._max_rows
        room = self._max_rows - writing
        row = self._line.at(depth)
        if not row or not self._writing_step:
            return min(room, 4 * _GRAIN)
        rows = int(self._writing_step * (self._stall - 1.0) / row)
        return min(room, max(_LEAST, rows // _GRAIN * _GRAIN))

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
            old = self._writing_step
            self._writing_step = seconds if old == 0.0 else old + 0.2 * (seconds - old)
        elif reading >= _LEAST:
            seconds = max(0.0, seconds - (self._writing_step if writing else 0.0))
            self._line.add(depth, seconds / reading)


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
