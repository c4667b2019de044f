"""Limits of a pull, checked before it downloads."""

from __future__ import annotations

from dataclasses import dataclass

from ..console.tables import format_bytes
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
                f"{what} is {format_bytes(size)}, over the limit of {format_bytes(self.model)}",
                "--max-size raises it",
            )
        need, free = size * copies + RESERVE, store.free_space()
        if need > free:
            raise CliError(
                f"{what} needs {format_bytes(need)} on the disk of {store.root}, and {format_bytes(free)} are free",
                "free some space, or set LLAMAY_HOME to a larger disk",
            )
