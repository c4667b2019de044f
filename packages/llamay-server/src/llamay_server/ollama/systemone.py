"""POST /v1/systemone: named questions about a state, answered by probabilities (Ollama)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from litestar import Request, post
from litestar.types import ASGIApp
from msgspec import Meta, Struct

from llamay_server.chat.decisions import (
    MAX_OPTIONS,
    MAX_QUESTIONS,
    Question,
    as_text,
    best,
    decide,
    expected,
)
from llamay_server.http.answers import WholeAnswer
from llamay_server.http.bodies import read_json
from llamay_server.http.errors import invalid
from llamay_server.http.exchange import exchange_of
from llamay_server.http.route_description import described
from llamay_server.pipeline.admission import run_on_texts
from llamay_server.services import services

if TYPE_CHECKING:
    from llamay_server.chat.conversation import Message


class Noul(Struct, tag_field="type", tag="noul"):
    """Asks for the probability that a statement is true; `criteria` may describe true and false."""

    instructions: Any
    criteria: dict[str, str] | None = None


class NamedChoice(Struct, tag_field="type", tag="choice"):
    """Asks which of the keys of `criteria` fits; a key may have a description."""

    instructions: Any
    criteria: dict[str, str | None]


class Scale(Struct, tag_field="type", tag="score"):
    """Asks for the level on a scale; the levels are described from the lowest to the highest."""

    instructions: Any
    criteria: list[str]


class SystemOneRequest(Struct, kw_only=True):
    """Body of POST /v1/systemone."""

    state: Any
    questions: Annotated[dict[str, Noul | NamedChoice | Scale], Meta(min_length=1, max_length=MAX_QUESTIONS)]
    model: str | None = None
    keep_alive: float | str | None = None


@post("/v1/systemone", status_code=200, opt=described(body=SystemOneRequest))
async def systemone(request: Request[Any, Any, Any]) -> ASGIApp:
    """Answer named questions about a state with probabilities."""
    service, exchange = services(request), exchange_of(request.scope)
    data = await read_json(request, SystemOneRequest)
    asked = [_question(q, f"questions.{name[:60]}") for name, q in data.questions.items()]
    async with service.models.use(data.model, exchange) as (entry, model):
        state: list[Message] = [{"role": "user", "content": as_text(data.state)}]
        work = await asyncio.to_thread(decide, model, state, asked, service.tenant(exchange))
        found = await run_on_texts(service.admission, exchange, work)
    answers = {
        name: _answer(q, chances)
        for (name, q), chances in zip(data.questions.items(), found.answers, strict=True)
    }
    usage = {"input_tokens": found.input_tokens, "output_tokens": 0}
    return WholeAnswer({"model": entry.name, "answers": answers, "usage": usage})


def _question(question: Noul | NamedChoice | Scale, where: str) -> Question:
    text = as_text(question.instructions)
    match question:
        case Noul():
            means = question.criteria or {}
            if unknown := means.keys() - {"true", "false"}:
                raise invalid(
                    f"{where}.criteria: {min(unknown)[:40]!r} is neither true nor false", f"{where}.criteria"
                )
            return Question(f"Is this true? {text}", [(v, means.get(v)) for v in ("true", "false")])
        case NamedChoice():
            options: list[tuple[str, str | None]] = list(question.criteria.items())
        case Scale():
            options = [(about, None) for about in question.criteria]
    if not 2 <= len(options) <= MAX_OPTIONS:
        raise invalid(f"{where}.criteria: from 2 to {MAX_OPTIONS}, not {len(options)}", f"{where}.criteria")
    return Question(text, options)


def _answer(question: Noul | NamedChoice | Scale, chances: Sequence[float]) -> dict[str, Any]:
    match question:
        case Noul():
            return {"type": "noul", "noul": chances[0]}
        case NamedChoice():
            names = list(question.criteria)
            return {
                "type": "choice",
                "choice": names[best(chances)],
                "probabilities": dict(zip(names, chances, strict=True)),
                "confidence": max(chances),
            }
        case Scale():
            places = [str(i) for i in range(len(chances))]
            return {
                "type": "score",
                "score": expected(chances),
                "legend": dict(zip(places, question.criteria, strict=True)),
                "probabilities": dict(zip(places, chances, strict=True)),
                "confidence": max(chances),
            }


HANDLERS = [systemone]
