"""The exceptions of an engine, as the `ApiError`s that clients get."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from llamay_server.engine.constraint import UnsupportedConstraintError
from llamay_server.http.errors import ApiError


def from_engine(exc: BaseException, hide: Path | None = None) -> ApiError:
    """Return the error that a client gets for an exception of an engine.

    `hide` is a file whose path is left out of the message: clients must not learn paths on the server.
    An unforeseen exception becomes a 500 without internals.
    """
    if isinstance(exc, ApiError):
        return exc
    # Imported here, because a program that only reads settings or a recipe needs no engine.
    from llamay_models import errors
    from llamay_models.chat import ChatTemplateError

    text = str(exc)
    if hide is not None:
        text = text.replace(str(hide), "the snapshot").replace("the snapshot the snapshot", "the snapshot")
    match exc:
        case errors.PromptTooLongError():
            return prompt_too_long(exc.tokens, exc.limit)
        case UnsupportedConstraintError() | errors.ConstraintError():
            return ApiError("invalid", text, code="unsupported_constraint", retry=False)
        case errors.IdentityMismatchError():
            extra = {"field": exc.field, "expected": exc.wanted, "found": exc.stored}
            return ApiError("conflict", text, code="identity_mismatch", extra=extra, retry=False)
        case errors.NotAllowedError():
            return ApiError("permission", text, code="snapshot_not_allowed", retry=False)
        case (
            errors.PromptError()
            | errors.SamplingError()
            | errors.ContextError()
            | errors.SnapshotError()
            | ChatTemplateError()
        ):
            return ApiError("invalid", text)
        case errors.OutOfMemoryError():
            return ApiError("storage", text, code="out_of_memory", retry=False)
        case errors.QueueFullError():
            return ApiError("unavailable", text)
        case errors.PlanError():
            return ApiError("not_supported", f"This model gives no embeddings: {text}.", retry=False)
        case _:
            return ApiError("internal", "The server failed on this request; its log has the details.")


def prompt_too_long(tokens: int, limit: int) -> ApiError:
    """Return a 400 for a prompt of `tokens` tokens, in the words that the dialects' clients look for."""
    return ApiError(
        "overflow",
        f"This model's maximum context length is {limit} tokens, but the request has {tokens} tokens: "
        f"it exceeds the available context size. Shorten the messages or the completion.",
        code="context_length_exceeded",
        param="messages",
        extra={"n_prompt_tokens": tokens, "n_ctx": limit},
    )


def from_load(exc: BaseException, name: str, paths: Sequence[Path]) -> ApiError:
    """Return the error that a client gets for a model that cannot be loaded.

    `paths` are the model's own file first, then those that it is used with; the message names files, not folders.
    The statuses keep clients from repeating a request that would fail again.
    """
    from llamay_models import errors

    match exc:
        case ApiError():
            return exc
        case FileNotFoundError() | NotADirectoryError():
            text = f"{_file(exc, name, paths)} is not there any more; pull or add it again."
            return ApiError("not_found", text, param="model", code="model_not_found")
        case OSError():
            text = f"{_file(exc, name, paths)} cannot be read: {exc.strerror or type(exc).__name__}."
            return ApiError("unusable", text, param="model", code="model_unusable")
        case MemoryError():
            text = f"There is not enough memory to load model {name!r}."
            return ApiError("storage", text, param="model", code="out_of_memory", retry=False)
        case errors.ArchitectureError():
            kind, code = "not_supported", "model_not_supported"
        case errors.OutOfMemoryError():
            kind, code = "storage", "out_of_memory"
        case errors.LlamayError() | ValueError() | OverflowError():
            kind, code = "unusable", "model_unusable"
        case _:
            known = from_engine(exc)
            text = f"Model {name!r} cannot be loaded: {known.message}"
            return ApiError(known.kind, text, param="model", code=known.code)
    text = f"Model {name!r} cannot be loaded: {_without_folders(str(exc), paths)}"
    return ApiError(kind, text, param="model", code=code, retry=None if kind == "unusable" else False)


def _file(exc: OSError, name: str, paths: Sequence[Path]) -> str:
    """Return the file that could not be read, as the message names it."""
    beside = [path for path in paths[1:] if exc.filename is not None and str(path) == str(exc.filename)]
    return (
        f"The file {beside[0].name} that model {name!r} is used with"
        if beside
        else f"The file of model {name!r}"
    )


def _without_folders(text: str, paths: Sequence[Path]) -> str:
    """Return a message in which files are named by their names alone."""
    known = sorted(
        {str(each): each for path in paths for each in (path, path.resolve())}.items(), reverse=True
    )
    for whole, path in known:  # the longest paths first: one folder may be inside another
        text = text.replace(whole, path.name)
    for _, path in known:
        text = text.replace(f"{path.parent}/", "")
    return text
