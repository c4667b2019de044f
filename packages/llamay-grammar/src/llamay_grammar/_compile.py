"""Compiling schemas, regular expressions and grammars."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any, Literal

from . import _grammar
from ._errors import RestoreError
from ._matcher import Matcher, read_position
from ._reasoning import Reasoning, thought
from ._vocabulary import Vocabulary

__all__ = [
    "Budget",
    "Grammar",
    "compile_ebnf",
    "compile_gbnf",
    "compile_json_object",
    "compile_json_schema",
    "compile_regex",
]

Mode = Literal["exact", "approximate", "annotate"]
Draft = Literal["4", "6", "7", "2019-09", "2020-12"]
Whitespace = Literal["flexible", "spaced", "compact"]
Resolver = Callable[[str], Any]

_MAGIC = b"llmG\x01"
_CACHED_GRAMMARS = 256


class Budget:
    """What one compilation may use before it is refused with ``CompileError(keyword="budget")``.

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


class Grammar:
    """A compiled grammar over a vocabulary: immutable, shared by threads.

    Attributes:
        vocabulary: the one it was compiled for.
        warnings: what is not enforced (only in the modes ``"approximate"`` and ``"annotate"``).
        digest: 32 bytes that identify source, options and vocabulary.

    """

    def __init__(self, native: _grammar._Grammar, vocabulary: Vocabulary, recipe: Mapping[str, Any]) -> None:
        self._native = native
        self.vocabulary = vocabulary
        self._recipe = dict(recipe)
        self.warnings: tuple[str, ...] = tuple(native.warnings)
        self.digest: bytes = hashlib.sha256(_canonical(recipe) + vocabulary.digest).digest()

    def matcher(self) -> Matcher:
        """Return a matcher at the beginning of a document."""
        return Matcher(self)

    def restore(self, data: bytes) -> Matcher:
        """Return the matcher that `Matcher.serialize` wrote. Raises RestoreError."""
        matcher = Matcher(self)
        for token in read_position(data, self.digest):
            matcher.accept(token)
        return matcher

    def serialize(self) -> bytes:
        """Return the grammar as bytes for `Grammar.deserialize`.

        They hold the sources (documents that a resolver supplied included), not the tables, so they can be read by
        another version and on another machine; compiling again takes well under a millisecond as a rule.
        """
        body = _MAGIC + self.vocabulary.digest + _canonical(self._recipe)
        return body + hashlib.sha256(body).digest()[:16]

    @staticmethod
    def deserialize(data: bytes, vocabulary: Vocabulary) -> Grammar:
        """Return the grammar that `serialize` wrote. Raises RestoreError."""
        if len(data) < len(_MAGIC) + 48 or not data.startswith(_MAGIC):
            raise RestoreError("not a serialised grammar, or cut short")
        body, check = data[:-16], data[-16:]
        if hashlib.sha256(body).digest()[:16] != check:
            raise RestoreError("the serialised grammar is damaged: its checksum does not match")
        if body[len(_MAGIC) : len(_MAGIC) + 32] != vocabulary.digest:
            raise RestoreError("the serialised grammar belongs to another vocabulary")
        return _build(json.loads(body[len(_MAGIC) + 32 :]), vocabulary, None, None)

    def __repr__(self) -> str:
        return f"Grammar({self._recipe['kind']}, {self._native.nodes} values, {len(self.vocabulary)} tokens)"


def _canonical(recipe: Mapping[str, Any]) -> bytes:
    return json.dumps(recipe, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


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


def _build(
    recipe: dict[str, Any], vocabulary: Vocabulary, budget: Budget | None, resolver: Resolver | None
) -> Grammar:
    options = _options(recipe, budget, resolver)
    kind, source = recipe["kind"], recipe["source"]
    if kind == "json_schema":
        native = _grammar._compile_json_schema(source, vocabulary._native, options)
    elif kind == "regex":
        native = _grammar._compile_regex(source, recipe["whole"], vocabulary._native, options)
    elif kind == "gbnf":
        native = _grammar._compile_gbnf(source, recipe["root"], vocabulary._native, options)
    elif kind == "ebnf":
        native = _grammar._compile_ebnf(source, recipe["root"], vocabulary._native, options)
    elif kind == "layout":
        native = _grammar._compile_layout(source, vocabulary._native, options)
    else:
        raise RestoreError(f"unknown kind of grammar {kind!r}")
    return Grammar(native, vocabulary, recipe)


def _cached(
    recipe: dict[str, Any], vocabulary: Vocabulary, budget: Budget | None, resolver: Resolver | None
) -> Grammar:
    # A resolver may answer differently tomorrow, so what it took part in is not remembered.
    if resolver is not None:
        recipe["documents"] = {}
        return _build(recipe, vocabulary, budget, resolver)
    key = tuple(sorted(recipe.items()))
    with vocabulary._lock:
        if (hit := vocabulary._grammars.get(key)) is not None:
            vocabulary._grammars.move_to_end(key)
            return hit
    made = _build(recipe, vocabulary, budget, None)
    if len(recipe["source"]) <= 1 << 20:
        with vocabulary._lock:
            vocabulary._grammars[key] = made
            while len(vocabulary._grammars) > _CACHED_GRAMMARS:
                vocabulary._grammars.popitem(last=False)
    return made


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}, not {value!r}")
    return value


