"""Options for the length and the form of an answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from llamay_models import Model

F = TypeVar("F", bound=Callable[..., Any])


def generation_options(command: F) -> F:
    """Add the options for the length and the form of an answer."""
    for decorate in reversed(
        (
            click.option(
                "-n", "--max-tokens", type=click.IntRange(0), help="Stop after N tokens.  [default: no limit]"
            ),
            click.option("--stop", multiple=True, metavar="TEXT", help="Stop before TEXT; may be repeated."),
            click.option("--ignore-eos", is_flag=True, help="Go on past the end-of-text token."),
            click.option(
                "--schema", metavar="JSON|FILE", help="Answer with JSON that fits this JSON Schema."
            ),
            click.option(
                "--free-form",
                is_flag=True,
                help="With --schema: JSON in any form, members in any order.",
            ),
            click.option("--grammar", metavar="FILE", help="Answer with a sentence of this GBNF grammar."),
            click.option("--regex", metavar="PATTERN", help="Answer with text that matches all of PATTERN."),
        )
    ):
        command = decorate(command)
    return command


def take_generation(options: dict[str, Any], model: Model) -> dict[str, Any]:
    """Take the generation options, as keyword arguments of `Context.generate`."""
    kinds = {name: options.pop(name) for name in ("schema", "grammar", "regex")}
    asked = {name: value for name, value in kinds.items() if value is not None}
    if len(asked) > 1:
        raise click.UsageError(f"--{' and --'.join(asked)} exclude each other")
    if options["ignore_eos"] and asked:
        raise click.UsageError(f"--ignore-eos would break what --{next(iter(asked))} promises")
    free_form = options.pop("free_form")
    if free_form and "schema" not in asked:
        raise click.UsageError("--free-form says how the JSON of --schema is written; give one")
    constraint = None
    if asked:
        from .constraint import build_constraint

        kind, text = next(iter(asked.items()))
        constraint = build_constraint(model, kind, text, free_form=free_form)
    return {
        "max_tokens": options.pop("max_tokens"),
        "stop": tuple(options.pop("stop")),
        "ignore_eos": options.pop("ignore_eos"),
        "constraint": constraint,
    }
