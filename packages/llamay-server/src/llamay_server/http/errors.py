"""One error type inside, four shapes outside.

    ApiError
     └─ shaped by the dialect of the route: OpenAI, llama.cpp, Anthropic, Ollama, or problem+json for our own

A handler raises `ApiError(kind, message)`; `shape` gives status, headers and body as that dialect's clients read them.
SDKs repeat 408, 409, 429 and 5xx by themselves, so a failure that would only fail again never has such a status
there, or says `x-should-retry: false`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec

from llamay_server.engine import protocol as engine


class Dialect(Enum):
    """Whose clients a route answers."""

    OPENAI = "openai"
    LLAMACPP = "llamacpp"
    """OpenAI's shapes with llama.cpp's word for a prompt that is too long."""
    ANTHROPIC = "anthropic"
    OLLAMA = "ollama"
    OWN = "own"


# kind: (status, OpenAI type, Anthropic type); Ollama and our own routes use the status alone
_KINDS: dict[str, tuple[int, str, str]] = {
    "invalid": (400, "invalid_request_error", "invalid_request_error"),
    "overflow": (400, "invalid_request_error", "invalid_request_error"),
    "auth": (401, "authentication_error", "authentication_error"),
    "permission": (403, "permission_error", "permission_error"),
    "not_found": (404, "not_found_error", "not_found_error"),
    "method": (405, "invalid_request_error", "invalid_request_error"),
    "slow": (408, "invalid_request_error", "invalid_request_error"),
    "conflict": (409, "conflict_error", "invalid_request_error"),
    "gone": (410, "not_found_error", "not_found_error"),
    "too_large": (413, "invalid_request_error", "request_too_large"),
    "unusable": (422, "invalid_request_error", "invalid_request_error"),
    "limit": (429, "rate_limit_error", "rate_limit_error"),
    "busy": (429, "rate_limit_error", "overloaded_error"),
    "internal": (500, "server_error", "api_error"),
    "not_supported": (501, "not_supported_error", "invalid_request_error"),
    "unavailable": (503, "unavailable_error", "overloaded_error"),
    "timeout": (504, "timeout_error", "timeout_error"),
    "storage": (507, "insufficient_storage_error", "api_error"),
}
_STATUS_EXCEPTIONS = {
    (Dialect.ANTHROPIC, "busy"): 529,
    (Dialect.ANTHROPIC, "unavailable"): 529,
    (Dialect.OLLAMA, "busy"): 503,
    (Dialect.OWN, "busy"): 503,
}


class ApiError(Exception):
    """A refusal on its way to a client.

    `kind` is a key of the table above; `param` is the field's path; `extra` goes into the error object where the
    dialect has room for it; `retry` False tells clients not to repeat.
    """

    def __init__(
        self,
        kind: str,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        extra: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        retry: bool | None = None,
    ) -> None:
        super().__init__(message)
        self.kind, self.message, self.param, self.code = kind, message, param, code
        self.extra: dict[str, Any] = dict(extra or {})
        self.headers: dict[str, str] = dict(headers or {})
        if retry is False or kind == "not_supported":
            self.headers["x-should-retry"] = "false"
        if kind in ("busy", "unavailable") and retry is not False:
            self.headers.setdefault("retry-after", "1")

    def status(self, dialect: Dialect) -> int:
        """The HTTP status in this dialect."""
        return _STATUS_EXCEPTIONS.get((dialect, self.kind), _KINDS[self.kind][0])


def invalid(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """A 400 for the field at `param`."""
    return ApiError("invalid", message, param=param, code=code)


def body(error: ApiError, dialect: Dialect, request_id: str = "") -> dict[str, Any]:
    """The JSON object that goes out, as answer or, in most dialects, as a frame of a stream."""
    _, openai_type, anthropic_type = _KINDS[error.kind]
    if dialect is Dialect.ANTHROPIC:
        message = error.message
        if error.kind == "overflow" and "n_prompt_tokens" in error.extra:
            # Claude Code reads both numbers out of exactly this sentence.
            message = f"prompt is too long: {error.extra['n_prompt_tokens']} tokens > {error.extra['n_ctx']} maximum"
        detail: dict[str, Any] = {"type": anthropic_type, "message": message}
        if error.code is not None and error.code.startswith("thread_"):
            # What the client's helpers read to know that they must send the whole conversation again.
            detail["details"] = {"error_code": error.code}
        return {"type": "error", "error": detail, "request_id": request_id}
    if dialect is Dialect.LLAMACPP and error.kind == "overflow":
        openai_type = "exceed_context_size_error"
    if dialect is Dialect.OLLAMA:
        return {"error": error.message}
    if dialect is Dialect.OWN:
        status = error.status(dialect)
        problem: dict[str, Any] = {
            "type": "about:blank",
            "title": _TITLES[status],
            "status": status,
            "detail": error.message,
        }
        if error.param:
            problem["param"] = error.param
        if error.code:
            problem["code"] = error.code
        return problem | error.extra
    return {
        "error": {"message": error.message, "type": openai_type, "param": error.param, "code": error.code}
        | error.extra
    }


_TITLES = {
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    409: "Conflict",
    410: "Gone",
    413: "Content Too Large",
    422: "Unprocessable Content",
    429: "Too Many Requests",
    500: "Internal Server Error",
    501: "Not Implemented",
    503: "Service Unavailable",
    504: "Gateway Timeout",
    507: "Insufficient Storage",
}


def shape(error: ApiError, dialect: Dialect, request_id: str = "") -> tuple[int, dict[str, str], bytes]:
    """Status, headers and encoded body of a refusal."""
    media = "application/problem+json" if dialect is Dialect.OWN else "application/json"
    headers = {"content-type": media} | error.headers
    return error.status(dialect), headers, msgspec.json.encode(body(error, dialect, request_id))


def from_engine(exc: BaseException) -> ApiError:
    """What an engine raised, as a refusal. Anything unforeseen becomes a 500 that gives no internals away."""
    if isinstance(exc, ApiError):
        return exc
    text = str(exc)
    match exc:
        case engine.PromptTooLong():
            numbers = {"n_prompt_tokens": exc.tokens, "n_ctx": exc.limit}
            return ApiError("overflow", text, code="context_length_exceeded", param="messages", extra=numbers)
        case engine.UnsupportedConstraint():
            return ApiError("invalid", text, code="unsupported_constraint", retry=False)
        case engine.BadPrompt() | engine.BadSnapshot():
            return ApiError("invalid", text)
        case engine.SnapshotNotAllowed():
            return ApiError("permission", text, code="snapshot_not_allowed", retry=False)
        case engine.IdentityConflict():
            extra = {"field": exc.field, "expected": exc.expected, "found": exc.found}
            return ApiError("conflict", text, code="identity_mismatch", extra=extra, retry=False)
        case engine.OutOfMemory():
            return ApiError("storage", text, code="out_of_memory", retry=False)
        case engine.Busy():
            return ApiError("unavailable", text)
        case engine.UnusableModel():
            return ApiError("unusable", text, code="model_unusable")
        case engine.UnknownArchitecture():
            return ApiError("not_supported", text, code="model_not_supported", retry=False)
        case engine.NotSupported():
            return ApiError("not_supported", text, retry=False)
        case _:
            return ApiError("internal", "The server failed on this request; its log has the details.")


def from_load(exc: BaseException, name: str, paths: Sequence[Path]) -> ApiError:
    """Why a model could not be loaded, without where its files are: its own first, then those that are used with it.

    What would fail again asks not to be repeated.
    """
    match exc:
        case FileNotFoundError() | NotADirectoryError():
            text = f"{_file(exc, name, paths)} is not there any more; pull or add it again."
            return ApiError("not_found", text, param="model", code="model_not_found")
        case OSError():
            text = f"{_file(exc, name, paths)} cannot be read: {exc.strerror or type(exc).__name__}."
            return ApiError("unusable", text, param="model", code="model_unusable")
        case MemoryError():
            text = f"There is not enough memory to load model {name!r}."
            return ApiError("storage", text, param="model", code="out_of_memory", retry=False)
        case ApiError():
            return exc
    known = from_engine(exc)
    text = f"Model {name!r} cannot be loaded: {_hidden(known.message, paths)}"
    return ApiError(known.kind, text, param="model", code=known.code, headers=known.headers)


def _file(exc: OSError, name: str, paths: Sequence[Path]) -> str:
    """The file that could not be read, in words."""
    beside = [path for path in paths[1:] if exc.filename is not None and str(path) == str(exc.filename)]
    return (
        f"The file {beside[0].name} that model {name!r} is used with"
        if beside
        else f"The file of model {name!r}"
    )


def _hidden(text: str, paths: Sequence[Path]) -> str:
    """A message that names files, but not their folders."""
    known = sorted(
        {str(each): each for path in paths for each in (path, path.resolve())}.items(), reverse=True
    )
    for whole, path in known:  # what lies deeper first: a folder may be in another's
        text = text.replace(whole, path.name)
    for _, path in known:
        text = text.replace(f"{path.parent}/", "")
    return text
