"""Paths as people write them."""

from __future__ import annotations

from pathlib import Path

from .errors import CliError


def expand(text: str | Path) -> Path:
    """Return the path with `~` replaced by a home folder. Raises CliError where there is no such home."""
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        # Unfinished user names (`~0`), or a process without HOME.
        raise CliError(f"{str(text)!r} begins with a home folder that this system does not know") from error
