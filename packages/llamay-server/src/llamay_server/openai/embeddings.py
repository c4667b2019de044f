"""POST /v1/embeddings: embeddings of texts or tokens."""

from __future__ import annotations

import base64
from typing import Annotated, Any, Literal

from litestar import Request, post
from litestar.types import ASGIApp
from msgspec import Meta, Struct

from llamay_server.http.answers import WholeAnswer
from llamay_server.http.bodies import read_json
from llamay_server.http.exchange import exchange_of
from llamay_server.http.route_description import described
from llamay_server.pipeline.embedding import check_dimensions, embed, read_texts
from llamay_server.services import services


class EmbeddingRequest(Struct, kw_only=True):
    """Body of POST /v1/embeddings."""

    input: str | list[str | int | list[str | int] | dict[str, Any]] | dict[str, Any]
    model: str | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None
    user: str | None = None


@post("/v1/embeddings", status_code=200, opt=described(body=EmbeddingRequest))
async def embeddings(request: Request[Any, Any, Any]) -> ASGIApp:
    """Embeddings of texts or tokens, each of length 1, as floats or base64 of little-endian float32."""
    service, exchange = services(request), exchange_of(request.scope)
    data = await read_json(request, EmbeddingRequest)
    async with service.models.use(data.model, exchange) as (entry, model):
        check_dimensions(data.dimensions, model)
        texts = read_texts(data.input, model, "input")
        vectors, tokens = await embed(service.admission, exchange, model, texts, dimensions=data.dimensions)
        return WholeAnswer(
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


def _written(vector: Any, encoding: str | None) -> Any:
    if encoding == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()
    return vector.tolist()


HANDLERS = [embeddings]
