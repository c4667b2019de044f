"""Arguments of calls that stand between tags: strings stand there as they are, other values as JSON.

A tag does not say what type its content has; the function's schema does. One rule holds for the grammar and for
readers of the calls: content that may only be a string is a string, whatever it looks like. Where other types are
possible besides, content that is JSON of such a type is that value. All other content is a string where a string is
possible.
"""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from llamay_grammar import checks

__all__ = ["ArgumentTypes", "argument_types", "read_argument"]

_ALL = frozenset(("string", "number", "boolean", "null", "array", "object"))
"""An integer is a number; the type "integer" is named where numbers must be integers."""
_TYPES = (*sorted(_ALL), "integer")
_KNOWN = frozenset(_TYPES)
_LITERAL = 4096
"""The longest text that is tried as a literal of Python."""


@dataclass(frozen=True, slots=True)
class ArgumentTypes:
    """The JSON types that the members of an object may have, as its schema tells (never too few of them).

    Attributes:
        named: the types of the members that the schema names.
        other: the types of all other members.

    """

    named: Mapping[str, frozenset[str]]
    other: frozenset[str]

    def __post_init__(self) -> None:
        if not isinstance(self.named, Mapping):
            raise checks.wrong("named", "a mapping from names to JSON types", self.named)
        if not isinstance(self.other, (frozenset, set)):
            raise checks.wrong("other", "a set of JSON types", self.other)

    def __getitem__(self, name: str) -> frozenset[str]:
        if not isinstance(name, str):
            raise checks.wrong("name", "a str", name)
        return self.named.get(name, self.other)


_ANYTHING = ArgumentTypes({}, _ALL)


def argument_types(schema: Any) -> ArgumentTypes:
    """Return which JSON types the members of an object under `schema` may have.

    It follows ``type``, ``enum``, ``const``, ``properties``, ``additionalProperties``, ``allOf``, ``anyOf``, ``oneOf``
    and ``$ref`` within the document; other keywords can only exclude more types.

    Raises:
        TypeError: for other than a mapping or a bool.
        ValueError: for a schema that is nested too deep.

    """
    if not isinstance(schema, (Mapping, bool)):
        raise checks.wrong("schema", "a mapping or a bool", schema)
    return member_types(schema)


def member_types(schema: Any) -> ArgumentTypes:
    """As `argument_types`, for a value that may be no schema: that says nothing. Raises ValueError."""
    try:
        return _Schema(schema).members(schema)
    except RecursionError:
        raise ValueError("schema is nested too deep to be followed") from None


def read_argument(text: str, types: Iterable[str]) -> Any:
    """Return the value that stands between two tags as `text`, if it may have these JSON types.

    Where no string is possible, text that is no JSON is read as a literal of Python, as some templates write values
    (``True``, ``['a']``), and if it is none, as a string: nothing is lost.

    Raises:
        TypeError: for other than a text and a set of names.
        ValueError: for a name that no JSON type has.

    """
    if not isinstance(text, str):
        raise checks.wrong("text", "a str", text)
    if not isinstance(types, frozenset) or not types <= _KNOWN:
        types = frozenset(
            checks.one_of("a type", each, _TYPES) for each in checks.items("types", types, "JSON types")
        )
    others = types - {"string"}
    if not others:
        return text
    try:
        value = _DECODER.decode(text)
    except (ValueError, RecursionError):
        value = _NOTHING
    if value is not _NOTHING and _is_one_of(value, others):
        return value
    if "string" in types:
        return text
    if value is _NOTHING and len(text) <= _LITERAL:
        try:
            literal = ast.literal_eval(text.strip())
            json.dumps(literal, allow_nan=False)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            return text
        if _is_one_of(literal, others):
            return literal
    return text if value is _NOTHING else value


_NOTHING = object()


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is too large")
    return value


_DECODER = json.JSONDecoder(parse_constant=_no_constant, parse_float=_finite)


