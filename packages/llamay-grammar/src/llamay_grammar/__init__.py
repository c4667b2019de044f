"""JSON Schema, regular expressions and grammars as exact token masks.

A `Vocabulary` is made from token bytes once; a `Grammar` is compiled over it; a `Matcher` follows one document and
says after every token which tokens may come next. A token is allowed if and only if some valid document continues
with it.
"""

from ._arguments import ArgumentTypes, argument_types, read_argument
from ._compile import compile_ebnf, compile_gbnf, compile_json_object, compile_json_schema, compile_regex
from ._errors import CompileError, RefusedTokenError, RestoreError
from ._grammars import Grammar, Matcher, fill_masks
from ._protocol import TokenConstraint
from ._reasoning import Reasoning
from ._recipes import Budget
from ._tools import compile_tools, tool_formats
from ._vocabulary import Vocabulary

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
