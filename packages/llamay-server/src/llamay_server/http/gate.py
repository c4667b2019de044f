"""The door: what every request passes before a route sees it, and what every answer passes on its way out.

In order: request id, draining, Host, Origin and preflight, key, body (limit, unpacking, slow senders). Then the route
runs in a task of its own beside a watch on the connection, so that a client that leaves cancels the work in whatever
phase it is: one rule for streams and for plain answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import secrets
import string
import zlib
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from litestar.enums import ScopeType

from llamay_server.config import is_loopback
from llamay_server.http import answers
from llamay_server.http.call import Call, attach, dialect_of
from llamay_server.http.errors import ApiError, shape

if TYPE_CHECKING:
    from collections.abc import Callable

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
_CORS_METHODS = b"GET, HEAD, POST, DELETE, PUT, OPTIONS"
_MAX_HEADERS = 256
_MAX_HEADER_BYTES = 64 << 10


class Gate:
    """The outermost ASGI application."""

    def __init__(self, app: ASGIApp, config: Config, keys: Keys, metrics: Metrics) -> None:
        self.app, self.config, self.keys, self.metrics = app, config, keys, metrics
        self.draining = False
        self.active: set[asyncio.Task[None]] = set()
        self.calls: dict[asyncio.Task[None], Call] = {}
        self._origins = {origin.rstrip("/").lower() for origin in config.origins}
        self._hosts = {host.lower().rstrip(".") for host in config.allowed_hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection event."""
        if scope["type"] == ScopeType.HTTP:
            await self._serve(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def _serve(self, scope: HTTPScope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        path = scope["path"]
        call = Call(_request_id(headers), dialect_of(path, headers))
        attach(scope, call)
        answer = _Answer(send, call, self.metrics, head=scope["method"] == "HEAD")
        try:
            self._check_size(scope)
            if self.draining and path not in ("/health", "/metrics"):
                raise ApiError("unavailable", "The server is shutting down.", headers={"connection": "close"})
            self._check_host(headers, answer)
            if self._check_origin(scope, headers, answer):
                await answer.send_whole(204, {"allow": _CORS_METHODS.decode()}, b"")
                return
            self._check_key(path, headers, call)
            if scope["method"] == "HEAD":
                # A copy: the server below still has to know that no body follows.
                scope = {**scope, "method": "GET"}
            if answers.streams_body(scope["method"], path):
                # The route reads the body itself, part by part, and counts it.
                await self._run(scope, receive, answer, call, watch=False)
                return
            body = await self._read_body(headers, receive)
            if body is None:
                self.metrics.cancelled.labels("receive").inc()
                return
            await self._run(scope, _replay(body, receive), answer, call, watch=True)
        except ApiError as error:
            await answer.refuse(error)
            if error.kind == "too_large":
                await _discard(receive)

    async def _run(self, scope: Scope, receive: Receive, answer: _Answer, call: Call, *, watch: bool) -> None:
        """Run the route; whichever ends first, the work or the connection, ends the other."""
        work = asyncio.ensure_future(self.app(scope, receive, answer))
        self.active.add(work)
        self.calls[work] = call
        waits: set[asyncio.Future[Any]] = {work}
        if watch:
            waits.add(asyncio.ensure_future(_gone(receive)))
        limit = self.config.request_timeout or None
        try:
            done, _ = await asyncio.wait(waits, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
            if work in done:
                work.result()
                return
            phase = call.phase
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
            self.calls.pop(work, None)
            for other in waits - {work}:
                other.cancel()

    async def drain(self, timeout: float) -> int:
        """Take nothing new, let what runs finish for `timeout` seconds, then end it; gives how many were ended."""
        self.draining = True
        if self.active:
            await asyncio.wait(set(self.active), timeout=timeout)
        left = set(self.active)
        for work in left:
            self.calls[work].notes["ended"] = "shutdown"
            work.cancel()
        if left:
            await asyncio.wait(left, timeout=5)
        return len(left)

    def _check_size(self, scope: HTTPScope) -> None:
        headers = list(scope["headers"])
        if len(headers) > _MAX_HEADERS or sum(len(k) + len(v) for k, v in headers) > _MAX_HEADER_BYTES:
            raise ApiError(
                "invalid",
                f"The request has more than {_MAX_HEADERS} headers or {_MAX_HEADER_BYTES} bytes of them.",
            )

    def _check_host(self, headers: dict[bytes, bytes], answer: _Answer) -> None:
        """A page that rebinds its own name to 127.0.0.1 still sends that name: only local names are answered."""
        host = headers.get(b"host", b"").decode("latin-1")
        name = _hostname(host)
        if not name:
            raise ApiError("invalid", "The Host header is missing or malformed.")
        if self.config.uds or not (self.config.loopback or self._hosts):
            return
        if not (is_loopback(name) or name in self._hosts or host.lower() in self._hosts):
            raise ApiError("permission", f"Host {name!r} is not served here; add it with --allowed-hosts.")

    def _check_origin(self, scope: HTTPScope, headers: dict[bytes, bytes], answer: _Answer) -> bool:
        """Refuse foreign web pages; True where the request was a preflight and is answered by its headers."""
        origin = headers.get(b"origin")
        preflight = scope["method"] == "OPTIONS" and b"access-control-request-method" in headers
        if origin is None:
            return False
        text = origin.decode("latin-1").rstrip("/").lower()
        if text not in self._origins and "*" not in self._origins and not self._is_own(text, headers, scope):
            if preflight:
                return True  # Without Access-Control-Allow-Origin the browser itself refuses.
            raise ApiError(
                "permission", f"Web pages of origin {text!r} may not call this server; see --origins."
            )
        answer.headers += [(b"access-control-allow-origin", origin), (b"vary", b"Origin")]
        answer.headers.append(
            (b"access-control-expose-headers", b"x-request-id, x-should-retry, retry-after")
        )
        if preflight:
            wanted = headers.get(b"access-control-request-headers", b"authorization, content-type, x-api-key")
            answer.headers += [
                (b"access-control-allow-methods", _CORS_METHODS),
                (b"access-control-allow-headers", wanted[:2048]),
                (b"access-control-max-age", b"600"),
            ]
        return preflight

    def _is_own(self, origin: str, headers: dict[bytes, bytes], scope: HTTPScope) -> bool:
        """Whether a page came from this server: same scheme, name and port, and a name that cannot be rebound."""
        parts = urlsplit(origin)
        host = headers.get(b"host", b"").decode("latin-1").lower()
        name = _hostname(host)
        trusted = is_loopback(name) or name in self._hosts or _is_address(name)
        return trusted and parts.scheme == scope["scheme"] and parts.netloc == host

    def _check_key(self, path: str, headers: dict[bytes, bytes], call: Call) -> None:
        if not self.keys:
            return
        owner = self.keys.owner(headers)
        if owner is not None:
            call.owner, call.authenticated = owner, True
        elif not answers.is_open(path, metrics_open=self.config.metrics_open):
            raise ApiError(
                "auth",
                "The API key is missing or wrong; send Authorization: Bearer KEY or x-api-key: KEY.",
                code="invalid_api_key",
                headers={"www-authenticate": "Bearer"},
            )

    async def _read_body(self, headers: dict[bytes, bytes], receive: Receive) -> bytes | None:
        """The whole body, unpacked; None where the client left before it was whole."""
        limit = self.config.max_body
        length = headers.get(b"content-length", b"")
        if length.isdigit() and int(length) > limit:
            raise _too_large(limit)
        parts: list[bytes] = []
        size = 0
        while True:
            try:
                async with asyncio.timeout(self.config.body_timeout):
                    message = await receive()
            except TimeoutError:
                raise ApiError(
                    "slow", "The request body came too slowly.", headers={"connection": "close"}
                ) from None
            if message["type"] != "http.request":
                return None
            if part := message["body"]:
                parts.append(part)
                size += len(part)
                if size > limit:
                    raise _too_large(limit)
            if not message["more_body"]:
                break
        body = b"".join(parts)
        encoding = headers.get(b"content-encoding", b"").decode("latin-1").strip().lower()
        return body if encoding in ("", "identity") else unpack(body, encoding, limit)


class _Answer:
    """The way out of one request: adds the common headers, drops the body of HEAD, knows whether bytes left."""

    def __init__(self, send: Send, call: Call, metrics: Metrics, *, head: bool) -> None:
        self._send, self._call, self._metrics, self._head = send, call, metrics, head
        request_id = call.request_id.encode()
        self.headers = [(b"x-request-id", request_id), (b"request-id", request_id), *_SECURITY_HEADERS]
        self.started = self.ended = False

    async def __call__(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            self._metrics.requests.labels(self._call.dialect.value, str(message["status"])).inc()
            notes = [
                (k.encode(), v.encode())
                for k, v in self._call.notes.items()
                if k.startswith("x-") or k == "warning"
            ]
            message = {**message, "headers": [*message["headers"], *self.headers, *notes]}
        elif message["type"] == "http.response.body":
            self.ended = not message.get("more_body", False)
            if self._head:
                message = {**message, "body": b""}
        await self._send(message)

    async def send_whole(self, status: int, headers: dict[str, str], body: bytes) -> None:
        """One complete answer."""
        raw = [(k.encode(), v.encode()) for k, v in headers.items()]
        if status != 204:
            raw.append((b"content-length", str(len(body)).encode()))
        await self({"type": "http.response.start", "status": status, "headers": raw})
        await self({"type": "http.response.body", "body": body, "more_body": False})

    async def refuse(self, error: ApiError) -> None:
        """Answer with a refusal."""
        status, headers, body = shape(error, self._call.dialect, self._call.request_id)
        await self.send_whole(status, headers, body)

    async def fail(self, error: ApiError) -> None:
        """End an answer that cannot go on: as a status where none was sent, else as this dialect's error frame."""
        if not self.started:
            await self.refuse(error)
        elif not self.ended:
            frame = answers.error_frame(error, self._call)
            await self({"type": "http.response.body", "body": frame, "more_body": False})


def unpack(body: bytes, encoding: str, limit: int) -> bytes:
    """A body as it was before `Content-Encoding`, never more than `limit` bytes: a bomb is stopped, not unpacked."""
    try:
        if encoding in ("gzip", "x-gzip", "deflate"):
            stream = zlib.decompressobj(wbits=47 if encoding != "deflate" else 15)
            out = stream.decompress(body, limit + 1)
            if len(out) <= limit and not stream.eof:
                raise ApiError("invalid", f"The {encoding} body is cut short.")
        elif encoding == "zstd":
            out = _unzstd(body, limit)
        else:
            raise ApiError(
                "invalid", f"Content-Encoding {encoding[:40]!r} is not supported; use gzip, deflate or zstd."
            )
    except (zlib.error, ValueError) as e:
        raise ApiError("invalid", f"The {encoding} body is damaged.") from e
    if len(out) > limit:
        raise _too_large(limit)
    return out


def _unzstd(body: bytes, limit: int) -> bytes:
    try:
        import zstandard
    except ImportError:
        raise ApiError(
            "not_supported", "Reading zstd bodies needs the package zstandard on the server."
        ) from None
    try:
        reader = zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(body)
        return bytes(reader.read(limit + 1))
    except zstandard.ZstdError as e:
        raise ValueError(str(e)) from e


def _too_large(limit: int) -> ApiError:
    return ApiError(
        "too_large",
        f"The request body is larger than the limit of {limit} bytes.",
        code="request_too_large",
        headers={"connection": "close"},
    )


def _request_id(headers: dict[bytes, bytes]) -> str:
    given = headers.get(b"x-request-id", b"").decode("latin-1")
    return given if 0 < len(given) <= 128 and _ID_CHARS.issuperset(given) else f"req_{secrets.token_hex(12)}"


def _hostname(host: str) -> str:
    """The name part of a Host header, lower case, without port, brackets or the root's dot; empty where malformed."""
    if any(c in host for c in "/@\\ ,"):
        return ""
    name, _, port = host.partition("]")[::1] if host.startswith("[") else host.partition(":")
    port = port.removeprefix(":")
    if port and not port.isdigit():
        return ""
    return name.removeprefix("[").lower().rstrip(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _replay(body: bytes, receive: Receive) -> Receive:
    """`receive` that first gives a body already read."""
    pending: list[Any] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Any:
        if pending:
            return pending.pop()
        # The watch beside the route owns the connection; a route that asks again waits for its own end.
        await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    replay.connection = receive  # type: ignore[attr-defined]
    return replay


async def _gone(receive: Receive) -> None:
    """Return once the client has left."""
    source: Callable[[], Any] = getattr(receive, "connection", receive)
    while (await source())["type"] != "http.disconnect":
        pass


async def _cancel(work: asyncio.Future[Any]) -> None:
    work.cancel()
    with contextlib.suppress(asyncio.CancelledError, Exception):
        await work


async def _discard(receive: Receive, *, limit: int = 64 << 20, seconds: float = 5.0) -> None:
    """Swallow some of a refused body, because many clients read the answer only after they could send."""
    size = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while size < limit:
                message = await receive()
                if message["type"] != "http.request" or not message["more_body"]:
                    return
                size += len(message["body"])