def _type_of(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def _is_one_of(value: Any, types: frozenset[str]) -> bool:
    kind = _type_of(value)
    if kind == "number" and "number" not in types:
        return "integer" in types and (isinstance(value, int) or value.is_integer())
    return kind in types


def _meet(a: frozenset[str], b: frozenset[str]) -> frozenset[str]:
    both = a & b
    if ("number" in a and "integer" in b) or ("integer" in a and "number" in b):
        both |= {"integer"}
    return both


class _Schema:
    """A document, and what its parts were found to allow."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._types: dict[int, frozenset[str]] = {}
        self._known: dict[int, ArgumentTypes] = {}
        self._embedded: bool | None = None
        stated = root.get("$schema") if isinstance(root, Mapping) else None
        # Up to draft 7 nothing counts beside a reference.
        self._alone = isinstance(stated, str) and "/draft-0" in stated

    def types(self, schema: Any) -> frozenset[str]:
        if schema is False:
            return frozenset()
        if not isinstance(schema, Mapping):
            return _ALL
        known = self._types.get(id(schema))
        if known is None:
            self._types[id(schema)] = _ALL  # what refers to itself says no more than the rest of it
            known = self._types[id(schema)] = self._of(schema)
        return known

    def members(self, schema: Any) -> ArgumentTypes:
        if not isinstance(schema, Mapping):
            return _ANYTHING
        known = self._known.get(id(schema))
        if known is None:
            self._known[id(schema)] = _ANYTHING
            known = self._known[id(schema)] = self._within(schema)
        return known

    def _of(self, schema: Mapping[str, Any]) -> frozenset[str]:
        out = _ALL
        if "$ref" in schema:
            out = self.types(self._target(schema))
            if self._alone:
                return out
        stated = schema.get("type")
        if isinstance(stated, str):
            stated = [stated]
        if isinstance(stated, list) and all(isinstance(t, str) for t in stated):
            out = _meet(out, frozenset(t for t in stated if t == "integer" or t in _ALL) or _ALL)
        listed = schema.get("enum")
        values = [*listed] if isinstance(listed, list) else None
        if "const" in schema:
            values = [schema["const"]]
        if values is not None:
            out = _meet(out, frozenset(map(_type_of, values)))
        for part in _list(schema, "allOf"):
            out = _meet(out, self.types(part))
        for key in ("anyOf", "oneOf"):
            if branches := _list(schema, key):
                out = _meet(out, frozenset().union(*map(self.types, branches)))
        return out

    def _within(self, schema: Mapping[str, Any]) -> ArgumentTypes:
        out = _ANYTHING
        if "$ref" in schema:
            out = self.members(self._target(schema))
            if self._alone:
                return out
        properties = schema.get("properties")
        named = properties.items() if isinstance(properties, Mapping) else ()
        # Whether a name fits one of the patterns is not asked.
        other = (
            _ALL if schema.get("patternProperties") else self.types(schema.get("additionalProperties", True))
        )
        out = _both(out, ArgumentTypes({name: self.types(value) for name, value in named}, other))
        for part in _list(schema, "allOf"):
            out = _both(out, self.members(part))
        for key in ("anyOf", "oneOf"):
            if branches := _list(schema, key):
                each = [self.members(branch) for branch in branches]
                names = {name for types in each for name in types.named}
                union = {name: frozenset().union(*(types[name] for types in each)) for name in names}
                other = frozenset().union(*(types.other for types in each))
                out = _both(out, ArgumentTypes(union, other))
        return out

    def _target(self, schema: Mapping[str, Any]) -> Any:
        """What a reference within the document leads to; True, which allows everything, where it leads elsewhere."""
        reference = schema["$ref"]
        if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
            return True
        if self._embedded is None:
            self._embedded = _embeds(self._root)
        if self._embedded:
            return True
        at = self._root
        for escaped in reference.split("/")[1:]:
            part = unquote(escaped).replace("~1", "/").replace("~0", "~")
            if isinstance(at, Mapping) and part in at:
                at = at[part]
            elif isinstance(at, list) and part.isdecimal() and int(part) < len(at):
                at = at[int(part)]
            else:
                return True
        return at


def _list(schema: Mapping[str, Any], key: str) -> list[Any]:
    value = schema.get(key)
    return value if isinstance(value, list) else []


def _embeds(root: Any) -> bool:
    """Whether a part of the document is one of its own, from which references within it are counted."""
    todo = [root]
    while todo:
        at = todo.pop()
        if isinstance(at, Mapping):
            if at is not root and ("$id" in at or "id" in at):
                return True
            todo += at.values()
        elif isinstance(at, list):
            todo += at
    return False


def _both(a: ArgumentTypes, b: ArgumentTypes) -> ArgumentTypes:
    names = [*a.named, *(name for name in b.named if name not in a.named)]
    return ArgumentTypes({name: _meet(a[name], b[name]) for name in names}, _meet(a.other, b.other))
