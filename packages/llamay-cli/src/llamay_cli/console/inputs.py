"""Texts that a user gives: as arguments, in files, on stdin."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import Any

import click

from ..errors import CliError


def read_text(path: str) -> str:
    """Read a text file, or stdin for `-`; raises CliError where it is not UTF-8."""
    try:
        if path == "-":
            data: bytes = sys.stdin.buffer.read()
            return data.decode()
        return Path(path).read_bytes().decode()
    except UnicodeDecodeError as error:
        raise CliError(f"{'stdin' if path == '-' else path} is not UTF-8 text (byte {error.start})") from None
    except IsADirectoryError:
        raise CliError(f"{path} is a folder") from None


def gather(prompt: str | None, option: str | None, files: tuple[str, ...]) -> str | None:
    """Return the prompt that arguments, files and stdin make together; None for a chat."""
    parts = [part for part in (prompt, option) if part is not None]
    parts += [read_text(path) for path in files]
    if "-" not in files and option is None and piped(sys.stdin, expected=not parts):
        text = read_text("-")
        parts += [text] if text or not parts else []
    if not parts:
        if sys.stdin is not None and sys.stdin.isatty():
            return None
        raise click.UsageError("there is no prompt, and no terminal to chat in")
    text = "\n\n".join(part.rstrip("\n") if i + 1 < len(parts) else part for i, part in enumerate(parts))
    # The newline at the end of a file or of `echo` is not part of the prompt.
    text = text.removesuffix("\n") if len(parts) > 1 or (prompt is None and option is None) else text
    if not text:
        raise click.UsageError("the prompt is empty")
    return text


def piped(stdin: Any, *, expected: bool) -> bool:
    """Return whether stdin is a pipe or a file that holds (part of) the prompt."""
    try:
        mode = stdin.buffer.raw.fileno() if hasattr(stdin.buffer, "raw") else stdin.fileno()
        kind = os.fstat(mode).st_mode
    except (AttributeError, OSError, ValueError):
        return expected and stdin is not None and not stdin.isatty()
    if stat.S_ISFIFO(kind) or stat.S_ISREG(kind):
        return True
    return expected and not stdin.isatty() and not stat.S_ISCHR(kind)
