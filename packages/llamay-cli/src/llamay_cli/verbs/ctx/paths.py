"""Files that are there, and files that are to be written."""

from __future__ import annotations

from pathlib import Path

from ...errors import CliError, NotFoundError, RefusedError


def existing(name: str, *, file: bool = False) -> Path:
    """Return the path of a file, or where `file` does not ask for one, of a folder.

    Raises NotFoundError where it is missing, and CliError for a folder in place of a file.
    """
    path = Path(name)
    if not path.exists():
        raise NotFoundError(f"{name} does not exist")
    if file and not path.is_file():
        raise CliError(f"{name} is not a file")
    return path


def new_file(file: str, force: bool) -> Path:
    """Return the path of a file to write. Raises RefusedError where it exists, unless it may be replaced."""
    path = Path(file)
    if path.exists() and not force:
        raise RefusedError(f"{file} exists already", "--force replaces it")
    if not path.absolute().parent.is_dir():
        raise NotFoundError(f"the folder of {file} does not exist")
    return path
