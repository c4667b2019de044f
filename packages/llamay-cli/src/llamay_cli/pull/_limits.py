"""How much a pull may take, checked before it takes it."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import CliError, RefusedError
from ..store import Store

GIB = 1 << 30
RESERVE = 64 << 20
"""Bytes to leave on the disk."""


@dataclass(frozen=True)
class Limits:
    """Upper bounds: bytes of a whole model, and of any document that describes one."""

    model: int = 1024 * GIB
    document: int = 16 << 20
    files: int = 10_000

    def check(self, size: int, store: Store, what: str, *, copies: int = 1) -> None:
        """Refuse `size` bytes (`copies` times at the peak) that are over the limit or do not fit."""
        if size > self.model:
            raise RefusedError(
                f"{what} is {human(size)}, over the limit of {human(self.model)}", "--max-size raises it"
            )
        need, free = size * copies + RESERVE, store.free_space()
        if need > free:
            raise CliError(
                f"{what} needs {human(need)} on the disk of {store.root}, and {human(free)} are free",
                "free some space, or set LLAMAY_HOME to a larger disk",
            )


def human(size: float) -> str:
    """Return bytes as people write them: 1.5 GB."""
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
