"""Errors of llamay_models as the server knows them."""

from __future__ import annotations

import errno
from pathlib import Path

from llamay_models import errors
from llamay_server.engine import protocol as p


def translate(error: BaseException, path: Path | None = None) -> BaseException:
    """An error of llamay_models as the server knows it. A path on this machine is not the client's to know."""
    text = str(error)
    if path is not None:
        text = text.replace(str(path), "the snapshot").replace("the snapshot the snapshot", "the snapshot")
    from llamay_models.chat import ChatTemplateError

    match error:
        case ChatTemplateError():
            return p.BadPrompt(text)
        case errors.PromptTooLong():
            return p.PromptTooLong(error.tokens, error.limit)
        case errors.PromptError() | errors.SamplingError() | errors.ContextError():
            return p.BadPrompt(text)
        case errors.IdentityMismatch():
            return p.IdentityConflict(text, fieldname=error.field, expected=error.expected, found=error.found)
        case errors.NotAllowed():
            return p.SnapshotNotAllowed(text)
        case errors.SnapshotError():
            cause = error.__cause__
            full = isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
            return cause if full and cause is not None else p.BadSnapshot(text)
        case errors.OutOfMemory():
            return p.OutOfMemory(text)
        case errors.PlanError():
            return p.NotSupported(f"This model gives no embeddings: {text}.")
        case errors.QueueFull():
            return p.Busy(text)
        case errors.ConstraintError():
            return p.UnsupportedConstraint(text)
        case _:
            return error


class translated:  # noqa: N801 - reads as a statement
    """Raise what the server knows instead of what the engine raised."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, errors.LlamayError):
            raise translate(error, self._path) from error
