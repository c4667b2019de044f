"""Contexts as files: download, upload, and handing one over to another server."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from litestar import Request, get, post
from litestar.types import ASGIApp, Receive, Scope, Send
from msgspec import Struct

from llamay_server.contexts.moves import Target, check_target, send
from llamay_server.contexts.routes import check_length, engine, named_of
from llamay_server.http.answers import Whole, read_json, release
from llamay_server.http.call import call_of
from llamay_server.http.errors import ApiError, invalid
from llamay_server.http.uploads import receive
from llamay_server.services import Services, services

_CHUNK = 1 << 20


@contextlib.asynccontextmanager
async def _scratch(service: Services) -> AsyncIterator[Path]:
    """A file of its own, readable by nobody else, gone afterwards."""
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


def _no_room(error: OSError) -> ApiError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return ApiError("storage", "No space is left for the snapshot.", code="disk_full", retry=False)
    return ApiError("internal", "The snapshot could not be written on the server.")


class _Download:
    """A file as an answer, sent part by part and removed afterwards."""

    def __init__(self, stack: contextlib.AsyncExitStack, path: Path, name: str, metrics: Any) -> None:
        self.stack, self.path, self.name, self.metrics = stack, path, name, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        async with self.stack:
            with self.path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                headers = [
                    (b"content-type", b"application/vnd.llamay.context"),
                    (b"content-length", str(size).encode()),
                    (b"content-disposition", f'attachment; filename="{self.name}.llamay"'.encode()),
                ]
                await send({"type": "http.response.start", "status": 200, "headers": headers})
                while part := await asyncio.to_thread(file.read, _CHUNK):
                    self.metrics.labels("out").inc(len(part))
                    await send({"type": "http.response.body", "body": part, "more_body": True})
            call_of(scope).phase = None
            await send({"type": "http.response.body", "body": b"", "more_body": False})


@get("/v1/contexts/{context_id:str}/snapshot")
async def snapshot(request: Request[Any, Any, Any]) -> ASGIApp:
    """A context as a file: restore it here, elsewhere, or in Python."""
    service, call = services(request), call_of(request.scope)
    named = named_of(request, service, call)
    labels = service.markings.labels(service.snapshot_owner(call), named.marking)
    stack = contextlib.AsyncExitStack()
    async with stack:
        path = await stack.enter_async_context(_scratch(service))
        copy = named.context.fork(1)[0]
        try:
            await engine(lambda progress: copy.save(path, labels=labels, progress=progress))
        except OSError as e:
            raise _no_room(e) from e
        finally:
            release(copy)
        service.metrics.context_ops.labels(named.model, "snapshot").inc()
        return _Download(stack.pop_all(), path, named.id, service.metrics.snapshot_bytes)
    raise AssertionError("unreachable")


@post("/v1/contexts/restore", status_code=201)
async def restore(request: Request[Any, Any, Any]) -> ASGIApp:
    """A context from a snapshot in the body. 409 where other weights or settings made it."""
    service, call = services(request), call_of(request.scope)
    service.contexts.check_room(call.owner, 1)
    query = request.query_params
    label, marking = query.get("label", "")[:256], query.get("marking", "")[:256]
    service.markings.check(call.owner, marking)
    handles, owner = service.markings.of(call.owner), service.snapshot_owner(call)
    async with service.models.use(query.get("model"), call) as (entry, model), _scratch(service) as path:
        call.phase = "receive"
        await _receive_into(path, request, service)
        call.phase = "load"
        context = await engine(
            lambda progress: model.restore(path, owner=owner, markings=handles, progress=progress)
        )
        try:
            check_length(len(context), model)
            service.contexts.check_room(call.owner, 1, len(context))
        except ApiError:
            release(context)
            raise
        named = service.contexts.add(
            context, owner=call.owner, model=entry.name, label=label, marking=context.marking or marking
        )
    service.metrics.context_ops.labels(named.model, "restore").inc()
    return Whole(named.view(), status=201, headers={"location": f"/v1/contexts/{named.id}"})


async def _receive_into(path: Path, request: Request[Any, Any, Any], service: Services) -> None:
    """The body into a file."""
    counted, config = service.metrics.snapshot_bytes.labels("in"), service.config
    with path.open("wb") as file:

        def write(piece: bytes) -> None:
            file.write(piece)
            counted.inc(len(piece))

        try:
            size = await receive(
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


@post("/v1/contexts/{context_id:str}/move", status_code=200)
async def move(request: Request[Any, Any, Any]) -> ASGIApp:
    """Hand a context over to another server; it is given up here once the other one has it."""
    service, call = services(request), call_of(request.scope)
    data = await read_json(request, MoveContext)
    named = named_of(request, service, call)
    target = Target(check_target(data.to, service.config.move_targets), data.key or "")
    labels = service.markings.labels(service.snapshot_owner(call), named.marking)
    async with service.contexts.writing(named, "move") as writer, _scratch(service) as path:
        context = writer.context

        def work(progress: Any) -> str:
            context.save(path, labels=labels, progress=progress)
            model = data.model if data.model is not None else named.model
            return send(
                path, target, model=model, label=named.label, marking=named.marking, progress=progress
            )

        try:
            new_id = str(await engine(work))
        except OSError as e:
            raise _no_room(e) from e
        service.contexts.moved(named, target.url, new_id)
    service.metrics.context_ops.labels(named.model, "move").inc()
    return Whole({"id": named.id, "object": "context.moved", "moved": {"server": target.url, "id": new_id}})


HANDLERS = [snapshot, restore, move]
