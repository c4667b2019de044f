"""A schema, grammar or regular expression from the command line, compiled for a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import llamay_grammar
from llamay_models.constraints import compile_constraint

from ..console.inputs import read_text
from ..errors import CliError, NotFoundError, WrongUsageError, printable

if TYPE_CHECKING:
    from llamay_models import Model, TokenConstraint


def build_constraint(model: Model, kind: str, text: str, *, free_form: bool = False) -> TokenConstraint:
    """Return the constraint of `--schema`, `--grammar` (GBNF) or `--regex`; refuses one that cannot be exact."""
    read = {"schema": _schema, "grammar": _grammar}.get(kind)
    source: dict[str, Any] = {kind: read(text) if read is not None else text}
    fault = WrongUsageError if source[kind] is text else CliError
    try:
        grammar = compile_constraint(model, llamay_grammar, free_form=free_form, **source)
    except llamay_grammar.CompileError as error:
        raise fault(f"--{kind}: {error}") from None
    except ValueError as error:
        raise CliError(str(error)) from None
    for warning in grammar.warnings:
        click.echo(f"warning: {printable(warning)}", err=True)
    return grammar.matcher()


def _schema(text: str) -> str:
    """Return JSON text: the argument itself, or the file it names."""
    inline = text.lstrip().startswith(("{", "[")) or text.strip() in ("true", "false")
    source = text if inline else _read("schema", text, "give JSON, or the name of a file with JSON")
    where, fault = ("--schema", WrongUsageError) if inline else (f"--schema: {text}", CliError)
    try:
        json.loads(source)
    except RecursionError:
        raise fault(f"{where} is nested too deep") from None
    except ValueError as error:
        raise fault(f"{where} is not JSON: {error}", "give JSON, or the name of a file with JSON") from None
    return source


def _grammar(text: str) -> str:
    """Return a grammar: the argument itself, or the file it names."""
    if "::=" in text:
        return text
    return _read("grammar", text, "give GBNF (root ::= ...), or the name of a file with it")


def _read(kind: str, name: str, hint: str) -> str:
    try:
        found = name == "-" or Path(name).is_file()
    except (OSError, ValueError):  # too long for a name, or no name at all
        found = False
    if not found:
        raise NotFoundError(f"--{kind}: there is no file {printable(name[:200])!r}", hint)
    return read_text(name)
