"""Contexts as files: download, upload, and moving one to another server."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from litestar import Request, get, post
from litestar.types import ASGIApp, Receive, Scope, Send
from msgspec import Struct

from llamay_models.errors import SnapshotError
from llamay_server.contexts_api.moves import Target, check_target, send
from llamay_server.contexts_api.reading import check_length, engine_work
from llamay_server.contexts_api.routes import named_of
from llamay_server.engine.blocking import release
from llamay_server.http.answers import WholeAnswer
from llamay_server.http.bodies import read_json
from llamay_server.http.errors import ApiError, invalid
from llamay_server.http.exchange import exchange_of
from llamay_server.http.route_description import described
from llamay_server.http.uploads import receive_upload
from llamay_server.services import Services, services

if TYPE_CHECKING:
    from llamay_server.engine.protocol import Progress

T = TypeVar("T")
MEDIA = "application/vnd.llamay.context"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_RESTORE_QUERY = [{"name": name, "schema": {"type": "string"}} for name in ("model", "label", "marking")]
_CHUNK = 1 << 20


@contextlib.asynccontextmanager
async def _scratch(service: Services) -> AsyncIterator[Path]:
    """Yield a temporary file that only this user may read."""
    try:
        handle, name = tempfile.mkstemp(prefix="llamay-", suffix=".ctx", dir=service.config.ctx_dir or None)
    except OSError as e:
        raise _no_room(e) from e
    os.close(handle)
    path = Path(name)
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


async def _snapshot_work(work: Callable[[Progress], T], path: Path) -> T:
    """Do blocking work on a snapshot. A full disk becomes a 507; other messages leave out the path of the file."""
    try:
        return await engine_work(work, hide=path)
    except OSError as e:
        raise _no_room(e) from e
    except ApiError as e:
        error = e.__cause__
        cause = error.__cause__ if isinstance(error, SnapshotError) else None
        if isinstance(cause, OSError) and cause.errno in _FULL:
            raise _no_room(cause) from e
        raise


def _no_room(error: OSError) -> ApiError:
    if error.errno in _FULL:
        return ApiError("storage", "No space is left for the snapshot.", code="disk_full", retry=False)
    return ApiError("internal", "The snapshot could not be written on the server.")


class _Download:
    """A file as an answer: sent part by part, and removed at the end."""

    def __init__(self, stack: contextlib.AsyncExitStack, path: Path, name: str, metrics: Any) -> None:
        self.stack, self.path, self.name, self.metrics = stack, path, name, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the file."""
        async with self.stack:
            with self.path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                headers = [
                    (b"content-type", MEDIA.encode()),
                    (b"content-length", str(size).encode()),
                    (b"content-disposition", f'attachment; filename="{self.name}.llamay"'.encode()),
                ]
                await send({"type": "http.response.start", "status": 200, "headers": headers})
                while part := await asyncio.to_thread(file.read, _CHUNK):
                    self.metrics.labels("out").inc(len(part))
                    await send({"type": "http.response.body", "body": part, "more_body": True})
            exchange_of(scope).phase = None
            await send({"type": "http.response.body", "body": b"", "more_body": False})


@get("/v1/contexts/{context_id:str}/snapshot", opt=described(media=MEDIA))
async def snapshot(request: Request[Any, Any, Any]) -> ASGIApp:
    """Download a context as a file, to be restored here, elsewhere, or in Python."""
    service, exchange = services(request), exchange_of(request.scope)
    named = named_of(request, service, exchange)
    labels = service.markings.labels(service.snapshot_owner(exchange), named.marking)
    stack = contextlib.AsyncExitStack()
    async with stack, service.models.use(named.model) as (_, model):
        path = await stack.enter_async_context(_scratch(service))
        copy = named.context.fork()
        try:
            await _snapshot_work(lambda progress: model.save(copy, path, labels, progress=progress), path)
        finally:
            release(copy)
        service.metrics.context_ops.labels(named.model, "snapshot").inc()
        return _Download(stack.pop_all(), path, named.id, service.metrics.snapshot_bytes)
    raise AssertionError("unreachable")


@post(
    "/v1/contexts/restore",
    status_code=201,
    opt=described(body="application/octet-stream", query=_RESTORE_QUERY),
)
async def restore(request: Request[Any, Any, Any]) -> ASGIApp:
    """Restore a context from a snapshot in the body; 409 for one of other weights or settings."""
    service, exchange = services(request), exchange_of(request.scope)
    service.contexts.check_room(exchange.owner, 1)
    query = request.query_params
    label, marking = query.get("label", "")[:256], query.get("marking", "")[:256]
    service.markings.check(exchange.owner, marking)
    handles, owner = service.markings.of(exchange.owner), service.snapshot_owner(exchange)
    async with service.models.use(query.get("model"), exchange) as (entry, model), _scratch(service) as path:
        exchange.phase = "receive"
        await _receive_into(path, request, service)
        exchange.phase = "load"
        context = await _snapshot_work(
            lambda progress: model.restore(path, owner=owner, markings=handles, progress=progress), path
        )
        try:
            check_length(len(context), model)
            service.contexts.check_room(exchange.owner, 1, len(context))
        except ApiError:
            release(context)
            raise
        named = service.contexts.add(
            context, owner=exchange.owner, model=entry.name, label=label, marking=context.marking or marking
        )
    service.metrics.context_ops.labels(named.model, "restore").inc()
    return WholeAnswer(named.view(), status=201, headers={"location": f"/v1/contexts/{named.id}"})


async def _receive_into(path: Path, request: Request[Any, Any, Any], service: Services) -> None:
    """Write the body to a file."""
    counted, config = service.metrics.snapshot_bytes.labels("in"), service.config
    with path.open("wb") as file:

        def write(piece: bytes) -> None:
            file.write(piece)
            counted.inc(len(piece))

        try:
            size = await receive_upload(
                request, write, what="snapshot", limit=config.max_snapshot, timeout=config.body_timeout
            )
        except OSError as e:
            raise _no_room(e) from e
    if size == 0:
        raise invalid("The body is empty; send a snapshot.", code="missing_body")


class MoveContext(Struct, kw_only=True):
    """Body of POST /v1/contexts/{id}/move."""

    to: str
    key: str | None = None
    model: str | None = None


@post("/v1/contexts/{context_id:str}/move", status_code=200, opt=described(body=MoveContext))
async def move(request: Request[Any, Any, Any]) -> ASGIApp:
    """Move a context to another server; it is closed here once the other server has it."""
    service, exchange = services(request), exchange_of(request.scope)
    data = await read_json(request, MoveContext)
    named = named_of(request, service, exchange)
    target = Target(check_target(data.to, service.config.move_targets), data.key or "")
    labels = service.markings.labels(service.snapshot_owner(exchange), named.marking)
    async with (
        service.contexts.writing(named, "move") as write,
        service.models.use(named.model) as (_, model),
        _scratch(service) as path,
    ):
        context = write.context

        def work(progress: Progress) -> str:
            model.save(context, path, labels, progress=progress)
            name = data.model if data.model is not None else named.model
            return send(path, target, model=name, label=named.label, marking=named.marking, progress=progress)

        new_id = await _snapshot_work(work, path)
        service.contexts.moved(named, target.url, new_id)
    service.metrics.context_ops.labels(named.model, "move").inc()
    return WholeAnswer(
        {"id": named.id, "object": "context.moved", "moved": {"server": target.url, "id": new_id}}
    )


HANDLERS = [snapshot, restore, move]
