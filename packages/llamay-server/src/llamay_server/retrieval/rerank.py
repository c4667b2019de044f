"""Reranking, in the shapes of Jina (and Cohere and llama.cpp) and of Text Embeddings Inference."""

from __future__ import annotations

import secrets
import time
from typing import Annotated, Any

from litestar import Request, post
from litestar.types import ASGIApp
from msgspec import Meta, Struct

from llamay_server.http.answers import Whole, read_json
from llamay_server.http.call import call_of
from llamay_server.http.errors import invalid
from llamay_server.openai.embeddings import MAX_TEXTS
from llamay_server.pipeline.run import read_through
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


@post(["/v1/rerank", "/rerank", "/v1/reranking", "/reranking", "/v2/rerank"], status_code=200)
async def rerank(request: Request[Any, Any, Any]) -> ASGIApp:
    """How well documents answer a query, best first.

    With a model that has a rank head its score, with any other the cosine of the embeddings.
    """
    service, call = services(request), call_of(request.scope)
    data = await read_json(request, RerankRequest)
    documents, where = _documents(data)
    async with service.models.use(data.model, call) as (entry, model):
        scores = await read_through(
            service.admission, call, lambda progress: model.rerank(data.query, documents, progress=progress)
        )
        tokens = sum(
            len(model.encode(text, add_special=True, parse_special=False))
            for text in [data.query, *documents]
        )
        service.metrics.prompt_tokens.labels(model.info.name).inc(tokens)
        call.phase = None
        order = sorted(range(len(documents)), key=lambda i: (-scores[i], i))[: data.top_n]
        if where == "texts":
            kept = bool(data.return_text)
            return Whole(
                [{"index": i, "score": scores[i]} | ({"text": documents[i]} if kept else {}) for i in order]
            )
        kept = bool(data.return_documents)
        return Whole(
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


class ScoreRequest(Struct, kw_only=True):
    """Body of POST /score: one text against several, or as many against as many."""

    text_1: str | list[str]
    text_2: str | list[str]
    model: str | None = None


def _pairs(data: ScoreRequest) -> list[tuple[str, list[str]]]:
    """Each first text with those that it is held against."""
    first = [data.text_1] if isinstance(data.text_1, str) else data.text_1
    second = [data.text_2] if isinstance(data.text_2, str) else data.text_2
    for where, texts in (("text_1", first), ("text_2", second)):
        if not texts or not all(texts):
            raise invalid(f"{where}: there must be a text, and none may be empty", where)
        if len(texts) > MAX_TEXTS:
            raise invalid(f"{where}: at most {MAX_TEXTS} in one request, not {len(texts)}", where)
    if len(first) == 1:
        return [(first[0], second)]
    if len(first) != len(second):
        raise invalid(f"text_2: {len(second)} texts cannot be held against {len(first)}", "text_2")
    return [(a, [b]) for a, b in zip(first, second, strict=True)]


@post(["/score", "/v1/score"], status_code=200)
async def score(request: Request[Any, Any, Any]) -> ASGIApp:
    """How well texts fit each other, in their order, as vLLM gives it."""
    service, call = services(request), call_of(request.scope)
    data = await read_json(request, ScoreRequest)
    pairs = _pairs(data)
    async with service.models.use(data.model, call) as (entry, model):
        scores = await read_through(
            service.admission,
            call,
            lambda progress: [s for a, bs in pairs for s in model.rerank(a, bs, progress=progress)],
        )
        texts = [text for a, bs in pairs for text in (a, *bs)]
        tokens = sum(len(model.encode(text, add_special=True, parse_special=False)) for text in texts)
        service.metrics.prompt_tokens.labels(model.info.name).inc(tokens)
        call.phase = None
        return Whole(
            {
                "id": f"score-{secrets.token_hex(12)}",
                "object": "list",
                "created": int(time.time()),
                "model": entry.name,
                "data": [{"index": i, "object": "score", "score": s} for i, s in enumerate(scores)],
                "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
            }
        )


HANDLERS = [rerank, score]
