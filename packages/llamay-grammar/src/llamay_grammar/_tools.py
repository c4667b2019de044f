"""Tool calls: literal tags around arguments that a schema binds, in the formats of the usual models."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from typing import Any

from ._compile import Budget, Draft, Grammar, Mode, Resolver, Whitespace, _cached, _text_options
from ._vocabulary import Vocabulary

__all__ = ["compile_tools", "tool_formats"]

_NAME = re.compile(r"[A-Za-z0-9_.:/-]{1,128}")


@functools.cache
def tool_formats() -> Mapping[str, Mapping[str, Any]]:
    """Return the envelopes that `compile_tools` knows by name.

    An envelope is data: ``call`` is a list of pieces, each ``{"text": ...}``, ``{"special": name of a special token}``,
    ``{"name": true}`` or ``{"arguments": true}``; ``before``, ``between`` and ``after`` (optional) stand around the
    calls; ``stop`` lists the texts that begin a call, which free text before it therefore does not contain;
    ``single`` says that the model makes one call at a time.
    """
    text = resources.files(__package__).joinpath("envelopes.json").read_text("utf-8")
    formats: dict[str, dict[str, Any]] = json.loads(text)
    return formats


def _function(tool: Mapping[str, Any], number: int) -> tuple[str, Any, str]:
    inner = tool.get("function", tool)
    where = f"/{number}/function/parameters" if inner is not tool else f"/{number}/parameters"
    if not isinstance(inner, Mapping) or not isinstance(inner.get("name"), str):
        raise ValueError(f"tool {number} has no name")
    name = inner["name"]
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"the name of tool {number}, {name!r}, has characters other than letters, digits, _ . : / -"
        )
    schema = inner.get("parameters", inner.get("input_schema"))
    if schema is None:
        schema = {"type": "object", "properties": {}, "additionalProperties": False}
    if isinstance(schema, Mapping) and "type" not in schema:
        schema = {**schema, "type": "object"}
    return name, schema, where


def compile_tools(
    tools: Sequence[Mapping[str, Any]],
    vocabulary: Vocabulary,
    *,
    format: str | Mapping[str, Any] = "hermes",  # noqa: A002 - the word that users look for
    choice: str = "auto",
    parallel: bool = True,
    max_calls: int | None = None,
    text_before: bool | None = None,
    answer: Any = None,
    mode: Mode = "exact",
    draft: Draft | None = None,
    whitespace: Whitespace = "flexible",
    max_whitespace: int = 32,
    property_order: str = "any",
    canonical_escapes: bool = False,
    resolver: Resolver | None = None,
    budget: Budget | None = None,
) -> Grammar:
    """Compile "free text, then calls of these tools".

    Args:
        tools: in OpenAI's form (``{"type": "function", "function": {...}}``) or plain (``{"name": ...,
            "parameters": schema}``; ``input_schema`` is understood too).
        vocabulary: the model's tokens. Special tokens of the envelope are looked up in `Vocabulary.special_names`;
            one that the vocabulary does not have is written as text.
        format: a name in `tool_formats`, or an envelope of that shape.
        choice: ``"auto"``: text, calls, or text and then calls. ``"required"``: at least one call. The name of a
            tool: exactly that one.
        parallel: whether several calls may follow each other.
        max_calls: at most so many calls.
        text_before: whether text may come before the calls; by default only with ``choice="auto"``.
        answer: a JSON schema that the text must match where no call is made (with ``choice="auto"`` only). There is
            then no free text.
        mode: as in `compile_json_schema`, for the arguments and the answer.
        draft: as in `compile_json_schema`.
        whitespace: as in `compile_json_schema`, inside the arguments.
        max_whitespace: as in `compile_json_schema`.
        property_order: as in `compile_json_schema`.
        canonical_escapes: as in `compile_json_schema`.
        resolver: as in `compile_json_schema`.
        budget: as in `compile_json_schema`.

    Raises:
        CompileError: with a pointer into `tools`.
        ValueError: for unknown formats or choices, and names that are missing, repeated or malformed.

    """
    if isinstance(format, str):
        if format not in tool_formats():
            raise ValueError(f"unknown tool format {format!r}; known: {', '.join(sorted(tool_formats()))}")
        envelope: Mapping[str, Any] = tool_formats()[format]
    else:
        envelope = format
    functions = [_function(t, i) for i, t in enumerate(tools)]
    names = [f[0] for f in functions]
    if not names:
        raise ValueError("there are no tools")
    if len(set(names)) != len(names):
        raise ValueError("two tools have the same name")
    if choice not in ("auto", "required"):
        functions = [f for f in functions if f[0] == choice]
        if not functions:
            raise ValueError(f"choice must be 'auto', 'required' or the name of a tool, not {choice!r}")
    forced = choice != "auto"
    most = 1 if not parallel or envelope.get("single") or choice not in ("auto", "required") else max_calls
    if most is not None and most < 1:
        raise ValueError("max_calls must be at least 1")

    def pieces(
        items: Iterable[Mapping[str, Any]], name: str = "", schema: Any = None, where: str = ""
    ) -> list[Any]:
        out: list[Any] = []
        for piece in items:
            if "text" in piece:
                out.append({"text": piece["text"]})
            elif "special" in piece:
                token = vocabulary.special_names.get(piece["special"])
                out.append({"text": piece["special"]} if token is None else {"token": token})
            elif piece.get("name"):
                out.append({"text": name})
            elif piece.get("arguments"):
                out.append({"schema": schema, "at": where})
            else:
                raise ValueError(
                    f"a piece of a tool envelope that is none of text, special, name, arguments: {piece!r}"
                )
        return out

    call: dict[str, Any] = {"any": [{"seq": pieces(envelope["call"], *f)} for f in functions]}
    more = {"seq": [*pieces(envelope.get("between", ())), call]}
    calls: dict[str, Any] = {
        "seq": [
            *pieces(envelope.get("before", ())),
            call,
            {"many": more, "min": 0, "max": None if most is None else most - 1},
            *pieces(envelope.get("after", ())),
        ]
    }
    free = {"free": list(envelope.get("stop", ()))}
    with_text = (not forced) if text_before is None else text_before
    layout: dict[str, Any] = calls if forced else {"many": calls, "min": 0, "max": 1}
    if answer is not None:
        if forced:
            raise ValueError("an answer besides calls needs choice='auto'")
        layout = {"any": [calls, {"schema": answer, "at": "/answer"}]}
    elif with_text:
        layout = {"seq": [free, layout]}
    recipe: dict[str, Any] = {
        "kind": "layout",
        "source": json.dumps(layout),
        **_text_options(mode, whitespace, max_whitespace, property_order, draft, canonical_escapes),
    }
    return _cached(recipe, vocabulary, budget, resolver)
