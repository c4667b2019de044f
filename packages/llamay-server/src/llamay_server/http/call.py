"""What the server knows of one request, kept in the ASGI scope while it is answered."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from llamay_server.http.errors import Dialect

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from llamay_server.http.connection import Body
    from llamay_server.http.errors import ApiError

_KEY = "llamay.call"


@dataclass(slots=True)
class Call:
    """One request: who asks, in which dialect, and how far it has come.

    `phase` is what a client that leaves now would interrupt: receive, queue, load, compile, prefill or decode; None
    once the answer is complete, when leaving is no cancel.
    """

    request_id: str
    dialect: Dialect
    owner: str = ""
    authenticated: bool = False
    phase: str | None = "receive"
    model: str = ""
    started: float = field(default_factory=time.monotonic)
    fail_frame: Callable[[ApiError], bytes] | None = None
    """How a stream of this request says that it cannot go on, where that differs from its dialect's usual way."""
    body: Body | None = None
    """Where frames of a stream may go without waiting, once the stream has begun."""
    notes: dict[str, str] = field(default_factory=dict)
    """Headers that the answer gets, such as warnings about tools that were left out."""

    def warn(self, text: str) -> None:
        """Say something beside the answer, in its Warning header."""
        plain = "".join(c if " " <= c <= "~" and c not in '"\\\\' else "_" for c in text)[:400]
        self.notes["warning"] = f'299 llamay "{plain}"'


def attach(scope: Any, call: Call) -> None:
    """Keep the call in its scope."""
    scope[_KEY] = call


def call_of(scope: Mapping[str, Any]) -> Call:
    """The call of a request's scope."""
    call: Call = scope[_KEY]
    return call


def dialect_of(path: str, headers: Mapping[bytes, bytes]) -> Dialect:
    """Whose clients a path belongs to; an Anthropic client is known by its version header on shared paths."""
    if path.startswith("/v1/contexts"):
        return Dialect.OWN
    if path.startswith("/v1/messages"):
        return Dialect.ANTHROPIC
    if path.startswith(("/api/", "/v1/systemone")) or path == "/api":
        return Dialect.OLLAMA
    if b"anthropic-version" in headers and not path.startswith(
        ("/v1/chat", "/v1/responses", "/v1/completions")
    ):
        return Dialect.ANTHROPIC
    return Dialect.OPENAI if path.startswith("/v1/") else Dialect.LLAMACPP
