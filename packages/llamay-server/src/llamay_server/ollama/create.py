"""POST /api/create and /api/blobs/{digest}: models of the store made by clients, from models or from uploaded files."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

import msgspec
from litestar import Request, get, post
from litestar.types import ASGIApp
from msgspec import Meta, Struct

from llamay_server.http.answers import Streamed, Whole, ndjson, read_json
from llamay_server.http.call import call_of
from llamay_server.http.errors import ApiError, invalid
from llamay_server.http.uploads import receive
from llamay_server.ollama.generation import OllamaMessage, Options, read_messages
from llamay_server.ollama.models import ask_store, managed_store
from llamay_server.services import Services, services
from llamay_server.store import Recipe, Store, StoreError

_DIGEST = re.compile(r"sha256[:-]([0-9a-f]{64})")
_MAX_PROFILE = 512 << 10


class CreateRequest(Struct, kw_only=True):
    """Body of POST /api/create."""

    model: str | None = None
    name: str | None = None
    from_: str | None = msgspec.field(default=None, name="from")
    files: dict[str, str] | None = None
    adapters: dict[str, str] | None = None
    template: str | None = None
    system: str | None = None
    license: str | list[str] | None = None
    parameters: dict[str, Any] | None = None
    messages: Annotated[list[OllamaMessage], Meta(max_length=1000)] | None = None
    quantize: str | None = None
    quantization: str | None = None
    modelfile: str | None = None
    stream: bool | None = None


class RecipeError(ValueError):
    """A description of a model that cannot be made; the message names the field."""


def read_recipe(body: Mapping[str, Any]) -> Recipe:
    """The checked recipe of a body of `/api/create`. Raises `RecipeError`."""
    try:
        return recipe_of(msgspec.convert(dict(body), CreateRequest))
    except msgspec.ValidationError as e:
        raise RecipeError(str(e).replace("`$.", "`")) from None
    except ApiError as e:
        raise RecipeError(e.message) from None


def recipe_of(data: CreateRequest) -> Recipe:
    """The checked recipe of a request. Raises a 400 naming the field."""
    if data.modelfile:
        raise invalid("modelfile: not supported here; send from or files", "modelfile")
    if bool(data.from_) == bool(data.files):
        raise invalid("send either from (a model) or files (uploaded GGUF files)", "from")
    files, adapters = (
        {
            _file_name(name, field): digest_of(digest, f"{field}.{name[:60]}")
            for name, digest in (given or {}).items()
        }
        for field, given in (("files", data.files), ("adapters", data.adapters))
    )
    changes: dict[str, Any] = {}
    if data.template is not None:
        changes["template"] = data.template
    if data.system is not None:
        changes["system"] = data.system
    if data.license is not None:
        changes["license"] = [data.license] if isinstance(data.license, str) else data.license
    if data.parameters is not None:
        changes["parameters"] = _parameters(data.parameters)
    if data.messages is not None:
        read_messages(data.messages)
        changes["messages"] = msgspec.to_builtins(
            [{k: v for k, v in msgspec.structs.asdict(m).items() if v is not None} for m in data.messages]
        )
    if len(msgspec.json.encode(changes)) > _MAX_PROFILE:
        raise invalid(f"template, system, license and messages are longer than {_MAX_PROFILE} bytes together")
    return Recipe(data.from_, files, adapters, data.quantize or data.quantization, changes)


def _parameters(given: Mapping[str, Any]) -> dict[str, Any]:
    values = dict(given)
    if isinstance(values.get("stop"), str):
        values["stop"] = [values["stop"]]
    for name in values:
        if name not in Options.__struct_fields__:
            raise invalid(f"parameters.{name[:60]}: there is no such parameter", f"parameters.{name[:60]}")
    try:
        msgspec.convert(values, Options)
    except msgspec.ValidationError as e:
        text, _, path = str(e).partition(" - at `")
        param = f"parameters{path.rstrip('`').removeprefix('$')}"
        raise invalid(f"{param}: {text}", param) from None
    return values


def _file_name(name: str, field: str) -> str:
    """A file name that stays in its folder."""
    plain = PurePosixPath(name).name == name and not set(name) & set("/\\:\0") and name.isprintable()
    if not plain or name.startswith(".") or len(name) > 200:
        raise invalid(f"{field}: {name[:60]!r} is no plain file name", field)
    return name


def digest_of(text: str, param: str) -> str:
    """The 64 hex digits of `sha256:...`."""
    if (match := _DIGEST.fullmatch(text)) is None:
        raise invalid(f"{param}: {text[:80]!r} is no digest; write sha256: and 64 hex digits", param)
    return match[1]


@post("/api/create", status_code=200)
async def create(request: Request[Any, Any, Any]) -> ASGIApp:
    """Make a model of the store."""
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
        return await Streamed.start(frames, media="application/x-ndjson", ping=None, interval=0)
    last: Mapping[str, Any] = {}
    async with contextlib.aclosing(_lines(service, store, name, recipe)) as lines:
        async for line in lines:
            last = line
    return Whole(last)


async def _frames(service: Services, store: Store, name: str, recipe: Recipe) -> AsyncGenerator[bytes, None]:
    async with contextlib.aclosing(_lines(service, store, name, recipe)) as lines:
        async for line in lines:
            yield ndjson(line)


async def _lines(
    service: Services, store: Store, name: str, recipe: Recipe
) -> AsyncGenerator[Mapping[str, Any], None]:
    """Status lines. What a client who leaves has begun is finished, since a store is never left half changed."""
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
    # A request for the name may have come in meanwhile and found what it meant before.
    with contextlib.suppress(ApiError):
        await service.models.forget(name)
    yield {"status": "success"}


@get("/api/blobs/{digest:str}")
async def has_blob(request: Request[Any, Any, Any]) -> ASGIApp:
    """Whether an upload is here already: 200 or 404."""
    store = managed_store(services(request))
    sha256 = digest_of(str(request.path_params["digest"]), "digest")
    if not await asyncio.to_thread(store.has_blob, sha256):
        raise ApiError("not_found", f"blob sha256:{sha256} not found")
    return Whole(b"", media="text/plain")


@post("/api/blobs/{digest:str}", status_code=201)
async def add_blob(request: Request[Any, Any, Any]) -> ASGIApp:
    """Take a file in, part by part. What is not what its digest says is refused and not kept."""
    service, call = services(request), call_of(request.scope)
    store = managed_store(service)
    sha256 = digest_of(str(request.path_params["digest"]), "digest")
    call.phase = "receive"
    try:
        with await ask_store(store.receiving) as receiving:
            found = await _receive(receiving, request, service)
            if found != sha256:
                raise invalid(f"digest mismatch: expected sha256:{sha256}, got sha256:{found}", "digest")
            await ask_store(lambda: store.keep_blob(receiving, sha256))
    except OSError as e:
        raise ApiError("storage", f"The blob could not be stored: {e.strerror}.", retry=False) from e
    return Whole(b"", status=201, media="text/plain")


async def _receive(path: Path, request: Request[Any, Any, Any], service: Services) -> str:
    """The body into a file; gives its SHA-256 in hex."""
    digest, config = hashlib.sha256(), service.config
    with path.open("wb") as file:

        def write(piece: bytes) -> None:
            file.write(piece)
            digest.update(piece)

        await receive(request, write, what="blob", limit=config.max_blob, timeout=config.body_timeout)
    return digest.hexdigest()


HANDLERS = [create, has_blob, add_blob]
