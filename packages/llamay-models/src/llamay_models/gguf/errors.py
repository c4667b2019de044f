"""`naming`: the native reader's errors as those of this package."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .. import _native
from ..errors import GGUFError


@contextmanager
def naming(path: Path | None) -> Iterator[None]:
    """Turn the native reader's error into a GGUFError that names the file."""
    try:
        yield
    except _native.FormatError as error:
        problem, hint, offset = error.args
        raise GGUFError(problem, hint, path=path, offset=offset) from None
