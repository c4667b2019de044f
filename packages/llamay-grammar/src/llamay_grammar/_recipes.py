"""Recipes: a source and its options as JSON values, from which a grammar is compiled, now or from a file."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Literal

from . import _grammar
from ._errors import RestoreError
from ._vocabulary import Vocabulary

__all__ = ["Budget"]

Mode = Literal["exact", "approximate", "annotate"]
Draft = Literal["4", "6", "7", "2019-09", "2020-12"]
Whitespace = Literal["flexible", "spaced", "compact"]
Resolver = Callable[[str], Any]


class Budget:
    """The limits of one compilation, which is refused beyond them with ``CompileError(keyword="budget")``.

    Args:
        seconds: of wall time.
        states: of one automaton.
        alternatives: of one value (what anyOf, oneOf, not and if combine to).

    """

    __slots__ = ("alternatives", "seconds", "states")

    def __init__(self, seconds: float = 5.0, states: int = 20_000, alternatives: int = 4096) -> None:
        if seconds <= 0 or states <= 0 or alternatives <= 0:
            raise ValueError("budgets must be positive")
        self.seconds = float(seconds)
        self.states = int(states)
        self.alternatives = int(alternatives)


def canonical(recipe: Mapping[str, Any]) -> bytes:
    """Return a recipe as JSON text, the same for equal recipes."""
    return json.dumps(recipe, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}, not {value!r}")
    return value


def text_options(
    mode: str,
    whitespace: str,
    max_whitespace: int,
    property_order: str,
    draft: str | None,
    canonical_escapes: bool = False,
) -> dict[str, Any]:
    """Return the options of JSON texts as part of a recipe. Raises ValueError for values that do not exist."""
    if not 0 <= max_whitespace <= 4096:
        raise ValueError("max_whitespace must be between 0 and 4096")
    return {
        "mode": _one_of("mode", mode, ("exact", "approximate", "annotate")),
        "whitespace": _one_of("whitespace", whitespace, ("flexible", "spaced", "compact")),
        "max_whitespace": int(max_whitespace),
        "property_order": _one_of("property_order", property_order, ("any", "schema")),
        "draft": "" if draft is None else _one_of("draft", draft, ("4", "6", "7", "2019-09", "2020-12")),
        # The option is left out where it is off: grammars keep the digest that they had before there was a choice.
        **({"canonical_escapes": True} if canonical_escapes else {}),
    }


def _options(
    recipe: Mapping[str, Any], budget: Budget | None, resolver: Resolver | None
) -> _grammar._Options:
    limit = budget or Budget()
    documents: dict[str, str] = recipe.get("documents", {})

    def find(uri: str) -> str | None:
        if uri in documents:
            return documents[uri]
        found = resolver(uri) if resolver else None
        if found is None:
            return None
        documents[uri] = found if isinstance(found, str) else json.dumps(found)
        return documents[uri]

    return _grammar._Options(
        recipe.get("mode", "exact"),
        recipe.get("draft", ""),
        recipe.get("whitespace", "flexible"),
        recipe.get("max_whitespace", 32),
        recipe.get("property_order", "any") == "schema",
        recipe.get("canonical_escapes", False),
        limit.seconds,
        limit.states,
        limit.alternatives,
        find if resolver or documents else None,
    )


def compiled(
    recipe: Mapping[str, Any], vocabulary: Vocabulary, budget: Budget | None, resolver: Resolver | None
) -> _grammar._Grammar:
    """Compile a recipe; documents that the resolver supplies are put into ``recipe["documents"]``.

    Raises:
        CompileError: the source is refused.
        RestoreError: the recipe is of no kind that this version knows.

    """
    options = _options(recipe, budget, resolver)
    kind, source = recipe["kind"], recipe["source"]
    if kind == "json_schema":
        return _grammar._compile_json_schema(source, vocabulary._native, options)
    if kind == "regex":
        return _grammar._compile_regex(source, recipe["whole"], vocabulary._native, options)
    if kind == "gbnf":
        return _grammar._compile_gbnf(source, recipe["root"], vocabulary._native, options)
    if kind == "ebnf":
        return _grammar._compile_ebnf(source, recipe["root"], vocabulary._native, options)
    if kind == "layout":
        return _grammar._compile_layout(source, vocabulary._native, options)
    raise RestoreError(f"unknown kind of grammar {kind!r}")
