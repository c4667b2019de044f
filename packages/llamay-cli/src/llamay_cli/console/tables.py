"""Numbers and tables as people read them."""

from __future__ import annotations

import time
from collections.abc import Sequence

import click


def format_bytes(size: float) -> str:
    """Return bytes as people write them: 1.5 GB."""
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def ago(when: float) -> str:
    """Return how long ago `when` (epoch seconds) was: 3 days ago."""
    seconds = max(0.0, time.time() - when)
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= length:
            count = int(seconds // length)
            return f"{count} {unit}{'s' if count > 1 else ''} ago"
    return "just now"


def print_table(rows: Sequence[tuple[str, ...]]) -> None:
    """Print rows on stdout, each column as wide as its longest cell; the first row is the header."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo("  ".join(cells).rstrip())
