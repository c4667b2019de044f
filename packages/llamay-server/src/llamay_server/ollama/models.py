"""Ollama's routes about models: tags, ps, show, copy, delete, pull, and the greeting that its clients look for."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import hashlib
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Any

from litestar import Request, delete, get, post
from litestar.types import ASGIApp
from msgspec import Struct

from llamay_server.http.answers import StreamedAnswer, WholeAnswer
from llamay_server.http.bodies import read_json
from llamay_server.http.errors import ApiError, invalid
from llamay_server.http.exchange import exchange_of
from llamay_server.http.frames import ndjson
from llamay_server.http.route_description import LINES, described
from llamay_server.ollama.modelfiles import modelfile, parameter_lines
from llamay_server.ollama.pulls import Pulls
from llamay_server.pipeline.infill import can_fill
from llamay_server.services import Services, services
from llamay_server.store import Store, StoredModel, StoreError

if TYPE_CHECKING:
    from llamay_server.engine.protocol import Model, ModelInfo
    from llamay_server.models.entry import Entry

_API_VERSION = "0.13.0"
"""The version of Ollama that has this API."""


@get("/", opt=described(media="text/plain"))
async def greeting(request: Request[Any, Any, Any]) -> ASGIApp:
    """Greet as Ollama's clients expect; a browser is sent to the web chat."""
    if services(request).config.web and "text/html" in request.headers.get("accept", ""):
        return WholeAnswer(b"", status=302, headers={"location": "/ui/"}, media="text/html")
    return WholeAnswer(b"Ollama is running", media="text/plain; charset=utf-8")


@get("/api/version")
async def version(request: Request[Any, Any, Any]) -> ASGIApp:
    """Tell the version of the API, which clients compare with the oldest that they can use, and this server's own."""
    return WholeAnswer({"version": _API_VERSION, "server": f"llamay {services(request).version}"})


def _when(seconds: float) -> str:
    return (
        datetime.datetime.fromtimestamp(seconds, datetime.UTC)
        .isoformat(timespec="microseconds")
        .replace("+00:00", "Z")
    )


def parameter_size(n: int) -> str:
    """Return a count as 135M or 1.2B."""
    return (
        f"{n / 1e9:.1f}B"
        if n >= 1e9
        else f"{n / 1e6:.0f}M"
        if n >= 1e6
        else f"{n / 1e3:.0f}K"
        if n >= 1e3
        else str(n)
    )


def _details(info: ModelInfo | None) -> dict[str, Any]:
    family = info.architecture if info else ""
    out: dict[str, Any] = {
        "parent_model": "",
        "format": "gguf",
        "family": family,
        "families": [family] if family else [],
        "parameter_size": parameter_size(info.n_parameters) if info else "",
        "quantization_level": info.quantization if info else "",
    }
    if info:
        # As at Ollama, these are facts about the file; the size of contexts here is told by /api/ps.
        out |= {"context_length": info.trained_length or info.context_length}
        out |= {"embedding_length": info.embedding_length}
    return out


def _capabilities(model: Model) -> list[str]:
    info = model.info
    if info.metadata.get(f"{info.architecture}.pooling_type") is not None:
        return ["embedding"]
    out = ["completion"]
    if info.chat_template:
        out.append("tools")
    if info.template_thinks:
        out.append("thinking")
    if can_fill(model):
        out.append("insert")
    return out


def _identity(entry: Entry, info: ModelInfo | None) -> tuple[int, float, str]:
    """Return the size, the time, and an id that names the file as it is now; it is made without reading the file."""
    size, modified = 0, 0.0
    if entry.path is not None:
        with contextlib.suppress(OSError):
            found = entry.path.stat()
            size, modified = found.st_size, found.st_mtime
    if not size and info is not None:
        size, modified = info.nbytes, info.created
    digest = hashlib.sha256(repr((entry.name, str(entry.path), size, modified)).encode()).hexdigest()
    return size, modified, digest


def _tag(entry: Entry, info: ModelInfo | None) -> dict[str, Any]:
    size, modified, digest = _identity(entry, info)
    out = {
        "name": entry.name,
        "model": entry.name,
        "modified_at": _when(modified),
        "size": size,
        "digest": digest,
    }
    return out | {"details": _details(info)}


def _stored_tag(stored: StoredModel) -> dict[str, Any]:
    return {
        "name": stored.name,
        "model": stored.name,
        "modified_at": _when(stored.modified),
        "size": stored.size,
        "digest": stored.digest,
        "details": _details(None) | dict(stored.details),
    }


@get("/api/tags")
async def tags(request: Request[Any, Any, Any]) -> ASGIApp:
    """List all models, newest first."""
    service = services(request)
    listed = {entry.name: _tag(entry, entry.info) for entry in service.models.entries.values()}
    if service.models.store is not None:
        for stored in await asyncio.to_thread(service.models.store.list):
            listed[stored.name] = _stored_tag(stored)
    return WholeAnswer({"models": sorted(listed.values(), key=lambda tag: tag["modified_at"], reverse=True)})


