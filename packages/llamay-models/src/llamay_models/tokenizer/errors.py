"""`naming`: errors in a vocabulary as those of its file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .. import _native
from ..errors import TokenizerError


class BadVocabularyError(Exception):
    """An error in a vocabulary, raised where the file's name is not known; `naming` adds the name."""


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Turn the native code's error into a TokenizerError that names the file."""
    try:
        yield
    except _native.FormatError as error:
        problem, hint, _ = error.args
        raise TokenizerError(f"{path}: {problem}; {hint}") from None
    except BadVocabularyError as error:
        raise TokenizerError(f"{path}: {error}") from None
