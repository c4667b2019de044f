"""The record of one HTTP exchange, a request and its answer, kept in the ASGI scope."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from llamay_server.http.errors import Dialect

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from llamay_server.http.connection import Body
    from llamay_server.http.errors import ApiError

_KEY = "llamay.exchange"


@dataclass(slots=True)
class Spent:
    """The cost of one request's generations: tokens, and the time of the first one, in `time.monotonic()` seconds."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    first_token: float | None = None


@dataclass(slots=True)
class Exchange:
    """One request and its answer: its owner, its dialect, and the phase of its work.

    `phase` is the phase of the work that a leaving client would interrupt: receive, queue, load, compile, prefill or
    decode. It is None once the answer is complete: a client that leaves then cancels nothing.
    """

    request_id: str
    dialect: Dialect
    owner: str = ""
    authenticated: bool = False
    phase: str | None = "receive"
    model: str = ""
    started: float = field(default_factory=time.monotonic)
    fail_frame: Callable[[ApiError], bytes] | None = None
    """Writes the frame with which this answer's stream fails, where that is not the usual one of its dialect."""
    body: Body | None = None
    """The body of a streamed answer that is under way; frames may be written to it past the framework."""
    spent: Spent = field(default_factory=Spent)
    """The cost of the request, for the log; complete when its generations have ended."""
    notes: dict[str, str] = field(default_factory=dict)
    """Headers of the answer that are known while it is made, such as a warning about tools that were left out."""

    def warn(self, text: str) -> None:
        """Tell the client something beside the answer, in its Warning header (RFC 7234, section 5.5)."""
        plain = "".join(c if " " <= c <= "~" and c not in '"\\\\' else "_" for c in text)[:400]
        self.notes["warning"] = f'299 llamay "{plain}"'


def attach(scope: Any, exchange: Exchange) -> None:
    """Keep an exchange in its ASGI scope."""
    scope[_KEY] = exchange


def exchange_of(scope: Mapping[str, Any]) -> Exchange:
    """Return the exchange that an ASGI scope belongs to."""
    exchange: Exchange = scope[_KEY]
    return exchange


def dialect_of(path: str, headers: Mapping[bytes, bytes]) -> Dialect:
    """Return the dialect of the clients that use a path; on shared paths, Anthropic's clients send a version header."""
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