@get("/api/ps")
async def ps(request: Request[Any, Any, Any]) -> ASGIApp:
    """List the models in memory."""
    out = []
    for entry in services(request).models.entries.values():
        if (info := entry.info) is None:
            continue
        tag = _tag(entry, info)
        expires = entry.expires
        tag["expires_at"] = _when(expires) if expires is not None else "2318-01-01T00:00:00Z"
        tag["size_vram"] = 0
        tag["context_length"] = info.context_length
        del tag["modified_at"]
        out.append(tag)
    return WholeAnswer({"models": out})


class Named(Struct, kw_only=True):
    """A body that names a model, by `model` or by the older `name`."""

    model: str | None = None
    name: str | None = None
    verbose: bool | None = None
    stream: bool | None = None
    insecure: bool | None = None

    def which(self) -> str:
        """Return the name. Raises a 400 where there is none."""
        if not (name := self.model or self.name):
            raise invalid("model is required", "model")
        return name


@post("/api/show", status_code=200, opt=described(body=Named))
async def show(request: Request[Any, Any, Any]) -> ASGIApp:
    """Describe a model: its file, its profile and its capabilities."""
    service = services(request)
    data = await read_json(request, Named)
    async with service.models.use(data.which(), exchange_of(request.scope)) as (entry, model):
        info, profile = model.info, entry.profile
        _, modified, _ = _identity(entry, model.info)
        facts = {
            key: [] if isinstance(value, list | tuple) and len(value) > 5 and not data.verbose else value
            for key, value in info.metadata.items()
            if key != "tokenizer.chat_template"
        }
        facts.setdefault("general.architecture", info.architecture)
        facts.setdefault(f"{info.architecture}.context_length", info.trained_length or info.context_length)
        tensors = await asyncio.to_thread(info.tensors) if data.verbose and info.tensors else []
        shown = service.config.expose_paths
        source = info.path if shown and info.path else entry.name
        adapters = [str(each.path) if shown else each.path.name for each in model.adapters]
        return WholeAnswer(
            {
                "license": "\n".join(profile.license) or str(info.metadata.get("general.license", "")),
                "modelfile": modelfile(str(source), profile, adapters),
                "parameters": parameter_lines(profile.parameters),
                "template": info.chat_template or "{{ .Prompt }}",
                "system": profile.system or "",
                "details": _details(info) | {"parent_model": profile.parent},
                "messages": list(profile.messages),
                "model_info": facts,
                "tensors": [
                    {"name": name, "type": kind, "shape": list(shape)} for name, kind, shape in tensors
                ],
                "capabilities": _capabilities(model),
                "modified_at": _when(modified),
            }
        )


def managed_store(service: Services) -> Store:
    """Return the store that clients may change. Raises a 403 or 501 where there is none."""
    if not service.config.manages_models:
        raise ApiError("permission", "Clients may not change this server's models.")
    if service.models.store is None:
        raise ApiError("not_supported", "This server serves fixed files and keeps no model store.")
    return service.models.store


async def ask_store(work: Any) -> Any:
    """Call the store in a thread. Its refusals become a 404 or a 400."""
    try:
        return await asyncio.to_thread(work)
    except StoreError as e:
        raise ApiError("not_found" if e.missing else "invalid", str(e)) from e


class CopyRequest(Struct):
    """Body of POST /api/copy."""

    source: str
    destination: str


@post("/api/copy", status_code=200, opt=described(body=CopyRequest, media="text/plain"))
async def copy(request: Request[Any, Any, Any]) -> ASGIApp:
    """Give a model a second name."""
    store = managed_store(services(request))
    data = await read_json(request, CopyRequest)
    await ask_store(lambda: store.copy(data.source, data.destination))
    return WholeAnswer(b"", media="text/plain")


@delete("/api/delete", status_code=200, opt=described(body=Named, media="text/plain"))
async def remove(request: Request[Any, Any, Any]) -> ASGIApp:
    """Delete a model, which is unloaded where it is loaded."""
    service = services(request)
    store = managed_store(service)
    name = (await read_json(request, Named)).which()
    await ask_store(lambda: store.delete(name))
    entry = service.models.entries.get(name)
    if entry is not None:
        await service.models.drop(entry)
    return WholeAnswer(b"", media="text/plain")


_PULLS = Pulls()


async def _pull_frames(store: Store, name: str, insecure: bool) -> AsyncGenerator[bytes, None]:
    async with contextlib.aclosing(_PULLS.follow(store, name, insecure)) as lines:
        async for line in lines:
            yield ndjson(line)


@post("/api/pull", status_code=200, opt=described(body=Named, stream=LINES))
async def pull(request: Request[Any, Any, Any]) -> ASGIApp:
    """Fetch a model into the store."""
    store = managed_store(services(request))
    data = await read_json(request, Named)
    name, insecure = data.which(), bool(data.insecure)
    if data.stream is not False:
        return await StreamedAnswer.lines(_pull_frames(store, name, insecure))
    last: Mapping[str, Any] = {"status": "success"}
    async with contextlib.aclosing(_PULLS.follow(store, name, insecure)) as lines:
        async for line in lines:
            last = line
    return WholeAnswer(last)


@post("/api/push", status_code=200, opt=described(hidden=True))
async def push(request: Request[Any, Any, Any]) -> ASGIApp:
    """Refuse: models are not pushed over HTTP."""
    raise ApiError("not_supported", f"{request.url.path} is not available on this server.")


HANDLERS = [greeting, version, tags, ps, show, copy, remove, pull, push]
