"""`completion`: the scripts that have a shell complete verbs, options and models."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")


@click.command(short_help="Print the completion script of a shell.")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes verbs, options and model names in SHELL.

    \b
    bash:  llamay completion bash > ~/.local/share/bash-completion/completions/llamay
    zsh:   llamay completion zsh > "${fpath[1]}/_llamay"
    fish:  llamay completion fish > ~/.config/fish/completions/llamay.fish
    """  # noqa: D301
    script = get_completion_class(shell)
    assert script is not None
    click.echo(script(ctx.find_root().command, {}, "llamay", "_LLAMAY_COMPLETE").source())
