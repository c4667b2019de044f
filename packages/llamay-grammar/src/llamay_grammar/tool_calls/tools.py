"""Tool calls: literal tags around arguments that a schema binds, in the formats of the usual models."""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from llamay_grammar import checks
from llamay_grammar.compilation import cached, with_reasoning
from llamay_grammar.grammars import Grammar
from llamay_grammar.reasoning import Reasoning
from llamay_grammar.recipes import Budget, Draft, Mode, Resolver, Whitespace, text_options
from llamay_grammar.tool_calls.arguments import member_types
from llamay_grammar.tool_calls.envelopes import envelope_of
from llamay_grammar.vocabulary import Vocabulary

__all__ = ["compile_tools"]

_NAME = re.compile(r"[A-Za-z0-9_.:/-]{1,128}")
_ID_LENGTH = 9
_COUNT_LENGTH = 4


def _function(tool: Mapping[str, Any], number: int) -> tuple[str, Any, str]:
    if not isinstance(tool, Mapping):
        raise checks.wrong(f"tools[{number}]", "a mapping with the tool's name and parameters", tool)
    inner = tool.get("function", tool)
    where = f"/{number}/function/parameters" if inner is not tool else f"/{number}/parameters"
    if not isinstance(inner, Mapping):
        raise checks.wrong(f"tools[{number}]['function']", "a mapping with name and parameters", inner)
    if not isinstance(inner.get("name"), str):
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


def _of_tool(piece: Mapping[str, Any]) -> bool:
    """Whether the piece differs between tools."""
    inner = [*piece.get("optional", ()), *(p for each in piece.get("any", ()) for p in each)]
    return any(piece.get(key) for key in ("name", "arguments", "parameters")) or any(map(_of_tool, inner))


_LETTERS = {"null": "n", "boolean": "b", "number": "d", "integer": "d", "array": "a", "object": "o"}


def _mixed(types: Iterable[str]) -> str:
    """The types that are read as JSON where a string would be possible as well."""
    types = frozenset(types)
    if "string" not in types:
        return ""
    return "".join(sorted({_LETTERS[kind] for kind in types if kind != "string"}))


def _optional(part: dict[str, Any]) -> dict[str, Any]:
    return {"many": part, "min": 0, "max": 1}


