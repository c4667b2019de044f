"""Paths as people write them, and where the user's own file of settings is."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from .errors import NotFoundError


def expand(text: str | Path) -> Path:
    """Return the path with `~` replaced by a home folder. Raises NotFoundError where there is no such home."""
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        # Unfinished user names (`~0`), or a process without HOME.
        raise NotFoundError(
            f"{str(text)!r} begins with a home folder that this system does not know"
        ) from error


def settings_path(env: Mapping[str, str] | None = None) -> Path | None:
    """Return where the file would be: `$XDG_CONFIG_HOME/llamay/config.toml`; None for a user without a home."""
    env = os.environ if env is None else env
    base = env.get("XDG_CONFIG_HOME") or (str(Path(env["HOME"], ".config")) if env.get("HOME") else "")
    return Path(base, "llamay", "config.toml") if base else None
