"""Embeddings, in the shapes of OpenAI, llama.cpp, Text Embeddings Inference and Ollama."""

from __future__ import annotations

import base64
import time
from collections.abc import Sequence
from typing import Annotated, Any, TypeAlias

from litestar import Request, post
from litestar.types import ASGIApp
from msgspec import Meta, Struct

from llamay_server.engine.protocol import Embeddings, Model
from llamay_server.http.answers import Whole, read_json
from llamay_server.http.call import Call, call_of
from llamay_server.http.errors import ApiError, invalid
from llamay_server.llamacpp.completion import native_prompts
from llamay_server.ollama.generation import KeepAlive, Options, keep_alive_seconds
from llamay_server.openai.schema import EmbeddingRequest
from llamay_server.pipeline.run import read_through
from llamay_server.services import Services, services

MAX_TEXTS = 2048
"""Of one request, as at the original."""


def read_texts(value: Any, model: Model, where: str) -> list[list[int]]:
    """Texts as ids, in which control tokens that a text spells out are no control tokens."""
    many = isinstance(value, list) and not any(isinstance(v, int) for v in value)
    if many and len(value) > MAX_TEXTS:
        raise invalid(f"{where}: at most {MAX_TEXTS} texts in one request, not {len(value)}", where)
    if many:
        value = [_spoken(each, f"{where}[{i}]") for i, each in enumerate(value)]
    return native_prompts(_spoken(value, where), model, where, parse_special=False)


def _spoken(value: Any, where: str) -> Any:
    """The text of an object with `content`, which llama.cpp takes as messages have it; anything else as it is."""
    if not isinstance(value, dict) or "content" not in value:
        return value
    where = f"{where}.content"
    parts = value["content"]
    if not isinstance(parts, list) or not parts:
        raise invalid(f"{where}: it must be a list of parts with a type", where)
    for i, part in enumerate(parts):
        if not isinstance(part, dict) or part.get("type") != "text":
            raise invalid(f"{where}[{i}].type: this model reads text only", f"{where}[{i}].type")
        if not isinstance(part.get("text"), str):
            raise invalid(f"{where}[{i}].text: it must be text", f"{where}[{i}].text")
    return "".join(part["text"] for part in parts)


async def _embed(
    service: Services, call: Call, model: Model, texts: Sequence[Sequence[int]], **options: Any
) -> tuple[Embeddings, int]:
    limit = model.info.context_length
    for i, ids in enumerate(texts):
        if len(ids) > limit:
            raise ApiError(
                "overflow",
                f"Text {i} is too large to embed: it has {len(ids)} tokens, and this model's maximum context "
                f"length is {limit} tokens, so it exceeds the available context size.",
                param="input",
                code="context_length_exceeded",
                extra={"n_prompt_tokens": len(ids), "n_ctx": limit},
            )
    vectors = await read_through(
        service.admission, call, lambda progress: model.embed(texts, progress=progress, **options)
    )
    tokens = sum(map(len, texts))
    service.metrics.prompt_tokens.labels(model.info.name).inc(tokens)
    call.phase = None
    return vectors, tokens


def _check_dimensions(dimensions: int | None, model: Model) -> None:
    width = model.info.embedding_length
    if dimensions is not None and not 1 <= dimensions <= width:
        raise invalid(
            f"dimensions: this model's embeddings have 1 to {width}, not {dimensions}", "dimensions"
        )


def _written(vector: Any, encoding: str | None) -> Any:
    if encoding == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()
    return vector.tolist()


@post("/v1/embeddings", status_code=200)
async def openai_embeddings(request: Request[Any, Any, Any]) -> ASGIApp:
    """Embeddings of texts or tokens, each of length 1, as floats or base64 of little-endian float32."""
    service, call = services(request), call_of(request.scope)
    data = await read_json(request, EmbeddingRequest)
    async with service.models.use(data.model, call) as (entry, model):
        _check_dimensions(data.dimensions, model)
        texts = read_texts(data.input, model, "input")
        vectors, tokens = await _embed(service, call, model, texts, dimensions=data.dimensions)
        return Whole(
            {
                "object": "list",
                "data": [
                    {"object": "embedding", "index": i, "embedding": _written(vector, data.encoding_format)}
                    for i, vector in enumerate(vectors)
                ],
                "model": entry.name,
                "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
            }
        )


_Part: TypeAlias = str | int | list[str | int] | dict[str, Any]


class NativeEmbeddingRequest(Struct, kw_only=True):
    """Body of POST /embedding: llama.cpp's own."""

    content: str | list[_Part] | dict[str, Any] | None = None
    input: str | list[_Part] | dict[str, Any] | None = None
    model: str | None = None
    embd_normalize: Annotated[int, Meta(ge=-1, le=2)] | None = None


