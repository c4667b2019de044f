"""Token constraints by `llamay_grammar`, over a model's vocabulary."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import numpy.typing as npt

import llamay_grammar
from llamay_models.tokenizer import token_table
from llamay_server.engine.constraint import OutputConstraint, UnsupportedConstraint


class GrammarConstraint:
    """A position in a constrained text, as `llamay_models.TokenConstraint` asks about it."""

    def __init__(self, matcher: llamay_grammar.Matcher, warnings: tuple[str, ...] = ()) -> None:
        self._matcher = matcher
        self.warnings = warnings
        """What of the constraint is not enforced, a sentence each."""

    def fill_mask(self, mask: npt.NDArray[np.uint32]) -> None:
        """Write the mask of the tokens that may come next: one bit a token, uint32 (ceil(vocabulary / 32),)."""
        self._matcher.fill_mask(mask)

    def __llamay_token_constraint__(self) -> object:
        """The C interface, through which the engine fills the masks of many texts in one call."""
        return self._matcher.__llamay_token_constraint__()

    def accept(self, token: int) -> None:
        """Move past a token."""
        self._matcher.accept(token)

    def forced_tokens(self, limit: int = 64) -> list[int]:
        """The run of tokens that must come next, whatever the model says."""
        return self._matcher.forced_tokens(limit)

    def fork(self) -> GrammarConstraint:
        """An independent constraint at the same position."""
        return GrammarConstraint(self._matcher.fork(), self.warnings)


class Grammars:
    """The constraints of one vocabulary, which keeps compiled grammars and their masks."""

    def __init__(self, tokenizer: Any, size: int) -> None:
        self._tokenizer, self._size = tokenizer, size
        self._vocabulary: llamay_grammar.Vocabulary | None = None
        self._lock = threading.Lock()

    def vocabulary(self) -> llamay_grammar.Vocabulary:
        """The tokens as the compiler needs them, made when the first grammar is."""
        with self._lock:
            if self._vocabulary is None:
                table = token_table(self._tokenizer, self._size)
                self._vocabulary = llamay_grammar.Vocabulary(
                    table.tokens, special=table.special, end=table.end
                )
            return self._vocabulary

    def constraint(self, wanted: OutputConstraint) -> GrammarConstraint:
        """A constraint at its beginning. Raises `UnsupportedConstraint` for what cannot be enforced exactly."""
        try:
            grammar = self._compile(wanted)
        except (ValueError, RecursionError) as e:  # CompileError is a ValueError
            raise UnsupportedConstraint(str(e)) from e
        return GrammarConstraint(grammar.matcher(), grammar.warnings)

    def _compile(self, wanted: OutputConstraint) -> llamay_grammar.Grammar:
        vocabulary, value = self.vocabulary(), wanted.value
        reasoning = None if wanted.reasoning is None else llamay_grammar.Reasoning(*wanted.reasoning)
        match wanted.kind:
            case "json_schema":
                return llamay_grammar.compile_json_schema(
                    value, vocabulary, canonical_escapes=wanted.canonical_escapes, reasoning=reasoning
                )
            case "json_object":
                return llamay_grammar.compile_json_object(
                    vocabulary, canonical_escapes=wanted.canonical_escapes, reasoning=reasoning
                )
            case "regex":
                return llamay_grammar.compile_regex(value, vocabulary, whole=True)
            case "grammar":
                return llamay_grammar.compile_gbnf(value, vocabulary)
            case "tools":
                return _compile_tools(value, vocabulary, reasoning)


def _compile_tools(
    value: Any, vocabulary: llamay_grammar.Vocabulary, reasoning: llamay_grammar.Reasoning | None
) -> llamay_grammar.Grammar:
    form: dict[str, Any] = {key: value[key] for key in ("format", "choice", "parallel", "answer")}
    # One way to write a call, so that its replay in a later turn is the text that was generated.
    form |= {"whitespace": "spaced", "property_order": "schema", "canonical_escapes": True}
    form["reasoning"] = reasoning
    try:
        return llamay_grammar.compile_tools(value["tools"], vocabulary, **form)
    except llamay_grammar.CompileError:
        if value["strict"]:
            raise
        return llamay_grammar.compile_tools(value["tools"], vocabulary, mode="approximate", **form)
