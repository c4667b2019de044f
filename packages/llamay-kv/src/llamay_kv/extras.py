"""Packages that only some modules need: where one is missing, the error says what to install."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def needed_by(module: str, extra: str) -> Iterator[None]:
    """Say, where an import in the block finds no module, that `module` needs it and that `extra` brings it."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = error.name or str(error)
        package = missing.partition(".")[0]
        if package == "llamay_kv":
            raise
        what = (
            f"the package {package}, which is not installed; run: pip install"
            if missing == package
            else f"{missing}, which the installed version of {package} lacks; run: pip install --upgrade"
        )
        raise ModuleNotFoundError(
            f"{module} needs {what} 'llamay-kv[{extra}]'", name=error.name, path=error.path
        ) from error