def _text_options(
    mode: str,
    whitespace: str,
    max_whitespace: int,
    property_order: str,
    draft: str | None,
    canonical_escapes: bool = False,
) -> dict[str, Any]:
    if not 0 <= max_whitespace <= 4096:
        raise ValueError("max_whitespace must be between 0 and 4096")
    return {
        "mode": _one_of("mode", mode, ("exact", "approximate", "annotate")),
        "whitespace": _one_of("whitespace", whitespace, ("flexible", "spaced", "compact")),
        "max_whitespace": int(max_whitespace),
        "property_order": _one_of("property_order", property_order, ("any", "schema")),
        "draft": "" if draft is None else _one_of("draft", draft, ("4", "6", "7", "2019-09", "2020-12")),
        # Left out where it is not asked for: grammars keep the digest that they had before there was a choice.
        **({"canonical_escapes": True} if canonical_escapes else {}),
    }


def compile_json_schema(
    schema: Mapping[str, Any] | bool | str,
    vocabulary: Vocabulary,
    *,
    mode: Mode = "exact",
    draft: Draft | None = None,
    whitespace: Whitespace = "flexible",
    max_whitespace: int = 32,
    property_order: Literal["any", "schema"] = "any",
    canonical_escapes: bool = False,
    reasoning: Reasoning | None = None,
    resolver: Resolver | None = None,
    budget: Budget | None = None,
) -> Grammar:
    r"""Compile a JSON Schema: the documents are exactly those that are valid under it.

    Args:
        schema: a mapping, a boolean, or JSON text (numbers in text keep all their digits).
        vocabulary: the model's tokens.
        mode: ``"exact"``: a keyword that cannot be enforced is an error. ``"approximate"``: it is dropped, with a
            warning in `Grammar.warnings`. ``"annotate"``: the same, and ``format`` is not enforced.
        draft: which JSON Schema applies where ``$schema`` does not say; by default the keywords of all drafts count.
        whitespace: ``"flexible"``: up to `max_whitespace` characters between any two symbols. ``"spaced"``: one
            space after ``,`` and ``:``. ``"compact"``: none.
        max_whitespace: longest run of whitespace.
        property_order: ``"any"``, or ``"schema"`` to write declared members in the order of the schema.
        canonical_escapes: strings and names write every character in one way: literally, or where JSON forbids that
            by its short escape, or where there is none by ``\u`` and digits. The values are the same ones.
        reasoning: marks of thoughts that may come before the document.
        resolver: called with the URI of a document outside the schema; returns it (mapping or JSON text) or None.
        budget: limits of the compilation.

    Raises:
        CompileError: naming keyword and JSON pointer.

    Sources: JSON Schema drafts 4, 6, 7, 2019-09 and 2020-12; RFC 8259 for JSON; ECMA-262 for ``pattern``.

    """
    text = schema if isinstance(schema, str) else json.dumps(schema)
    kind = "json_schema"
    if reasoning is not None:
        # The schema stays a text of its own: what is wrong with it is found where it is.
        part = {"seq": [thought(reasoning, vocabulary), {"schema": 0}]}
        kind, text = "layout", json.dumps({"schemas": [{"text": text, "at": ""}], "part": part})
    recipe: dict[str, Any] = {
        "kind": kind,
        "source": text,
        **_text_options(mode, whitespace, max_whitespace, property_order, draft, canonical_escapes),
    }
    return _cached(recipe, vocabulary, budget, resolver)


def compile_json_object(
    vocabulary: Vocabulary,
    *,
    whitespace: Whitespace = "flexible",
    max_whitespace: int = 32,
    canonical_escapes: bool = False,
    reasoning: Reasoning | None = None,
    budget: Budget | None = None,
) -> Grammar:
    """Compile "any JSON object", what OpenAI calls ``json_object`` mode; options as in `compile_json_schema`."""
    return compile_json_schema(
        '{"type":"object"}',
        vocabulary,
        whitespace=whitespace,
        max_whitespace=max_whitespace,
        canonical_escapes=canonical_escapes,
        reasoning=reasoning,
        budget=budget,
    )


def compile_regex(
    pattern: str, vocabulary: Vocabulary, *, whole: bool = False, budget: Budget | None = None
) -> Grammar:
    r"""Compile a regular expression: the texts in which it is found (`whole`: which it matches from end to end).

    ECMA-262 with the ``u`` flag, as JSON Schema has it: not anchored unless it says so, ``\d`` and ``\w`` are ASCII,
    lookahead is supported, back-references and lookbehind are not.

    Raises:
        CompileError: naming what is not supported and where.

    """
    recipe = {"kind": "regex", "source": pattern, "whole": bool(whole)}
    return _cached(recipe, vocabulary, budget, None)


def compile_gbnf(
    grammar: str, vocabulary: Vocabulary, *, root: str = "root", budget: Budget | None = None
) -> Grammar:
    """Compile a grammar in llama.cpp's GBNF.

    Rules without recursion become one automaton each; the others are a network of rules with a stack. Left
    recursion is rewritten as repetition; one that hides behind a recursive rule that may be empty is refused.

    Raises:
        CompileError: with line and column, or naming the rule.

    """
    return _cached({"kind": "gbnf", "source": grammar, "root": root}, vocabulary, budget, None)


def compile_ebnf(
    grammar: str, vocabulary: Vocabulary, *, root: str | None = None, budget: Budget | None = None
) -> Grammar:
    """Compile a grammar in the EBNF of the W3C's specifications (XML 1.0, section 6). The first rule is the root.

    Raises:
        CompileError: with line and column, or naming the rule.

    """
    return _cached({"kind": "ebnf", "source": grammar, "root": root or ""}, vocabulary, budget, None)
