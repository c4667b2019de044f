"""`ctx build`, `ctx fork`: context files made of a text, and of other context files."""

from __future__ import annotations

import json
from typing import Any

import click

from ...console.inputs import gather, read_text
from ...console.progress import reporting
from ...errors import CliError
from ...options.completion import complete_model
from ...options.loading import Loading, model_options
from .paths import existing, new_file
from .weights import load_model_of


@click.command()
@click.argument("model", shell_complete=complete_model)
@click.option("-o", "--output", required=True, metavar="FILE", help="The context file to write.")
@click.option("-p", "--prompt", metavar="TEXT", help="The text.")
@click.option("-f", "--file", "files", multiple=True, metavar="FILE", help="Add a file's text; - is stdin.")
@click.option("--messages", metavar="FILE", help="A conversation: JSON list of {role, content}; - is stdin.")
@click.option("-s", "--system", metavar="TEXT", help="The system prompt of a conversation.")
@click.option("--chat", is_flag=True, help="Take the text as a user's message, by the chat template.")
@click.option("--special", is_flag=True, help="Read control tokens that are written out in the text as such.")
@click.option("--force", is_flag=True, help="Replace FILE.")
@model_options
def build(
    model: str,
    output: str,
    prompt: str | None,
    files: tuple[str, ...],
    messages: str | None,
    system: str | None,
    chat: bool,
    special: bool,
    force: bool,
    **options: Any,
) -> None:
    """Prefill a text or a conversation once, and write the context to a file."""
    target = new_file(output, force)
    if messages is not None and (prompt is not None or files):
        raise click.UsageError("--messages and a text exclude each other")
    conversation = _conversation(messages) if messages is not None else None
    text = gather(None, prompt, files) if conversation is None else None
    if conversation is None and text is None:
        raise click.UsageError("there is no text: give --prompt, --file, --messages, or pipe it in")
    if text is not None and (chat or system):
        conversation = [{"role": "user", "content": text}]
    if system and conversation:
        conversation = [{"role": "system", "content": system}, *conversation]
    loading = Loading.take(options)
    with loading.load(loading.resolve(model)) as loaded, reporting(loading.progress) as report:
        if conversation is not None:
            context = loaded.context(messages=conversation, progress=report)
        else:
            context = loaded.context(text, parse_special=special, progress=report)
        with context:
            context.save(target, progress=report)
            click.echo(f"{target}: {len(context)} tokens, {target.stat().st_size:,} bytes", err=True)


@click.command()
@click.argument("file")
@click.option(
    "-n", type=click.IntRange(1, 100_000), help="Number of branches.  [default: one for each --append, or 1]"
)
@click.option(
    "-o",
    "--output",
    metavar="PATTERN",
    help="Files to write, with {} for the number.  [default: FILE-{}.llamay]",
)
@click.option(
    "-a",
    "--append",
    multiple=True,
    metavar="TEXT",
    help="Text to append: one for all branches, or one for each.",
)
@click.option("--tokens", multiple=True, metavar="IDS", help="Token ids to append: 1,2,3.")
@click.option("--force", is_flag=True, help="Replace files.")
@click.option(
    "-m", "--model", shell_complete=complete_model, help="The model.  [default: by its weights, in the store]"
)
@model_options
def fork(
    file: str,
    n: int | None,
    output: str | None,
    append: tuple[str, ...],
    tokens: tuple[str, ...],
    force: bool,
    model: str | None,
    **options: Any,
) -> None:
    """Write N files that continue FILE, each with its own text appended.

    FILE is restored once; the branches share its pages in memory. FILE itself stays as it is.
    """
    additions: list[str | list[int]] = [*append, *(_ids(text) for text in tokens)]
    count = n or max(1, len(additions))
    if len(additions) not in (0, 1, count):
        raise click.UsageError(f"{len(additions)} texts for {count} branches: give one, or one for each")
    source = existing(file, file=True)
    pattern = output or f"{source.with_suffix('')}-{{}}{source.suffix or '.llamay'}"
    if pattern.count("{}") != 1 and not (count == 1 and "{}" not in pattern):
        raise click.UsageError("--output needs one {} where the number goes")
    targets = [new_file(pattern.replace("{}", str(i + 1)), force) for i in range(count)]
    loading = Loading.take(options)
    with load_model_of(source, model, loading) as loaded, reporting(loading.progress) as report:
        parent = loaded.restore(source, progress=report)
        branches = parent.fork(count)
        for i, (branch, target) in enumerate(zip(branches, targets, strict=True)):
            with branch:
                if additions:
                    branch.extend(additions[i % len(additions)])
                branch.save(target)
                click.echo(f"{target}: {len(branch)} tokens", err=True)
            report("branches", i + 1, count)
        parent.close()


def _ids(text: str) -> list[int]:
    try:
        return [int(part) for part in text.replace(",", " ").split()]
    except ValueError:
        raise click.BadParameter(f"{text!r} is not token ids such as 1,2,3", param_hint="--tokens") from None


def _conversation(path: str) -> list[dict[str, Any]]:
    try:
        messages = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise CliError(f"{path} is not JSON: {error}") from None
    if isinstance(messages, dict):
        messages = messages.get("messages")
    if not isinstance(messages, list) or not messages or not all(_is_message(item) for item in messages):
        raise CliError(f"{path} is not a list of messages, each with role and content")
    return messages


def _is_message(item: Any) -> bool:
    return (
        isinstance(item, dict)
        and isinstance(item.get("role"), str)
        and ("content" in item or "tool_calls" in item)
    )
