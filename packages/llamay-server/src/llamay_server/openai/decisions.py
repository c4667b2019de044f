"""POST /v1/decisions: questions about one input, answered by probabilities (OpenAI)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeAlias

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
from llamay_server.openai.objects import PromptCacheOptions
from llamay_server.openai.responses.items import read_input
from llamay_server.pipeline.admission import run_on_texts
from llamay_server.services import services

Text: TypeAlias = str | list[dict[str, Any]]


class Predicate(Struct, tag_field="type", tag="predicate"):
    """Asks for the probability that a statement is true."""

    instructions: Text
    name: str | None = None


class Choice(Struct):
    """One option. A text and a boolean that are spelled alike are two options."""

    value: str | bool
    description: str | None = None


class ChoiceQuestion(Struct, tag_field="type", tag="choice"):
    """Asks which option fits."""

    instructions: Text
    choices: Annotated[list[Choice], Meta(min_length=2, max_length=MAX_OPTIONS)]
    name: str | None = None


class Level(Struct):
    """One step of a scale."""

    label: str
    description: str | None = None


class ScoreQuestion(Struct, tag_field="type", tag="score"):
    """Asks for the level on a scale; the levels are listed from the lowest to the highest."""

    instructions: Text
    levels: Annotated[list[Level], Meta(min_length=2, max_length=MAX_OPTIONS)]
    name: str | None = None


class DecisionRequest(Struct, kw_only=True):
    """Body of POST /v1/decisions."""

    input: str | list[dict[str, Any]]
    questions: Annotated[
        list[Predicate | ChoiceQuestion | ScoreQuestion], Meta(min_length=1, max_length=MAX_QUESTIONS)
    ]
    model: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_options: PromptCacheOptions | None = None
    safety_identifier: str | None = None


@post("/v1/decisions", status_code=200, opt=described(body=DecisionRequest))
async def decisions(request: Request[Any, Any, Any]) -> ASGIApp:
    """Answer questions about an input with probabilities."""
    service, exchange = services(request), exchange_of(request.scope)
    data = await read_json(request, DecisionRequest)
    items: Any = data.input
    if isinstance(items, list):
        items = [
            {**item, "content": _texts(item.get("content"), f"input[{n}].content")}
            if "content" in item
            else item
            for n, item in enumerate(items)
        ]
    messages, _ = read_input(items, lambda _: None)
    if not messages:
        raise invalid("input: it is empty", "input")
    asked = [_question(q, f"questions[{n}]") for n, q in enumerate(data.questions)]
    async with service.models.use(data.model, exchange) as (entry, model):
        work = await asyncio.to_thread(decide, model, messages, asked, service.tenant(exchange))
        found = await run_on_texts(service.admission, exchange, work)
    details = {
        "cached_tokens": found.cached_tokens,
        "cache_write_tokens": found.input_tokens - found.cached_tokens,
    }
    usage = {
        "input_tokens": found.input_tokens,
        "input_tokens_details": details,
        "output_tokens": 0,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": found.input_tokens,
    }
    answers = [_answer(q, chances) for q, chances in zip(data.questions, found.answers, strict=True)]
    return WholeAnswer({"model": entry.name, "answers": answers, "usage": usage})


def _instructions(value: Any, where: str) -> str:
    """Return the text of instructions, which may come in parts of text and JSON."""
    if isinstance(value, str):
        return value
    messages, _ = read_input([{"role": "user", "content": _texts(value, where)}], lambda _: None)
    return str(messages[0]["content"])


def _texts(content: Any, where: str) -> Any:
    """Return the content whose parts of JSON have become parts of text."""
    if not isinstance(content, list):
        return content
    out = []
    for n, part in enumerate(content):
        if isinstance(part, Mapping) and part.get("type") == "input_json":
            if not isinstance(part.get("data"), dict | list):
                raise invalid(f"{where}[{n}].data: it must be an object or a list", f"{where}[{n}].data")
            part = {"type": "input_text", "text": as_text(part["data"])}
        out.append(part)
    return out


def _unique(values: Sequence[Any], where: str) -> None:
    seen = {(type(v), v) for v in values}
    if len(seen) < len(values):
        raise invalid(f"{where}: each must be unique", where)


def _question(question: Predicate | ChoiceQuestion | ScoreQuestion, where: str) -> Question:
    text = _instructions(question.instructions, f"{where}.instructions")
    match question:
        case Predicate():
            return Question(f"Is this true? {text}", [("true", None), ("false", None)])
        case ChoiceQuestion():
            _unique([c.value for c in question.choices], f"{where}.choices")
            return Question(text, [(as_text(c.value), c.description) for c in question.choices])
        case ScoreQuestion():
            _unique([level.label for level in question.levels], f"{where}.levels")
            return Question(text, [(level.label, level.description) for level in question.levels])


def _answer(question: Predicate | ChoiceQuestion | ScoreQuestion, chances: Sequence[float]) -> dict[str, Any]:
    named = {"name": question.name}
    match question:
        case Predicate():
            return {"type": "predicate", **named, "probability": chances[0]}
        case ChoiceQuestion():
            values = [c.value for c in question.choices]
            return {
                "type": "choice",
                **named,
                "choice": values[best(chances)],
                "confidence": max(chances),
                "probabilities": [
                    {"value": v, "probability": p} for v, p in zip(values, chances, strict=True)
                ],
            }
        case ScoreQuestion():
            levels = zip(question.levels, chances, strict=True)
            return {
                "type": "score",
                **named,
                "score": expected(chances),
                "confidence": max(chances),
                "probabilities": [
                    {"label": level.label, "value": i, "probability": p}
                    for i, (level, p) in enumerate(levels)
                ],
            }


HANDLERS = [decisions]
