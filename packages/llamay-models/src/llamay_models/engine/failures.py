"""Errors of what users hand in, which may raise anything at any time, told so that telling them cannot fail."""

from __future__ import annotations

from llamay_models.errors import ConstraintError, LlamayError


def described(error: BaseException) -> str:
    """Return the type and the message of an error. Never raises."""
    try:
        message = str(error)
    except BaseException:
        message = "(its message cannot be read)"
    return f"{type(error).__name__}: {message}"


def wrapped(error: BaseException) -> LlamayError:
    """Return an error that occurred while a token was chosen as a LlamayError."""
    if isinstance(error, LlamayError):
        return error
    # Constraints and decoders may raise anything.
    ours = ConstraintError(f"choosing the next token failed: {described(error)}")
    ours.__cause__ = error
    return ours
