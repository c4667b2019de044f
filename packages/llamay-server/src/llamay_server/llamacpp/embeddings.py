"""POST /embedding: embeddings as llama.cpp's own route gives them."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from litestar import Request, post
from litestar.types import ASGIApp
from msgspec import Meta, Struct

from llamay_server.http.answers import WholeAnswer
from llamay_server.http.bodies import read_json
from llamay_server.http.errors import invalid
from llamay_server.http.exchange import exchange_of
from llamay_server.http.route_description import described
from llamay_server.pipeline.embedding import embed, read_texts
from llamay_server.services import services

_Part: TypeAlias = str | int | list[str | int] | dict[str, Any]


class NativeEmbeddingRequest(Struct, kw_only=True):
    """Body of POST /embedding: llama.cpp's own."""

    content: str | list[_Part] | dict[str, Any] | None = None
    input: str | list[_Part] | dict[str, Any] | None = None
    model: str | None = None
    embd_normalize: Annotated[int, Meta(ge=-1, le=2)] | None = None


@post(["/embedding", "/embeddings"], status_code=200, opt=described(body=NativeEmbeddingRequest))
async def native_embeddings(request: Request[Any, Any, Any]) -> ASGIApp:
    """Embeddings as llama.cpp's own route gives them; `embd_normalize` -1 leaves their length alone."""
    service, exchange = services(request), exchange_of(request.scope)
    data = await read_json(request, NativeEmbeddingRequest)
    value, where = (data.content, "content") if data.content is not None else (data.input, "input")
    if value is None:
        raise invalid("content: it is missing", "content")
    if data.embd_normalize in (0, 1):
        raise invalid("embd_normalize: it must be 2, for length 1, or -1, for none", "embd_normalize")
    async with service.models.use(data.model, exchange) as (_, model):
        texts = read_texts(value, model, where)
        vectors, _ = await embed(
            service.admission, exchange, model, texts, normalize=data.embd_normalize != -1
        )
        return WholeAnswer([{"index": i, "embedding": [vector.tolist()]} for i, vector in enumerate(vectors)])


HANDLERS = [native_embeddings]
