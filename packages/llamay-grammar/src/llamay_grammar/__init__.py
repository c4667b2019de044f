"""JSON Schema, regular expressions and grammars as exact token masks.

A `Vocabulary` is made from token bytes once; a `Grammar` is compiled over it; a `Matcher` follows one document and
says after every token which tokens may come next. A token is allowed if and only if some valid document continues
with it.
"""

from llamay_grammar.compilation import (
    compile_ebnf,
    compile_gbnf,
    compile_json_object,
    compile_json_schema,
    compile_regex,
)
from llamay_grammar.errors import CompileError, RefusedTokenError, RestoreError
from llamay_grammar.grammars import Grammar, Matcher, fill_masks
from llamay_grammar.protocol import TokenConstraint
from llamay_grammar.reasoning import Reasoning
from llamay_grammar.recipes import Budget
from llamay_grammar.tool_calls.arguments import ArgumentTypes, argument_types, read_argument
from llamay_grammar.tool_calls.envelopes import tool_formats
from llamay_grammar.tool_calls.tools import compile_tools
from llamay_grammar.vocabulary import Vocabulary

INTERFACE = {"token_constraint": (1, 0), "vocabulary": (1, 0)}

__all__ = [
    "INTERFACE",
    "ArgumentTypes",
    "Budget",
    "CompileError",
    "Grammar",
    "Matcher",
    "Reasoning",
    "RefusedTokenError",
    "RestoreError",
    "TokenConstraint",
    "Vocabulary",
    "argument_types",
    "compile_ebnf",
    "compile_gbnf",
    "compile_json_object",
    "compile_json_schema",
    "compile_regex",
    "compile_tools",
    "fill_masks",
    "read_argument",
    "tool_formats",
]


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
