"""The constraint of a generation's output, before a grammar is compiled for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["json_schema", "json_object", "regex", "grammar", "tools"]
JSON_KINDS = frozenset(("json_schema", "json_object"))
"""The kinds whose documents may stand beside tool calls, and after reasoning that is not constrained."""


@dataclass(frozen=True, slots=True)
class OutputConstraint:
    """A schema, expression, grammar or set of tools that the output must match, and the request's field that has it.

    Attributes:
        kind: json_schema (`value` is the schema), json_object (no value), regex, grammar (GBNF), or tools.
        value: as `kind` says. Of tools a mapping: `tools` in OpenAI's form; `format`, a name of
            `llamay_grammar.tool_formats`; `choice`, "auto", "required" or a tool's name; `parallel`; `strict`, whether
            a schema that can be enforced in part only is refused; `answer`, a schema for an answer without a call, or
            None.
        param: the path of the field, for errors.
        free_form: whether JSON may be written in any of its forms, instead of one.
        reasoning: for a model that reasons before it answers, the two marks around its reasoning, and whether the
            prompt has opened it. The reasoning is then not constrained; the text after it is.

    """

    kind: Kind
    value: Any
    param: str
    free_form: bool = False
    reasoning: tuple[str, str, bool] | None = None

    @property
    def after_reasoning(self) -> bool:
        """Whether text before the constrained text may be reasoning."""
        return self.kind == "tools" or self.reasoning is not None


class UnsupportedConstraintError(ValueError):
    """A schema, expression or grammar that cannot be enforced exactly; the message is meant for the client."""
