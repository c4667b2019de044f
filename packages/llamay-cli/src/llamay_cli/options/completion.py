"""Shell completion of MODEL."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

SOURCES = ("pypi:", "hf:", "ollama:", "https://")


def complete_model(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete a name of the store, or leave it to the shell where a path begins."""
    from ..store import Store

    if incomplete.startswith((".", "/", "~")):
        return [CompletionItem(incomplete, type="file")]
    names = [CompletionItem(name) for name in Store().names() if name.startswith(incomplete.casefold())]
    return names + [CompletionItem(s) for s in SOURCES if incomplete and s.startswith(incomplete)]
