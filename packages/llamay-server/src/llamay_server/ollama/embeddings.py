"""POST /api/embed and /api/embeddings: embeddings as Ollama gives them."""

from __future__ import annotations

import time
from typing import Annotated, Any

from litestar import Request, post
from litestar.types import ASGIApp
from msgspec import Meta, Struct

from llamay_server.http.answers import WholeAnswer
from llamay_server.http.bodies import read_json
from llamay_server.http.exchange import exchange_of
from llamay_server.http.route_description import described
from llamay_server.ollama.reading import keep_alive_seconds
from llamay_server.ollama.schema import KeepAlive, Options
from llamay_server.pipeline.embedding import check_dimensions, embed, read_texts
from llamay_server.services import services


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


@post("/api/embed", status_code=200, opt=described(body=OllamaEmbedRequest))
async def ollama_embed(request: Request[Any, Any, Any]) -> ASGIApp:
    """Embeddings of one or more texts, each of length 1; texts that are too long are cut unless `truncate` is false."""
    service, exchange = services(request), exchange_of(request.scope)
    data = await read_json(request, OllamaEmbedRequest)
    began = time.monotonic()
    async with service.models.use(data.model, exchange) as (entry, model):
        loaded = time.monotonic()
        if data.keep_alive is not None:
            entry.keep(keep_alive_seconds(data.keep_alive))
        check_dimensions(data.dimensions, model)
        inputs = [data.input] if isinstance(data.input, str) else data.input or []
        texts = read_texts(inputs, model, "input") if any(inputs) else []
        if data.truncate is not False:
            texts = [ids[: model.info.context_length] for ids in texts]
        embeddings: list[list[float]] = []
        tokens = 0
        if texts:
            vectors, tokens = await embed(
                service.admission, exchange, model, texts, dimensions=data.dimensions
            )
            embeddings = vectors.tolist()
        return WholeAnswer(
            {
                "model": entry.name,
                "embeddings": embeddings,
                "total_duration": _nanoseconds(time.monotonic() - began),
                "load_duration": _nanoseconds(loaded - began),
                "prompt_eval_count": tokens,
            }
        )


@post("/api/embeddings", status_code=200, opt=described(body=OllamaEmbeddingRequest))
async def ollama_embeddings(request: Request[Any, Any, Any]) -> ASGIApp:
    """The embedding of one text as the model gives it, not brought to length 1: Ollama's older route."""
    service, exchange = services(request), exchange_of(request.scope)
    data = await read_json(request, OllamaEmbeddingRequest)
    async with service.models.use(data.model, exchange) as (entry, model):
        if data.keep_alive is not None:
            entry.keep(keep_alive_seconds(data.keep_alive))
        if not data.prompt:
            return WholeAnswer({"embedding": []})
        (ids,) = read_texts([data.prompt], model, "prompt")
        texts = [ids[: model.info.context_length]]
        vectors, _ = await embed(service.admission, exchange, model, texts, normalize=False)
        return WholeAnswer({"embedding": vectors[0].tolist()})


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)


HANDLERS = [ollama_embed, ollama_embeddings]
