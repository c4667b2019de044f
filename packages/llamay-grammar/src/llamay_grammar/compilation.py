"""Compiling schemas, regular expressions and grammars."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

from llamay_grammar import checks
from llamay_grammar.errors import CompileError
from llamay_grammar.grammars import Grammar
from llamay_grammar.reasoning import Reasoning, reasoning_part
from llamay_grammar.recipes import Budget, Draft, Mode, Resolver, Whitespace, compiled, text_options
from llamay_grammar.vocabulary import Vocabulary

__all__ = ["compile_ebnf", "compile_gbnf", "compile_json_object", "compile_json_schema", "compile_regex"]

# Longer sources are compiled each time: a cache of them would take more memory than compiling takes time.
_LONGEST_CACHED = 1 << 20


def cached(
    recipe: dict[str, Any], vocabulary: Vocabulary, budget: Budget | None, resolver: Resolver | None
) -> Grammar:
    """Return the grammar of a recipe, the one that the vocabulary remembers if it has been compiled before.

    Raises:
        TypeError: for a vocabulary, a budget or a resolver of another type.
        CompileError: the source is refused.

    """
    checks.instance("vocabulary", vocabulary, Vocabulary)
    if budget is not None:
        checks.instance("budget", budget, Budget)
    if not (resolver is None or callable(resolver)):
        raise checks.wrong("resolver", "a function from a URI to a document, or None", resolver)
    # A resolver may answer differently tomorrow, so grammars that it took part in are not remembered.
    if resolver is not None:
        recipe["documents"] = {}
        return Grammar(compiled(recipe, vocabulary, budget, resolver), vocabulary, recipe)
    key = tuple(sorted(recipe.items()))
    hit: Grammar | None = vocabulary._grammars.get(key)
    if hit is not None:
        return hit
    made = Grammar(compiled(recipe, vocabulary, budget, None), vocabulary, recipe)
    if len(recipe["source"]) <= _LONGEST_CACHED:
        vocabulary._grammars.put(key, made)
    return made


def with_reasoning(reasoning: Reasoning, vocabulary: Vocabulary, part: dict[str, Any]) -> dict[str, Any]:
    """Return a part of a layout with the reasoning that may come before it. Raises TypeError for other types."""
    checks.instance("vocabulary", vocabulary, Vocabulary)
    return {"seq": [reasoning_part(checks.instance("reasoning", reasoning, Reasoning), vocabulary), part]}


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
        reasoning: marks of the reasoning that may come before the document.
        resolver: called with the URI of a document outside the schema; returns it (mapping or JSON text) or None.
        budget: limits of the compilation.

    Raises:
        CompileError: naming keyword and JSON pointer.
        TypeError: for an argument of another type, which it names.
        ValueError: for an option that does not exist, or is out of bounds.

    Sources: JSON Schema drafts 4, 6, 7, 2019-09 and 2020-12; RFC 8259 for JSON; ECMA-262 for ``pattern``.

    """
    # None is JSON's null: the compiler refuses it as it refuses the text.
    if not (schema is None or isinstance(schema, (str, bool, Mapping))):
        raise CompileError(f"schema must be a mapping, a bool or JSON text, not {checks.described(schema)}")
    if isinstance(schema, str):
        text = checks.text("schema", schema, CompileError)
    else:
        text = checks.json_text("schema", schema)
    kind = "json_schema"
    if reasoning is not None:
        # The schema stays a text of its own: what is wrong with it is found where it is.
        part = with_reasoning(reasoning, vocabulary, {"schema": 0})
        kind, text = "layout", json.dumps({"schemas": [{"text": text, "at": ""}], "part": part})
    recipe: dict[str, Any] = {
        "kind": kind,
        "source": text,
        **text_options(mode, whitespace, max_whitespace, property_order, draft, canonical_escapes),
    }
    return cached(recipe, vocabulary, budget, resolver)


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
        TypeError: for an argument of another type, which it names.

    """
    source = checks.text("pattern", pattern, CompileError)
    recipe = {"kind": "regex", "source": source, "whole": checks.flag("whole", whole)}
    return cached(recipe, vocabulary, budget, None)


def compile_gbnf(
    grammar: str, vocabulary: Vocabulary, *, root: str = "root", budget: Budget | None = None
) -> Grammar:
    """Compile a grammar in llama.cpp's GBNF.

    Rules without recursion become one automaton each; the others are a network of rules with a stack. Left
    recursion is rewritten as repetition; one that hides behind a recursive rule that may be empty is refused.

    Raises:
        CompileError: with line and column, or naming the rule.
        TypeError: for an argument of another type, which it names.

    """
    source = checks.text("grammar", grammar, CompileError)
    return cached(
        {"kind": "gbnf", "source": source, "root": checks.text("root", root)}, vocabulary, budget, None
    )


def compile_ebnf(
    grammar: str, vocabulary: Vocabulary, *, root: str | None = None, budget: Budget | None = None
) -> Grammar:
    """Compile a grammar in the EBNF of the W3C's specifications (XML 1.0, section 6). The first rule is the root.

    Raises:
        CompileError: with line and column, or naming the rule.
        TypeError: for an argument of another type, which it names.

    """
    source = checks.text("grammar", grammar, CompileError)
    first = "" if root is None else checks.text("root", root)
    return cached({"kind": "ebnf", "source": source, "root": first}, vocabulary, budget, None)
