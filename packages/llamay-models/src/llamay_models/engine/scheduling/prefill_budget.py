"""`Pace`: how many prompt tokens a step may read beside the streams that are writing."""

from __future__ import annotations

import re
from dataclasses import dataclass

_FIRST = 32  # rows before anything is known
_LEAST = 8  # rows that a step reads whatever it takes: fewer take nearly as long, deep inside a prompt
_MANY = 64  # steps that are looked at in one go
_STALL = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(x|ms|s)")


@dataclass(frozen=True, slots=True)
class Stall:
    """How long a step that reads may take while texts are being written.

    So many `times` as long as one that only writes, or so many `seconds`, whichever is more.
    """

    times: float = 2.5
    seconds: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Stall:
        """Read `2.5x` (times as long as a step that only writes), `50ms` or `0.2s`. Raises ValueError."""
        match = _STALL.fullmatch(text.strip().lower())
        if match is None:
            raise ValueError(f"max_stall is {text!r}; write 2.5x (times as long as without), 50ms or 0.2s")
        value, unit = float(match[1]), match[2]
        if unit == "x":
            if value <= 1.0:
                raise ValueError(
                    f"max_stall is {text!r}; a step cannot take less than it takes without reading: "
                    "write more than 1x"
                )
            return cls(times=value)
        return cls(times=1.0, seconds=value / 1000 if unit == "ms" else value)

    def bound(self, writing_step: float) -> float:
        """Return the seconds that a step may take where one that only writes takes so many."""
        return max(self.times * writing_step, self.seconds)


class Pace:
    """Bounds the time of a step.

    While nothing is being written a step takes all the rows there are; otherwise as many as the time that it may
    take is enough for, by what rows took when they were last read. How long a row takes depends on how much is
    before it, and on how many come with it, so this is found separately for each depth, by powers of two, and
    followed as it changes: at once where rows take longer, slowly where they take less.

    Results do not depend on it: how a prompt is cut does not change a bit of what is computed.
    """

    def __init__(self, max_rows: int, stall: Stall | None = None) -> None:
        self._max_rows = max_rows
        self._stall = stall or Stall()
        self._step = 0.0
        self._row = 0.0
        self._seconds: dict[int, float] = {}  # a row, by depth
        self._rows: dict[int, float] = {}
        self._line = _Line(0.98)
        # Steps that only wrote, not looked at yet: a step has little time for it, and often nobody asks.
        self._fresh: list[tuple[int, float]] = []

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
            self._fresh.append((writing, seconds))
            if len(self._fresh) == _MANY:
                self._look()
            return
        extra = max(1e-9, seconds - (self._writing_step if writing else 0.0))
        self._row = _blend(self._row, extra / reading)
        if writing and self._writing_step:
            target = self._stall.bound(self._writing_step) - self._writing_step
            self._follow(depth.bit_length(), extra, reading, max(target, 1e-9))

    def _look(self) -> None:
        for writing, seconds in self._fresh:
            self._line.add(writing, seconds)
            self._step = _blend(self._step, seconds)
        self._fresh.clear()

    @property
    def _writers(self) -> _Line:
        self._look()
        return self._line

    @property
    def _writing_step(self) -> float:
        self._look()
        return self._step

    def _follow(self, bucket: int, extra: float, reading: int, target: float) -> None:
        rows = self._at(bucket)
        # Fewer rows than were allowed say nothing of how many would have been too many.
        if reading >= rows / 2 or extra > target:
            seconds, known = extra / reading, self._seconds.get(bucket)
            if known is not None:
                # Something else on the machine may have made one step long: that says little of the next.
                seconds = known + (0.3 if seconds > known else 0.15) * (min(seconds, 2.0 * known) - known)
            self._seconds[bucket] = seconds
            # What was not tried is approached step by step: many rows may take longer each than few.
            rows = min(target / seconds, 2.0 * max(rows, reading))
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
