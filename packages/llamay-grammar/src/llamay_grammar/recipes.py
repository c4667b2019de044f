"""Recipes: a source and its options as JSON values, from which a grammar is compiled, now or from a file."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from llamay_grammar import _grammar, checks
from llamay_grammar.errors import CompileError, RestoreError
from llamay_grammar.vocabulary import Vocabulary

__all__ = ["Budget"]

Mode = Literal["exact", "approximate", "annotate"]
Draft = Literal["4", "6", "7", "2019-09", "2020-12"]
Whitespace = Literal["flexible", "spaced", "compact"]
Resolver = Callable[[str], Any]

_KINDS = ("json_schema", "regex", "gbnf", "ebnf", "layout")


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits of one compilation, which is refused beyond them with ``CompileError(keyword="budget")``.

    Attributes:
        seconds: of wall time; infinity sets no limit.
        states: of one automaton.
        alternatives: of one value (what anyOf, oneOf, not and if combine to).

    Raises:
        TypeError: for a limit that is no number, or no integer.
        ValueError: for one that is not positive, or an integer of more than 32 bits.

    """

    seconds: float = 5.0
    states: int = 20_000
    alternatives: int = 4096

    def __post_init__(self) -> None:
        object.__setattr__(self, "seconds", checks.positive("seconds", self.seconds))
        for name in ("states", "alternatives"):
            object.__setattr__(self, name, checks.integer(name, getattr(self, name), 1))


def canonical(recipe: Mapping[str, Any]) -> bytes:
    """Return a recipe as JSON text, the same for equal recipes."""
    return json.dumps(recipe, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def text_options(
    mode: str,
    whitespace: str,
    max_whitespace: int,
    property_order: str,
    draft: str | None,
    canonical_escapes: bool = False,
) -> dict[str, Any]:
    """Return the options of JSON texts as part of a recipe. Raises TypeError and ValueError for other values."""
    drafts = ("4", "6", "7", "2019-09", "2020-12")
    return {
        "mode": checks.one_of("mode", mode, ("exact", "approximate", "annotate")),
        "whitespace": checks.one_of("whitespace", whitespace, ("flexible", "spaced", "compact")),
        "max_whitespace": checks.integer("max_whitespace", max_whitespace, 0, 4096),
        "property_order": checks.one_of("property_order", property_order, ("any", "schema")),
        "draft": "" if draft is None else checks.one_of("draft", draft, drafts),
        # The option is left out where it is off: grammars keep the digest that they had before there was a choice.
        **({"canonical_escapes": True} if checks.flag("canonical_escapes", canonical_escapes) else {}),
    }


def read_recipe(written: bytes) -> dict[str, Any]:
    """Return the recipe that `canonical` wrote. Raises RestoreError for text that is no recipe."""
    try:
        recipe: dict[str, Any] = json.loads(written)
        kind = recipe["kind"]
        if kind not in _KINDS:
            raise RestoreError(f"unknown kind of grammar {checks.described(kind)}")
        checks.text("source", recipe["source"])
        if kind == "regex":
            checks.flag("whole", recipe["whole"])
        elif kind in ("gbnf", "ebnf"):
            checks.text("root", recipe["root"])
        else:
            defaults = {
                "mode": "exact",
                "whitespace": "flexible",
                "max_whitespace": 32,
                "property_order": "any",
            }
            given = {name: recipe.get(name, default) for name, default in defaults.items()}
            text_options(
                draft=recipe.get("draft") or None,
                canonical_escapes=recipe.get("canonical_escapes", False),
                **given,
            )
        for uri, document in recipe.get("documents", {}).items():
            checks.text(f"the document {uri}", document)
    except RestoreError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise RestoreError(f"the serialised grammar holds no recipe that can be compiled: {error}") from None
    return recipe


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
        what = f"the document that the resolver returned for {uri}"
        written = found if isinstance(found, str) else checks.json_text(what, found)
        documents[uri] = checks.text(what, written, CompileError)
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
    return _grammar._compile_layout(source, vocabulary._native, options)
