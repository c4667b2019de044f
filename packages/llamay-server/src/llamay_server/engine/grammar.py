"""Token constraints by llamay_grammar, over a model's tokens."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import numpy.typing as npt

import llamay_grammar
from llamay_models.tokenizer import token_table
from llamay_server.engine import protocol as p


class Constraint:
    """A position in a document, as the engine asks about it."""

    def __init__(self, matcher: llamay_grammar.Matcher, warnings: tuple[str, ...] = ()) -> None:
        self._matcher, self.warnings = matcher, warnings

    def fill_mask(self, mask: npt.NDArray[np.uint32]) -> None:
        """Write the mask of the tokens that may come next."""
        self._matcher.fill_mask(mask)

    def __llamay_token_constraint__(self) -> object:
        """The same as a C interface, which the engine fills many masks through at once."""
        return self._matcher.__llamay_token_constraint__()

    def accept(self, token: int) -> None:
        """Move past a token."""
        self._matcher.accept(token)

    def forced_tokens(self, limit: int = 64) -> list[int]:
        """The run of tokens that must come next, whatever the model says."""
        return self._matcher.forced_tokens(limit)

    def fork(self) -> Constraint:
        """An independent constraint at the same position."""
        return Constraint(self._matcher.fork(), self.warnings)


class Grammars:
    """The constraints of one vocabulary. Compiled grammars and masks are kept with the vocabulary."""

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

    def constraint(self, kind: str, value: Any) -> Constraint:
        """A fresh constraint. Raises `UnsupportedConstraint` for what cannot be enforced exactly."""
        try:
            grammar = self._compile(kind, value)
        except (ValueError, RecursionError) as e:  # CompileError is a ValueError
            raise p.UnsupportedConstraint(str(e)) from e
        return Constraint(grammar.matcher(), grammar.warnings)

    def _compile(self, kind: str, value: Any) -> llamay_grammar.Grammar:
        vocabulary = self.vocabulary()
        reasoning = None
        if kind == "after_thoughts":
            kind, value, reasoning = value["kind"], value["value"], _reasoning(value)
        match kind:
            case "json_schema":
                return llamay_grammar.compile_json_schema(value, vocabulary, reasoning=reasoning)
            case "json_schema_canonical":
                return llamay_grammar.compile_json_schema(
                    value, vocabulary, canonical_escapes=True, reasoning=reasoning
                )
            case "json_object":
                return llamay_grammar.compile_json_object(vocabulary, reasoning=reasoning)
            case "json_object_canonical":
                return llamay_grammar.compile_json_object(
                    vocabulary, canonical_escapes=True, reasoning=reasoning
                )
            case "regex":
                return llamay_grammar.compile_regex(value, vocabulary, whole=True)
            case "grammar":
                return llamay_grammar.compile_gbnf(value, vocabulary)
            case "tools":
                form: dict[str, Any] = {key: value[key] for key in ("format", "choice", "parallel", "answer")}
                # One way to write a call, so that its replay in a later turn is the text that was generated.
                form |= {"whitespace": "spaced", "property_order": "schema", "canonical_escapes": True}
                form["reasoning"] = _reasoning(value)
                try:
                    return llamay_grammar.compile_tools(value["tools"], vocabulary, **form)
                except llamay_grammar.CompileError:
                    if value["strict"]:
                        raise
                    return llamay_grammar.compile_tools(
                        value["tools"], vocabulary, mode="approximate", **form
                    )
            case _:
                raise p.UnsupportedConstraint(f"a constraint of kind {kind} is not available on this server")


def _reasoning(value: Any) -> llamay_grammar.Reasoning | None:
    return None if value["thoughts"] is None else llamay_grammar.Reasoning(*value["thoughts"])
