"""`PrefillBudget`: how many prompt rows a step may have beside the rows of texts that decode."""

from __future__ import annotations

import re
from dataclasses import dataclass

_FIRST = 32  # rows before anything is known
_LEAST = 8  # prompt rows that a step always has: fewer take nearly as long, deep inside a prompt
_MANY = 64  # observed steps that are added to the averages together
_STALL = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(x|ms|s)")


@dataclass(frozen=True, slots=True)
class Stall:
    """The time that a step with prompt rows may take while texts decode.

    `times` as long as a step that only decodes, or `seconds`, whichever is more.
    """

    times: float = 2.5
    seconds: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Stall:
        """Parse `2.5x` (times as long as a step that only decodes), `50ms` or `0.2s`. Raises ValueError."""
        match = _STALL.fullmatch(text.strip().lower()) if isinstance(text, str) else None
        if match is None:
            raise ValueError(f"max_stall is {text!r}; write 2.5x (times as long as without), 50ms or 0.2s")
        value, unit = float(match[1]), match[2]
        if unit == "x":
            if value <= 1.0:
                raise ValueError(
                    f"max_stall is {text!r}; a step cannot take less than it takes without prefill: "
                    "write more than 1x"
                )
            return cls(times=value)
        return cls(times=1.0, seconds=value / 1000 if unit == "ms" else value)

    def bound(self, decode_step: float) -> float:
        """Return the seconds that a step may take where one that only decodes takes `decode_step` seconds."""
        return max(self.times * decode_step, self.seconds)


class PrefillBudget:
    """Bounds the time of a step by the number of its prompt rows.

    While no text decodes, a step may have as many prompt rows as the plan computes. Otherwise the number follows from
    the time that prompt rows took in recent steps. That time depends on how many positions are before a row and on how
    many rows are computed together, so it is measured separately for each depth, by powers of two. The budget follows
    a longer time at once and a shorter one slowly.

    Results do not depend on the budget: how a prompt is cut into steps does not change a bit of the results.
    """

    def __init__(self, max_rows: int, stall: Stall | None = None) -> None:
        self._max_rows = max_rows
        self._stall = stall or Stall()
        self._step_seconds = 0.0
        self._row_seconds = 0.0
        self._row_seconds_at_depth: dict[int, float] = {}  # a row, by depth
        self._rows_at_depth: dict[int, float] = {}
        self._line = _Line(0.98)
        # Steps that only decoded and are in no average yet: a step has little time for that, and the averages are
        # seldom asked for.
        self._unseen: list[tuple[int, float]] = []

    @property
    def row_seconds(self) -> float | None:
        """Seconds that a prompt row took in recent steps; None before the first."""
        return self._row_seconds or None

    def rows(self, decode_rows: int, depth: int = 0) -> int:
        """Return how many prompt rows the next step may have beside `decode_rows` rows of texts that decode.

        `depth` is the number of positions before the prompt rows.
        """
        if not decode_rows:
            return self._max_rows
        return min(self._max_rows - decode_rows, max(_LEAST, int(self._rows_at(depth.bit_length()))))

    def row_cost_share(self, decode_rows: int) -> float:
        """Return the cost of one more row as a share of the cost of each of `decode_rows` rows; from 0 to 1."""
        step, row = self._decode_line.at(decode_rows), self._decode_line.slope
        if not step or not row:
            return 0.5
        return min(1.0, row * decode_rows / step)

    def observe(self, seconds: float, decode_rows: int, prefill_rows: int, depth: int = 0) -> None:
        """Take in that a step with so many rows of each kind took `seconds`; its prompt rows were around `depth`."""
        if not prefill_rows:
            self._unseen.append((decode_rows, seconds))
            if len(self._unseen) == _MANY:
                self._learn_unseen()
            return
        extra = max(1e-9, seconds - (self._decode_step_seconds if decode_rows else 0.0))
        self._row_seconds = _blend(self._row_seconds, extra / prefill_rows)
        if decode_rows and self._decode_step_seconds:
            target = self._stall.bound(self._decode_step_seconds) - self._decode_step_seconds
            self._adjust(depth.bit_length(), extra, prefill_rows, max(target, 1e-9))

    def _learn_unseen(self) -> None:
        for decode_rows, seconds in self._unseen:
            self._line.add(decode_rows, seconds)
            self._step_seconds = _blend(self._step_seconds, seconds)
        self._unseen.clear()

    @property
    def _decode_line(self) -> _Line:
        self._learn_unseen()
        return self._line

    @property
    def _decode_step_seconds(self) -> float:
        self._learn_unseen()
        return self._step_seconds

    def _adjust(self, bucket: int, extra: float, prefill_rows: int, target: float) -> None:
        rows = self._rows_at(bucket)
        # A step with fewer rows than were allowed does not show how many would have been too many.
        if prefill_rows >= rows / 2 or extra > target:
            seconds, known = extra / prefill_rows, self._row_seconds_at_depth.get(bucket)
            if known is not None:
                # Something else on the machine may have made one step long, which says little of the next step.
                seconds = known + (0.3 if seconds > known else 0.15) * (min(seconds, 2.0 * known) - known)
            self._row_seconds_at_depth[bucket] = seconds
            # The number at most doubles at a time: each of many rows may take longer than each of few.
            rows = min(target / seconds, 2.0 * max(rows, prefill_rows))
        self._rows_at_depth[bucket] = min(float(self._max_rows), max(1.0, rows))

    def _rows_at(self, bucket: int) -> float:
        """Return the rows of a depth: the measured number, or an estimate from the nearest smaller depth."""
        for known in range(bucket, -1, -1):
            if known in self._rows_at_depth:
                return max(1.0, self._rows_at_depth[known] / 1.5 ** (bucket - known))
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
        # Without enough spread the slope would be noise.
        return max(0.0, (self._xy / self._n - mx * my) / spread) if spread > 0.02 * (mx * mx + 1.0) else 0.0
