"""Reading other programs' folders: bounded, and through no link that leads in circles."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

MAX_TEXT = 512 << 10
"""Bytes of the longest text that is read."""
MAX_FILES = 10_000
"""Files of one folder that are looked at."""


def walk(folder: Path, depth: int) -> Iterator[Path]:
    """Yield the files below a folder, never through links to folders, so that no link leads in circles."""
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            if depth > 1:
                yield from walk(folder / entry.name, depth - 1)
        elif is_file(folder / entry.name):
            yield folder / entry.name


def is_file(path: Path) -> bool:
    """Return whether this is a file, or a link that leads to one."""
    try:
        return path.is_file()
    except (OSError, ValueError):  # a circular link, an invalid name
        return False


def read_bounded(path: Path, most: int = MAX_TEXT) -> str:
    """Return a file's text. Raises OSError, and ValueError for one that is longer or not UTF-8."""
    with path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise ValueError(f"longer than {most} bytes")
    return data.decode()
