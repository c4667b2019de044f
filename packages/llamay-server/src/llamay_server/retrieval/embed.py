"""POST /embed: embeddings as Text Embeddings Inference gives them."""

from __future__ import annotations

from typing import Annotated, Any

from litestar import Request, post
from litestar.types import ASGIApp
from msgspec import Meta, Struct

from llamay_server.http.answers import WholeAnswer
from llamay_server.http.bodies import read_json
from llamay_server.http.exchange import exchange_of
from llamay_server.http.route_description import described
from llamay_server.pipeline.embedding import check_dimensions, embed, read_texts
from llamay_server.services import services


class TeiEmbedRequest(Struct, kw_only=True):
    """Body of POST /embed: that of Text Embeddings Inference."""

    inputs: str | list[str | int | list[int]]
    model: str | None = None
    normalize: bool | None = None
    truncate: bool | None = None
    dimensions: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None


@post("/embed", status_code=200, opt=described(body=TeiEmbedRequest))
async def tei_embed(request: Request[Any, Any, Any]) -> ASGIApp:
    """Embeddings as Text Embeddings Inference gives them: a list of lists."""
    service, exchange = services(request), exchange_of(request.scope)
    data = await read_json(request, TeiEmbedRequest)
    async with service.models.use(data.model, exchange) as (_, model):
        check_dimensions(data.dimensions, model)
        texts = read_texts(data.inputs, model, "inputs")
        if data.truncate:
            texts = [ids[: model.info.context_length] for ids in texts]
        normalize = data.normalize is not False
        vectors, _ = await embed(
            service.admission, exchange, model, texts, normalize=normalize, dimensions=data.dimensions
        )
        return WholeAnswer(vectors.tolist())


HANDLERS = [tei_embed]
