"""`Pace`: how many prompt tokens a step may read beside the streams that are writing."""

from __future__ import annotations

_GRAIN = 16
_LEAST = 16


class Pace:
    """Bounds the time of a step.

    While nothing is being written a step takes all the rows there are; otherwise as many as fit into `stall`
    times the time of a step that only writes, by what recent steps have shown.

    Results do not depend on it: how a prompt is cut does not change a bit of what is computed.
    """

    def __init__(self, max_rows: int, stall: float = 3.0) -> None:
        self._max_rows = max_rows
        self._stall = stall
        self._writing_step = 0.0
        self._row = 0.0

    @property
    def row_seconds(self) -> float | None:
        """What reading a token takes, by what recent steps have shown; None before the first."""
        return self._row or None

    def budget(self, writing: int) -> int:
        """Prompt rows that the next step may have beside this many rows that write."""
        if not writing:
            return self._max_rows
        room = self._max_rows - writing
        if not self._row or not self._writing_step:
            return min(room, 4 * _GRAIN)
        rows = int(self._writing_step * (self._stall - 1.0) / self._row)
        return min(room, max(_LEAST, rows // _GRAIN * _GRAIN))

    def observe(self, seconds: float, writing: int, reading: int) -> None:
        """Return a step with so many rows of each kind took this long."""
        if not reading:
            self._writing_step = _blend(self._writing_step, seconds)
        elif reading >= _LEAST:
            self._row = _blend(
                self._row, max(0.0, seconds - (self._writing_step if writing else 0.0)) / reading
            )


def _blend(old: float, new: float) -> float:
    return new if old == 0.0 else old + 0.2 * (new - old)