@post(["/embedding", "/embeddings"], status_code=200)
async def native_embeddings(request: Request[Any, Any, Any]) -> ASGIApp:
    """Embeddings as llama.cpp's own route gives them; `embd_normalize` -1 leaves their length alone."""
    service, call = services(request), call_of(request.scope)
    data = await read_json(request, NativeEmbeddingRequest)
    value, where = (data.content, "content") if data.content is not None else (data.input, "input")
    if value is None:
        raise invalid("content: it is missing", "content")
    if data.embd_normalize in (0, 1):
        raise invalid("embd_normalize: it must be 2, for length 1, or -1, for none", "embd_normalize")
    async with service.models.use(data.model, call) as (_, model):
        texts = read_texts(value, model, where)
        vectors, _ = await _embed(service, call, model, texts, normalize=data.embd_normalize != -1)
        return Whole([{"index": i, "embedding": [vector.tolist()]} for i, vector in enumerate(vectors)])


class TeiEmbedRequest(Struct, kw_only=True):
    """Body of POST /embed: that of Text Embeddings Inference."""

    inputs: str | list[str | int | list[int]]
    model: str | None = None
    normalize: bool | None = None
    truncate: bool | None = None
    dimensions: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None


@post("/embed", status_code=200)
async def tei_embed(request: Request[Any, Any, Any]) -> ASGIApp:
    """Embeddings as Text Embeddings Inference gives them: a list of lists."""
    service, call = services(request), call_of(request.scope)
    data = await read_json(request, TeiEmbedRequest)
    async with service.models.use(data.model, call) as (_, model):
        _check_dimensions(data.dimensions, model)
        texts = read_texts(data.inputs, model, "inputs")
        if data.truncate:
            texts = [ids[: model.info.context_length] for ids in texts]
        normalize = data.normalize is not False
        vectors, _ = await _embed(
            service, call, model, texts, normalize=normalize, dimensions=data.dimensions
        )
        return Whole(vectors.tolist())


class OllamaEmbedRequest(Struct, kw_only=True):
    """Body of POST /api/embed."""

    input: str | list[str] | None = None
    model: str | None = None
    truncate: bool | None = None
    dimensions: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None
    options: Options | None = None
    keep_alive: KeepAlive | None = None


class OllamaEmbeddingRequest(Struct, kw_only=True):
    """Body of POST /api/embeddings."""

    prompt: str | None = None
    model: str | None = None
    options: Options | None = None
    keep_alive: KeepAlive | None = None


@post("/api/embed", status_code=200)
async def ollama_embed(request: Request[Any, Any, Any]) -> ASGIApp:
    """Embeddings of one or more texts, each of length 1; texts that are too long are cut unless `truncate` is false."""
    service, call = services(request), call_of(request.scope)
    data = await read_json(request, OllamaEmbedRequest)
    began = time.monotonic()
    async with service.models.use(data.model, call) as (entry, model):
        loaded = time.monotonic()
        if data.keep_alive is not None:
            entry.keep(keep_alive_seconds(data.keep_alive))
        _check_dimensions(data.dimensions, model)
        inputs = [data.input] if isinstance(data.input, str) else data.input or []
        texts = read_texts(inputs, model, "input") if any(inputs) else []
        if data.truncate is not False:
            texts = [ids[: model.info.context_length] for ids in texts]
        embeddings: list[list[float]] = []
        tokens = 0
        if texts:
            vectors, tokens = await _embed(service, call, model, texts, dimensions=data.dimensions)
            embeddings = vectors.tolist()
        return Whole(
            {
                "model": entry.name,
                "embeddings": embeddings,
                "total_duration": _nanoseconds(time.monotonic() - began),
                "load_duration": _nanoseconds(loaded - began),
                "prompt_eval_count": tokens,
            }
        )


@post("/api/embeddings", status_code=200)
async def ollama_embeddings(request: Request[Any, Any, Any]) -> ASGIApp:
    """The embedding of one text as the model gives it, not brought to length 1: Ollama's older route."""
    service, call = services(request), call_of(request.scope)
    data = await read_json(request, OllamaEmbeddingRequest)
    async with service.models.use(data.model, call) as (entry, model):
        if data.keep_alive is not None:
            entry.keep(keep_alive_seconds(data.keep_alive))
        if not data.prompt:
            return Whole({"embedding": []})
        (ids,) = read_texts([data.prompt], model, "prompt")
        vectors, _ = await _embed(service, call, model, [ids[: model.info.context_length]], normalize=False)
        return Whole({"embedding": vectors[0].tolist()})


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)


HANDLERS = [openai_embeddings, native_embeddings, tei_embed, ollama_embed, ollama_embeddings]
