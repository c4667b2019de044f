"""POST /api/create and /api/blobs/{digest}: models that clients create in the store, from models or uploaded files."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from litestar import Request, get, post
from litestar.types import ASGIApp

from llamay_server.http.answers import StreamedAnswer, WholeAnswer
from llamay_server.http.bodies import read_json
from llamay_server.http.errors import ApiError, invalid
from llamay_server.http.exchange import exchange_of
from llamay_server.http.frames import ndjson
from llamay_server.http.route_description import described
from llamay_server.http.uploads import receive_upload
from llamay_server.ollama.models import ask_store, managed_store
from llamay_server.ollama.recipes import CreateRequest, digest_of, recipe_of
from llamay_server.services import Services, services
from llamay_server.store import StoreError

if TYPE_CHECKING:
    from llamay_server.store import Recipe, Store


@post("/api/create", status_code=200, opt=described(body=CreateRequest))
async def create(request: Request[Any, Any, Any]) -> ASGIApp:
    """Create a model in the store."""
    service = services(request)
    store = managed_store(service)
    data = await read_json(request, CreateRequest)
    if not (name := data.model or data.name):
        raise invalid("model is required", "model")
    recipe = recipe_of(data)
    if recipe.source is not None and await asyncio.to_thread(store.find, recipe.source) is None:
        raise ApiError("not_found", f"model '{recipe.source[:200]}' not found", param="from")
    for file, sha256 in recipe.files.items():
        if not await asyncio.to_thread(store.has_blob, sha256):
            raise invalid(f"files.{file[:60]}: the blob sha256:{sha256} was not uploaded", "files")
    await service.models.forget(name)
    if data.stream is not False:
        frames = _frames(service, store, name, recipe)
        return await StreamedAnswer.lines(frames)
    last: Mapping[str, Any] = {}
    async with contextlib.aclosing(_lines(service, store, name, recipe)) as lines:
        async for line in lines:
            last = line
    return WholeAnswer(last)


async def _frames(service: Services, store: Store, name: str, recipe: Recipe) -> AsyncGenerator[bytes, None]:
    async with contextlib.aclosing(_lines(service, store, name, recipe)) as lines:
        async for line in lines:
            yield ndjson(line)


async def _lines(
    service: Services, store: Store, name: str, recipe: Recipe
) -> AsyncGenerator[Mapping[str, Any], None]:
    """Yield the status lines of creating a model.

    The creation is finished even if the client leaves, so that the store is never changed in part.
    """
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[Mapping[str, Any] | None] = asyncio.Queue()

    def status(line: Mapping[str, Any]) -> None:
        loop.call_soon_threadsafe(queue.put_nowait, dict(line))

    work = asyncio.ensure_future(asyncio.to_thread(store.create, name, recipe, status))
    work.add_done_callback(lambda _: queue.put_nowait(None))
    while (line := await queue.get()) is not None:
        yield line
    try:
        await work
    except StoreError as e:
        raise ApiError("not_found" if e.missing else "invalid", str(e)) from e
    # A request during the creation may have found the former model of the name.
    with contextlib.suppress(ApiError):
        await service.models.forget(name)
    yield {"status": "success"}


@get("/api/blobs/{digest:str}", opt=described(hidden=True))
async def has_blob(request: Request[Any, Any, Any]) -> ASGIApp:
    """Tell whether an upload is here already: 200 or 404."""
    store = managed_store(services(request))
    sha256 = digest_of(str(request.path_params["digest"]), "digest")
    if not await asyncio.to_thread(store.has_blob, sha256):
        raise ApiError("not_found", f"blob sha256:{sha256} not found")
    return WholeAnswer(b"", media="text/plain")


@post("/api/blobs/{digest:str}", status_code=201, opt=described(hidden=True))
async def add_blob(request: Request[Any, Any, Any]) -> ASGIApp:
    """Receive a file. A file whose digest differs from the path's is refused and not kept."""
    service, exchange = services(request), exchange_of(request.scope)
    store = managed_store(service)
    sha256 = digest_of(str(request.path_params["digest"]), "digest")
    exchange.phase = "receive"
    try:
        with await ask_store(store.receiving) as receiving:
            found = await _receive(receiving, request, service)
            if found != sha256:
                raise invalid(f"digest mismatch: expected sha256:{sha256}, got sha256:{found}", "digest")
            await ask_store(lambda: store.keep_blob(receiving, sha256))
    except OSError as e:
        raise ApiError("storage", f"The blob could not be stored: {e.strerror}.", retry=False) from e
    return WholeAnswer(b"", status=201, media="text/plain")


async def _receive(path: Path, request: Request[Any, Any, Any], service: Services) -> str:
    """Write the body to a file; returns its SHA-256 in hex."""
    digest, config = hashlib.sha256(), service.config
    with path.open("wb") as file:

        def write(piece: bytes) -> None:
            file.write(piece)
            digest.update(piece)

        await receive_upload(request, write, what="blob", limit=config.max_blob, timeout=config.body_timeout)
    return digest.hexdigest()


HANDLERS = [create, has_blob, add_blob]
