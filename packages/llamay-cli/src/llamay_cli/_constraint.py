"""A schema, grammar or expression from the command line, compiled against a model's vocabulary."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .errors import CliError

if TYPE_CHECKING:
    from llamay_models import Model


def build(model: Model, kind: str, text: str) -> Any:
    """Return the TokenConstraint of `--schema`, `--grammar` or `--regex`."""
    raise CliError(f"--{kind} needs llamay-grammar, which is not there")
