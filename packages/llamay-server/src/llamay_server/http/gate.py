"""The outermost ASGI middleware: every request passes its checks before a route, and every answer on its way out.

In order: request id, draining, Host, Origin and preflight, key, body (limit, unpacking, slow senders). Then the route
runs in a task of its own, and the connection is watched beside it, so that a client that leaves cancels the work in
every phase: one rule for streams and for whole answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import string
from typing import TYPE_CHECKING, Any

from litestar.enums import ScopeType

from llamay_server.http.errors import ApiError, shape
from llamay_server.http.exchange import Exchange, attach, dialect_of
from llamay_server.http.frames import error_frame
from llamay_server.http.origins import CORS_METHODS, Origins
from llamay_server.http.receiving import discard, disconnected, read_body, replay
from llamay_server.http.request_log import NO_ROUTE, log_request

if TYPE_CHECKING:
    from litestar.types import ASGIApp, HTTPScope, Receive, Scope, Send

    from llamay_server.config import Config
    from llamay_server.http.keys import Keys
    from llamay_server.observability.metrics import Metrics

_ID_CHARS = frozenset(string.ascii_letters + string.digits + "-_.:")
_SECURITY_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
]
_MAX_HEADERS = 256
_MAX_HEADER_BYTES = 64 << 10
_OPEN_PATHS = frozenset(("/", "/health", "/v1/health", "/favicon.ico"))


class Gate:
    """The outermost ASGI application. `paths` are the routes without parameters."""

    def __init__(
        self, app: ASGIApp, config: Config, keys: Keys, metrics: Metrics, paths: frozenset[str] = frozenset()
    ) -> None:
        self.app, self.config, self.keys, self.metrics = app, config, keys, metrics
        self._paths = paths
        self.draining = False
        self.active: set[asyncio.Task[None]] = set()
        self.exchanges: dict[asyncio.Task[None], Exchange] = {}
        self._origins = Origins(config)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection event."""
        if scope["type"] == ScopeType.HTTP:
            await self._serve(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def _serve(self, scope: HTTPScope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        path = scope["path"]
        exchange = Exchange(_request_id(headers), dialect_of(path, headers))
        attach(scope, exchange)
        answer = _Answer(send, exchange, self.metrics, head=scope["method"] == "HEAD")
        try:
            _check_size(scope)
            if self.draining and path not in ("/health", "/metrics"):
                raise ApiError("unavailable", "The server is shutting down.", headers={"connection": "close"})
            self._origins.check_host(headers)
            preflight, cors = self._origins.check_origin(scope["method"], scope["scheme"], headers)
            answer.headers += cors
            if preflight:
                await answer.send_whole(204, {"allow": CORS_METHODS.decode()}, b"")
                return
            self._check_key(path, headers, exchange)
            if scope["method"] == "HEAD":
                # A copy: the server below still has to see that no body follows.
                scope = {**scope, "method": "GET"}
            if streams_body(scope["method"], path):
                # The route reads the body itself, part by part, and counts it.
                await self._run(scope, receive, answer, exchange, watch=False)
                return
            limit, timeout = self.config.max_body, self.config.body_timeout
            body = await read_body(headers, receive, limit=limit, timeout=timeout)
            if body is None:
                self.metrics.cancelled.labels("receive").inc()
                return
            await self._run(scope, replay(body, receive), answer, exchange, watch=True)
        except ApiError as error:
            await answer.refuse(error)
            if error.kind == "too_large":
                await discard(receive)
        finally:
            # The path of the route, without what the client put into it.
            known = path if path in self._paths else NO_ROUTE
            log_request(scope["method"], scope.get("path_template") or known, answer.status, exchange)

    async def _run(
        self, scope: Scope, receive: Receive, answer: _Answer, exchange: Exchange, *, watch: bool
    ) -> None:
        """Run the route beside a watch of the connection; the end of either ends the other."""
        work = asyncio.ensure_future(self.app(scope, receive, answer))
        self.active.add(work)
        self.exchanges[work] = exchange
        waits: set[asyncio.Future[Any]] = {work}
        if watch:
            waits.add(asyncio.ensure_future(disconnected(receive)))
        limit = self.config.request_timeout or None
        try:
            done, _ = await asyncio.wait(waits, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
            if work in done:
                work.result()
                return
            phase = exchange.phase
            await _cancel(work)
            if not done:
                await answer.fail(ApiError("timeout", f"The request took longer than {limit:g} seconds."))
            elif phase is not None:
                self.metrics.cancelled.labels(phase).inc()
        except asyncio.CancelledError:
            await _cancel(work)
            if self.draining and (task := asyncio.current_task()) is not None and task.uncancel() == 0:
                await answer.fail(ApiError("unavailable", "The server is shutting down."))
                return
            raise
        finally:
            self.active.discard(work)
            self.exchanges.pop(work, None)
            for other in waits - {work}:
                other.cancel()

    async def drain(self, timeout: float) -> int:
        """Refuse new requests, and cancel running ones after `timeout` seconds; returns how many were cancelled."""
        self.draining = True
        if self.active:
            await asyncio.wait(set(self.active), timeout=timeout)
        left = set(self.active)
        for work in left:
            self.exchanges[work].notes["ended"] = "shutdown"
            work.cancel()
        if left:
            await asyncio.wait(left, timeout=5)
        return len(left)

    def _check_key(self, path: str, headers: dict[bytes, bytes], exchange: Exchange) -> None:
        if not self.keys:
            return
        owner = self.keys.owner(headers)
        if owner is not None:
            exchange.owner, exchange.authenticated = owner, True
        elif not is_open(path, metrics_open=self.config.metrics_open):
            raise ApiError(
                "auth",
                "The API key is missing or wrong; send Authorization: Bearer KEY or x-api-key: KEY.",
                code="invalid_api_key",
                headers={"www-authenticate": "Bearer"},
            )


class _Answer:
    """The `send` of one request: adds the headers that all answers have, and drops the body of an answer to HEAD."""

    def __init__(self, send: Send, exchange: Exchange, metrics: Metrics, *, head: bool) -> None:
        self._send, self._exchange, self._metrics, self._head = send, exchange, metrics, head
        request_id = exchange.request_id.encode()
        self.headers = [(b"x-request-id", request_id), (b"request-id", request_id), *_SECURITY_HEADERS]
        self.started = self.ended = False
        self.status: int | None = None

    async def __call__(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.started, self.status = True, message["status"]
            self._metrics.requests.labels(self._exchange.dialect.value, str(message["status"])).inc()
            notes = [
                (k.encode(), v.encode())
                for k, v in self._exchange.notes.items()
                if k.startswith("x-") or k == "warning"
            ]
            message = {**message, "headers": [*message["headers"], *self.headers, *notes]}
        elif message["type"] == "http.response.body":
            self.ended = not message.get("more_body", False)
            if self._head:
                message = {**message, "body": b""}
        await self._send(message)

    async def send_whole(self, status: int, headers: dict[str, str], body: bytes) -> None:
        """Send one complete answer."""
        raw = [(k.encode(), v.encode()) for k, v in headers.items()]
        if status != 204:
            raw.append((b"content-length", str(len(body)).encode()))
        await self({"type": "http.response.start", "status": status, "headers": raw})
        await self({"type": "http.response.body", "body": body, "more_body": False})

    async def refuse(self, error: ApiError) -> None:
        """Answer with an error."""
        status, headers, body = shape(error, self._exchange.dialect, self._exchange.request_id)
        await self.send_whole(status, headers, body)

    async def fail(self, error: ApiError) -> None:
        """End an answer that cannot go on: with a status where none was sent, else with the dialect's error frame."""
        if not self.started:
            await self.refuse(error)
        elif not self.ended:
            frame = error_frame(error, self._exchange)
            await self({"type": "http.response.body", "body": frame, "more_body": False})


def is_open(path: str, *, metrics_open: bool) -> bool:
    """Return whether a path needs no key: health, the static files of the web chat, and metrics where allowed."""
    path = path.rstrip("/") or "/"
    return (
        path in _OPEN_PATHS
        or path == "/ui"
        or path.startswith("/ui/")
        or (metrics_open and path == "/metrics")
    )


def streams_body(method: str, path: str) -> bool:
    """Return whether the route reads its body itself, because the body may be larger than memory."""
    return method in ("POST", "PUT") and (
        path.rstrip("/") == "/v1/contexts/restore" or path.startswith("/api/blobs/")
    )


def _check_size(scope: HTTPScope) -> None:
    headers = list(scope["headers"])
    if len(headers) > _MAX_HEADERS or sum(len(k) + len(v) for k, v in headers) > _MAX_HEADER_BYTES:
        raise ApiError(
            "invalid",
            f"The request has more than {_MAX_HEADERS} headers or {_MAX_HEADER_BYTES} bytes of them.",
        )


def _request_id(headers: dict[bytes, bytes]) -> str:
    given = headers.get(b"x-request-id", b"").decode("latin-1")
    return given if 0 < len(given) <= 128 and _ID_CHARS.issuperset(given) else f"req_{secrets.token_hex(12)}"


async def _cancel(work: asyncio.Future[Any]) -> None:
    work.cancel()
    with contextlib.suppress(asyncio.CancelledError, Exception):
        await work
