"""POST /v1/rerank: reranking in the shapes of Jina (and Cohere and llama.cpp) and of Text Embeddings Inference."""

from __future__ import annotations

from typing import Annotated, Any

from litestar import Request, post
from litestar.types import ASGIApp
from msgspec import Meta, Struct

from llamay_server.http.answers import WholeAnswer
from llamay_server.http.bodies import read_json
from llamay_server.http.errors import invalid
from llamay_server.http.exchange import exchange_of
from llamay_server.http.route_description import described
from llamay_server.pipeline.admission import run_on_texts
from llamay_server.pipeline.embedding import MAX_TEXTS
from llamay_server.services import services


class RerankRequest(Struct, kw_only=True):
    """Body of POST /v1/rerank: `documents` for Jina's answer, `texts` for that of Text Embeddings Inference."""

    query: Annotated[str, Meta(min_length=1)]
    documents: list[str | dict[str, Any]] | None = None
    texts: list[str] | None = None
    model: str | None = None
    top_n: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None
    return_documents: bool | None = None
    return_text: bool | None = None
    raw_scores: bool | None = None
    truncate: bool | None = None


def _documents(data: RerankRequest) -> tuple[list[str], str]:
    if (data.documents is None) == (data.texts is None):
        raise invalid("documents: give either documents or texts", "documents")
    where = "documents" if data.documents is not None else "texts"
    out = []
    for i, item in enumerate(data.documents if data.documents is not None else data.texts or []):
        text = item.get("text") if isinstance(item, dict) else item
        if not isinstance(text, str) or not text:
            raise invalid(
                f"{where}[{i}]: it must be a text, or an object with one in `text`", f"{where}[{i}]"
            )
        out.append(text)
    if not out:
        raise invalid(f"{where}: it is empty", where)
    if len(out) > MAX_TEXTS:
        raise invalid(f"{where}: at most {MAX_TEXTS} in one request, not {len(out)}", where)
    return out, where


@post(
    ["/v1/rerank", "/rerank", "/v1/reranking", "/reranking", "/v2/rerank"],
    status_code=200,
    opt=described(body=RerankRequest),
)
async def rerank(request: Request[Any, Any, Any]) -> ASGIApp:
    """Rank documents by how well they answer a query, best first.

    The scores are those of the model's rank head; without one, the cosines of embeddings.
    """
    service, exchange = services(request), exchange_of(request.scope)
    data = await read_json(request, RerankRequest)
    documents, where = _documents(data)
    async with service.models.use(data.model, exchange) as (entry, model):
        scores = await run_on_texts(
            service.admission,
            exchange,
            lambda progress: model.rerank(data.query, documents, progress=progress),
        )
        tokens = sum(
            len(model.encode(text, add_special=True, parse_special=False))
            for text in [data.query, *documents]
        )
        service.metrics.prompt_tokens.labels(model.info.name).inc(tokens)
        exchange.phase = None
        order = sorted(range(len(documents)), key=lambda i: (-scores[i], i))[: data.top_n]
        if where == "texts":
            kept = bool(data.return_text)
            return WholeAnswer(
                [{"index": i, "score": scores[i]} | ({"text": documents[i]} if kept else {}) for i in order]
            )
        kept = bool(data.return_documents)
        return WholeAnswer(
            {
                "model": entry.name,
                "object": "list",
                "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
                "results": [
                    {"index": i, "relevance_score": scores[i]}
                    | ({"document": {"text": documents[i]}} if kept else {})
                    for i in order
                ],
            }
        )


HANDLERS = [rerank]
