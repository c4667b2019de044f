"""`ApiError`, the one error type of the server, and the shape that it has in each dialect.

A handler raises `ApiError(kind, message)`. `shape` gives status, headers and body as the clients of a dialect read
them: OpenAI's, llama.cpp's, Anthropic's, Ollama's, or problem+json (RFC 9457) on the server's own routes.

SDKs repeat a request by themselves after 408, 409, 429 and 5xx. An error that would occur again therefore has
another status, or the header `x-should-retry: false`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

import msgspec


class Dialect(Enum):
    """The API that the clients of a route speak."""

    OPENAI = "openai"
    LLAMACPP = "llamacpp"
    """OpenAI's shapes, but for the `type` of a prompt that is too long, which is llama.cpp's."""
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
    """An error in the form that a client gets.

    Attributes:
        kind: a key of the table above, which gives the status and the dialects' error types.
        param: the path of the field that is wrong.
        code: a short name of the error for programs.
        extra: members that the error object has beside these, where the dialect has room for them.
        headers: headers of the answer. `retry=False` adds the one that tells clients not to repeat the request.

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
        """Return the HTTP status in this dialect."""
        return _STATUS_EXCEPTIONS.get((dialect, self.kind), _KINDS[self.kind][0])


def invalid(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """Return a 400 that names the field at `param`."""
    return ApiError("invalid", message, param=param, code=code)


def unsupported(name: str, why: str = "this server does not support it") -> ApiError:
    """Return a 400 for a field that is known and cannot be honoured."""
    return ApiError("invalid", f"{name}: {why}; leave it out.", param=name, code="unsupported_parameter")


def body(error: ApiError, dialect: Dialect, request_id: str = "") -> dict[str, Any]:
    """Return the JSON object that goes out, as answer or, in most dialects, as a frame of a stream."""
    _, openai_type, anthropic_type = _KINDS[error.kind]
    if dialect is Dialect.ANTHROPIC:
        message = error.message
        if error.kind == "overflow" and "n_prompt_tokens" in error.extra:
            # Claude Code reads both numbers out of exactly this sentence.
            message = f"prompt is too long: {error.extra['n_prompt_tokens']} tokens > {error.extra['n_ctx']} maximum"
        detail: dict[str, Any] = {"type": anthropic_type, "message": message}
        if error.code is not None and error.code.startswith("thread_"):
            # The client's helpers read this code, and send the whole conversation again.
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
    """Return the status, the headers and the encoded body of a refusal."""
    media = "application/problem+json" if dialect is Dialect.OWN else "application/json"
    headers = {"content-type": media} | error.headers
    return error.status(dialect), headers, msgspec.json.encode(body(error, dialect, request_id))
