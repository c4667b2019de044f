"""POST /v1/decisions (OpenAI) and /v1/systemone (Ollama): questions about one input, answered by probabilities."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeAlias

import msgspec
from litestar import Request, post
from litestar.types import ASGIApp
from msgspec import Meta, Struct

from llamay_server.chat.decisions import Question, judge
from llamay_server.chat.run import Message
from llamay_server.http.answers import Whole, read_json
from llamay_server.http.call import call_of
from llamay_server.http.errors import invalid
from llamay_server.openai.responses.items import read_input
from llamay_server.pipeline.run import read_through
from llamay_server.services import services

Text: TypeAlias = str | list[dict[str, Any]]
_MOST_OPTIONS = 255
_MOST_QUESTIONS = 400


class Predicate(Struct, tag_field="type", tag="predicate"):
    """How likely a statement is true."""

    instructions: Text
    name: str | None = None


class Choice(Struct):
    """One option; a text and a boolean that look alike are two."""

    value: str | bool
    description: str | None = None


class ChoiceQuestion(Struct, tag_field="type", tag="choice"):
    """Which option fits."""

    instructions: Text
    choices: Annotated[list[Choice], Meta(min_length=2, max_length=_MOST_OPTIONS)]
    name: str | None = None


class Level(Struct):
    """One step of a scale."""

    label: str
    description: str | None = None


class ScoreQuestion(Struct, tag_field="type", tag="score"):
    """Where on a scale, whose levels stand from the lowest to the highest."""

    instructions: Text
    levels: Annotated[list[Level], Meta(min_length=2, max_length=_MOST_OPTIONS)]
    name: str | None = None


class DecisionRequest(Struct, kw_only=True):
    """Body of POST /v1/decisions."""

    input: str | list[dict[str, Any]]
    questions: Annotated[
        list[Predicate | ChoiceQuestion | ScoreQuestion], Meta(min_length=1, max_length=_MOST_QUESTIONS)
    ]
    model: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_options: dict[str, Any] | None = None
    safety_identifier: str | None = None


class Noul(Struct, tag_field="type", tag="noul"):
    """How likely a statement is true; `criteria` may say what true and false mean."""

    instructions: Any
    criteria: dict[str, str] | None = None


class NamedChoice(Struct, tag_field="type", tag="choice"):
    """Which of the keys fits; a key without a description speaks for itself."""

    instructions: Any
    criteria: dict[str, str | None]


class Scale(Struct, tag_field="type", tag="score"):
    """Where on a scale, described from the lowest to the highest."""

    instructions: Any
    criteria: list[str]


class SystemOneRequest(Struct, kw_only=True):
    """Body of POST /v1/systemone."""

    state: Any
    questions: Annotated[
        dict[str, Noul | NamedChoice | Scale], Meta(min_length=1, max_length=_MOST_QUESTIONS)
    ]
    model: str | None = None
    keep_alive: float | str | None = None


def _instructions(value: Any, where: str) -> str:
    """Text, or parts of text and JSON."""
    if isinstance(value, str):
        return value
    messages, _ = read_input([{"role": "user", "content": _texts(value, where)}], lambda _: None)
    return str(messages[0]["content"])


def _texts(content: Any, where: str) -> Any:
    """Parts with their JSON as text."""
    if not isinstance(content, list):
        return content
    out = []
    for n, part in enumerate(content):
        if isinstance(part, Mapping) and part.get("type") == "input_json":
            if not isinstance(part.get("data"), dict | list):
                raise invalid(f"{where}[{n}].data: it must be an object or a list", f"{where}[{n}].data")
            part = {"type": "input_text", "text": _json(part["data"])}
        out.append(part)
    return out


def _json(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _unique(values: Sequence[Any], where: str) -> None:
    seen = {(type(v), v) for v in values}
    if len(seen) < len(values):
        raise invalid(f"{where}: each must be unique", where)


def _neutral(question: Predicate | ChoiceQuestion | ScoreQuestion, where: str) -> Question:
    text = _instructions(question.instructions, f"{where}.instructions")
    match question:
        case Predicate():
            return Question(f"Is this true? {text}", [("true", None), ("false", None)])
        case ChoiceQuestion():
            _unique([c.value for c in question.choices], f"{where}.choices")
            return Question(text, [(_json(c.value), c.description) for c in question.choices])
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
                "choice": values[_best(chances)],
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
                "score": _expected(chances),
                "confidence": max(chances),
                "probabilities": [
                    {"label": level.label, "value": i, "probability": p}
                    for i, (level, p) in enumerate(levels)
                ],
            }


def _best(chances: Sequence[float]) -> int:
    return max(range(len(chances)), key=chances.__getitem__)


def _expected(chances: Sequence[float]) -> float:
    return sum(i * p for i, p in enumerate(chances))


@post("/v1/decisions", status_code=200)
async def decisions(request: Request[Any, Any, Any]) -> ASGIApp:
    """Answer questions about an input with probabilities."""
    service, call = services(request), call_of(request.scope)
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
    asked = [_neutral(q, f"questions[{n}]") for n, q in enumerate(data.questions)]
    async with service.models.use(data.model, call) as (entry, model):
        work = await asyncio.to_thread(judge, model, messages, asked, service.tenant(call))
        judged = await read_through(service.admission, call, work)
    details = {
        "cached_tokens": judged.cached_tokens,
        "cache_write_tokens": judged.input_tokens - judged.cached_tokens,
    }
    usage = {
        "input_tokens": judged.input_tokens,
        "input_tokens_details": details,
        "output_tokens": 0,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": judged.input_tokens,
    }
    answers = [_answer(q, chances) for q, chances in zip(data.questions, judged.answers, strict=True)]
    return Whole({"model": entry.name, "answers": answers, "usage": usage})


def _one(question: Noul | NamedChoice | Scale, where: str) -> Question:
    text = _json(question.instructions)
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
    if not 2 <= len(options) <= _MOST_OPTIONS:
        raise invalid(f"{where}.criteria: from 2 to {_MOST_OPTIONS}, not {len(options)}", f"{where}.criteria")
    return Question(text, options)


def _told(question: Noul | NamedChoice | Scale, chances: Sequence[float]) -> dict[str, Any]:
    match question:
        case Noul():
            return {"type": "noul", "noul": chances[0]}
        case NamedChoice():
            names = list(question.criteria)
            return {
                "type": "choice",
                "choice": names[_best(chances)],
                "probabilities": dict(zip(names, chances, strict=True)),
                "confidence": max(chances),
            }
        case Scale():
            places = [str(i) for i in range(len(chances))]
            return {
                "type": "score",
                "score": _expected(chances),
                "legend": dict(zip(places, question.criteria, strict=True)),
                "probabilities": dict(zip(places, chances, strict=True)),
                "confidence": max(chances),
            }


@post("/v1/systemone", status_code=200)
async def systemone(request: Request[Any, Any, Any]) -> ASGIApp:
    """Answer named questions about a state with probabilities."""
    service, call = services(request), call_of(request.scope)
    data = await read_json(request, SystemOneRequest)
    asked = [_one(q, f"questions.{name[:60]}") for name, q in data.questions.items()]
    async with service.models.use(data.model, call) as (entry, model):
        state: list[Message] = [{"role": "user", "content": _json(data.state)}]
        work = await asyncio.to_thread(judge, model, state, asked, service.tenant(call))
        judged = await read_through(service.admission, call, work)
    answers = {
        name: _told(q, chances)
        for (name, q), chances in zip(data.questions.items(), judged.answers, strict=True)
    }
    usage = {"input_tokens": judged.input_tokens, "output_tokens": 0}
    return Whole({"model": entry.name, "answers": answers, "usage": usage})


HANDLERS = [decisions, systemone]
