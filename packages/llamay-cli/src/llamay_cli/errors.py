"""The errors of the command, and their exit codes."""

from __future__ import annotations

import enum
import re

__all__ = [
    "CliError",
    "Exit",
    "IntegrityError",
    "NotFoundError",
    "RefusedError",
    "UnreachableError",
    "WrongUsageError",
    "printable",
]


class Exit(enum.IntEnum):
    """Exit codes of `llamay`; scripts may rely on them."""

    OK = 0
    ERROR = 1
    USAGE = 2
    NOT_FOUND = 3
    UNREACHABLE = 4
    REFUSED = 5
    INTERRUPTED = 130
    BROKEN_PIPE = 141


class CliError(Exception):
    """An error: one line with the fault and its place, perhaps a hint, and the exit code."""

    code = Exit.ERROR

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class IntegrityError(CliError):
    """A file is not the one that was announced, or is damaged; nothing was installed."""


class WrongUsageError(CliError):
    """An argument, or a value of an option or of a file of settings, that cannot be one: no run of it would succeed."""

    code = Exit.USAGE


class NotFoundError(CliError):
    """A model, file, package or repository that does not exist."""

    code = Exit.NOT_FOUND


class UnreachableError(CliError):
    """A host, index or server that does not answer."""

    code = Exit.UNREACHABLE


class RefusedError(CliError):
    """A refusal for want of a permission: a licence to accept, a token to give, a flag to set.

    `reason` is the server's own word for it, where it gives one.
    """

    code = Exit.REFUSED
    reason = ""


_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def printable(text: str) -> str:
    """Return `text` with its control characters written as escapes; foreign text must not control the terminal."""
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)
