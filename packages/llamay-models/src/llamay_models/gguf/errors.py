"""The one error of this package."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .. import _native
from ..errors import ModelError


class GGUFError(ModelError, ValueError):
    """A GGUF file cannot be read or written as asked.

    Attributes:
        path: the file, or None for bytes in memory.
        problem: the problem.
        hint: the remedy.
        offset: the byte of the file where it was noticed, or None where no single byte is to blame.

    """

    def __init__(
        self, problem: str, hint: str, *, path: Path | None = None, offset: int | None = None
    ) -> None:
        where = "" if path is None else f"{path}: "
        at = "" if offset is None else f" (at byte {offset})"
        super().__init__(f"{where}{problem}{at}; {hint}" if hint else f"{where}{problem}{at}")
        self.path = path
        self.problem = problem
        self.hint = hint
        self.offset = offset


@contextmanager
def naming(path: Path | None) -> Iterator[None]:
    """Turn the native reader's error into a GGUFError that names the file."""
    try:
        yield
    except _native.FormatError as error:
        problem, hint, offset = error.args
        raise GGUFError(problem, hint, path=path, offset=offset) from None