class _Speller:
    """Turns the pieces of an envelope into parts of a layout."""

    def __init__(self, vocabulary: Vocabulary, schemas: Sequence[Any], texts: Sequence[str]) -> None:
        self._vocabulary, self._schemas, self._texts = vocabulary, schemas, texts

    def __call__(
        self, items: Iterable[Mapping[str, Any]], names: Sequence[str] = (), schema: int | None = None
    ) -> list[Any]:
        """The parts for tools that share the schema with that number (or for none, around the calls)."""
        out: list[Any] = []
        for piece in items:
            if "text" in piece:
                out.append({"text": piece["text"]})
            elif "special" in piece:
                token = self._vocabulary.special_names.get(piece["special"])
                if token is None:
                    out.append({"text": piece["special"]})
                elif token not in self._vocabulary.end_ids:  # an end token ends the document by itself
                    out.append({"token": token})
            elif piece.get("name"):
                out.append({"any": [{"text": name} for name in names]})
            elif piece.get("arguments"):
                out.append({"schema": schema})
            elif "parameters" in piece:
                assert schema is not None
                out.append({"members": self._members(piece["parameters"], schema)})
            elif piece.get("id"):
                letter = {"letters": string.ascii_letters + string.digits}
                out.append({"many": letter, "min": _ID_LENGTH, "max": _ID_LENGTH})
            elif piece.get("count"):
                out.append({"many": {"letters": string.digits}, "min": 1, "max": _COUNT_LENGTH})
            elif "optional" in piece:
                out.append(_optional({"seq": self(piece["optional"], names, schema)}))
            elif "any" in piece:
                out.append({"any": [{"seq": self(each, names, schema)} for each in piece["any"]]})
            else:
                raise ValueError(
                    "a piece of a tool envelope that is none of text, special, name, arguments, parameters, id, "
                    "count, optional, any: "
                    f"{piece!r}"
                )
        return out

    def _members(self, tags: Mapping[str, Any], schema: int) -> dict[str, Any]:
        """Arguments between tags."""
        opening = list(tags["open"])
        at = next((i for i, piece in enumerate(opening) if piece.get("key")), None)
        if at is None:
            raise ValueError("the opening tag of a tool envelope's parameters needs a key")
        close = self._tag(tags["close"])
        if not "".join(part.get("text", part.get("as", "")) for part in close).strip():
            raise ValueError("the closing tag of a tool envelope's parameters must not be empty")
        types = member_types(self._schemas[schema])
        other = _mixed(types.other)
        return {
            "schema": schema,
            "open": self._tag(opening[:at]),
            "after": self._tag(opening[at + 1 :]),
            "close": close,
            "mixed": {name: mine for name, each in types.named.items() if (mine := _mixed(each)) != other},
            "other": other,
        }

    def _tag(self, pieces: Iterable[Mapping[str, Any]]) -> list[Any]:
        """The parts of a tag: texts that are one text, and tokens with the text that readers see."""
        out: list[Any] = []
        for piece in pieces:
            if "typed" in piece:
                out.append({"typed": [str(text) for text in piece["typed"]]})
                continue
            if not ("text" in piece or "special" in piece):
                raise ValueError(f"a piece of a tag that is none of text, special, key, typed: {piece!r}")
            for part in self((piece,)):
                out.append({**part, "as": piece["special"]} if "token" in part else part)
        return out

    def call(self, items: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[str, Any]:
        """The part for a call of any tool, with the parts that all tools share in it once."""
        mine = [i for i, piece in enumerate(items) if _of_tool(piece)]
        if not mine:
            return {"seq": self(items)}
        before, own, after = items[: mine[0]], items[mine[0] : mine[-1] + 1], items[mine[-1] + 1 :]
        if "any" in own[0]:
            part = {"any": [self.call([*each, *own[1:]], names) for each in own[0]["any"]]}
        else:
            # The rest is read for each alternative: tools with the same arguments share one.
            alike: dict[str, list[int]] = {}
            for i, text in enumerate(self._texts):
                alike.setdefault(text, []).append(i)
            part = {"any": [{"seq": self(own, [names[i] for i in each], each[0])} for each in alike.values()]}
        return {"seq": [*self(before), part, *self(after)]}


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
    reasoning: Reasoning | None = None,
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
        format: a name in `tool_formats`, or an envelope of that shape. Where arguments stand between tags, a string
            has no closing tag in it, and text that is JSON of another type that the argument may have is that value
            (`read_argument`).
        choice: ``"auto"``: text, calls, or text and then calls. ``"required"``: at least one call. The name of a
            tool: exactly that one.
        parallel: whether several calls may follow each other.
        max_calls: at most so many calls.
        text_before: whether text may come before the calls; by default only with ``choice="auto"``.
        answer: a JSON schema that the text must match where no call is made (with ``choice="auto"`` only). There is
            then no free text.
        reasoning: marks of the reasoning that may come before text and calls.
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
        TypeError: for an argument of another type, which it names.
        ValueError: for unknown formats or choices, and names that are missing, repeated or malformed.

    """
    checks.instance("vocabulary", vocabulary, Vocabulary)
    envelope = envelope_of(format)
    functions = [_function(t, i) for i, t in enumerate(checks.items("tools", tools, "tools (mappings)"))]
    names = [f[0] for f in functions]
    if not names:
        raise ValueError("there are no tools")
    if len(set(names)) != len(names):
        raise ValueError("two tools have the same name")
    if checks.text("choice", choice) not in ("auto", "required"):
        functions = [f for f in functions if f[0] == choice]
        if not functions:
            raise ValueError(f"choice must be 'auto', 'required' or the name of a tool, not {choice!r}")
    forced = choice != "auto"
    most = None if max_calls is None else checks.integer("max_calls", max_calls, 1)
    if not checks.flag("parallel", parallel) or envelope.get("single") or choice not in ("auto", "required"):
        most = 1

    texts = [checks.json_text("the schema", schema, where) for _, schema, where in functions]
    spell = _Speller(vocabulary, [schema for _, schema, _ in functions], texts)
    schemas = [{"schema": schema, "at": where} for _, schema, where in functions]
    rules = {"call": spell.call(envelope["call"], [name for name, _, _ in functions])}
    call = {"rule": "call"}
    more = {"seq": [*spell(envelope.get("between", ())), call]}
    calls: dict[str, Any] = {
        "seq": [
            *spell(envelope.get("before", ())),
            call,
            {"many": more, "min": 0, "max": None if most is None else most - 1},
            *spell(envelope.get("after", ())),
        ]
    }
    with_text = (not forced) if text_before is None else checks.flag("text_before", text_before)
    if answer is not None:
        if forced:
            raise ValueError("an answer besides calls needs choice='auto'")
        checks.json_text("the schema", answer, "/answer")
        schemas.append({"schema": answer, "at": "/answer"})
        layout: dict[str, Any] = {
            "any": [calls, {"seq": [*spell(envelope.get("say", ())), {"schema": len(schemas) - 1}]}]
        }
    elif with_text:
        # Reasoning that the text began would hide the call in it.
        marks = () if reasoning is None else (checks.instance("reasoning", reasoning, Reasoning).open,)
        free = {"free": [*envelope.get("stop", ()), *marks]}
        say = spell(envelope.get("say", ()))
        then = {"seq": [*spell(envelope.get("then", ())), calls]}
        layout = {"seq": [*say, free, then if forced else _optional(then)]}
        if say:
            layout = {"any": [calls, layout]}
    else:
        layout = calls if forced else _optional(calls)
    if reasoning is not None:
        layout = with_reasoning(reasoning, vocabulary, layout)
    recipe: dict[str, Any] = {
        "kind": "layout",
        "source": checks.json_text("the layout", {"schemas": schemas, "rules": rules, "part": layout}),
        **text_options(mode, whitespace, max_whitespace, property_order, draft, canonical_escapes),
    }
    return cached(recipe, vocabulary, budget, resolver)
