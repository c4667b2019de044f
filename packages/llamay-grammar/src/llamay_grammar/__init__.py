"""JSON Schema, regular expressions and grammars as exact token masks.

A `Vocabulary` is made from token bytes once; a `Grammar` is compiled over it; a `Matcher` follows one document and
says after every token which tokens may come next. A token is allowed if and only if some valid document continues
with it.
"""

from ._errors import CompileError, RefusedTokenError, RestoreError
from .arguments import ArgumentTypes, argument_types, read_argument
from .compilation import compile_ebnf, compile_gbnf, compile_json_object, compile_json_schema, compile_regex
from .envelopes import tool_formats
from .grammars import Grammar, Matcher, fill_masks
from .protocol import TokenConstraint
from .reasoning import Reasoning
from .recipes import Budget
from .tools import compile_tools
from .vocabulary import Vocabulary

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
