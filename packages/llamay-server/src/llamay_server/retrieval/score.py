"""POST /score: how well pairs of texts fit each other, as vLLM gives it."""

from __future__ import annotations

import secrets
import time
from typing import Any

from litestar import Request, post
from litestar.types import ASGIApp
from msgspec import Struct

from llamay_server.http.answers import WholeAnswer
from llamay_server.http.bodies import read_json
from llamay_server.http.errors import invalid
from llamay_server.http.exchange import exchange_of
from llamay_server.http.route_description import described
from llamay_server.pipeline.admission import run_on_texts
from llamay_server.pipeline.embedding import MAX_TEXTS
from llamay_server.services import services


class ScoreRequest(Struct, kw_only=True):
    """Body of POST /score: one text against several, or as many against as many."""

    text_1: str | list[str]
    text_2: str | list[str]
    model: str | None = None


def _pairs(data: ScoreRequest) -> list[tuple[str, list[str]]]:
    """Return each first text with the texts that it is compared with."""
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


@post(["/score", "/v1/score"], status_code=200, opt=described(body=ScoreRequest))
async def score(request: Request[Any, Any, Any]) -> ASGIApp:
    """Score how well texts fit each other, in their order, as vLLM gives it."""
    service, exchange = services(request), exchange_of(request.scope)
    data = await read_json(request, ScoreRequest)
    pairs = _pairs(data)
    async with service.models.use(data.model, exchange) as (entry, model):
        scores = await run_on_texts(
            service.admission,
            exchange,
            lambda progress: [s for a, bs in pairs for s in model.rerank(a, bs, progress=progress)],
        )
        texts = [text for a, bs in pairs for text in (a, *bs)]
        tokens = sum(len(model.encode(text, add_special=True, parse_special=False)) for text in texts)
        service.metrics.prompt_tokens.labels(model.info.name).inc(tokens)
        exchange.phase = None
        return WholeAnswer(
            {
                "id": f"score-{secrets.token_hex(12)}",
                "object": "list",
                "created": int(time.time()),
                "model": entry.name,
                "data": [{"index": i, "object": "score", "score": s} for i, s in enumerate(scores)],
                "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
            }
        )


HANDLERS = [score]
