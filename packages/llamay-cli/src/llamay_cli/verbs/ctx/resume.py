"""`ctx run`: continuing a context file."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import click

from ...chat.answer import write_answer
from ...console.inputs import gather
from ...console.progress import reporting
from ...console.terminal import AnswerStream
from ...errors import Exit
from ...options.completion import complete_model
from ...options.generation import generation_options, take_generation
from ...options.loading import Loading, model_options
from ...options.sampling import make_sampling, sampling_options, take_sampling
from .paths import existing, new_file
from .weights import load_model_of

if TYPE_CHECKING:
    from llamay_models import Context, Model


@click.command()
@click.argument("file")
@click.option("-p", "--prompt", metavar="TEXT", help="Text to append first.")
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
    """Continue the context in FILE, and write the text to stdout.

    Without sampling options, a context continues with those that it was last used with. FILE itself stays as
    it is.
    """
    source = existing(file, file=True)
    target = new_file(output, force) if output else None
    loading, given = Loading.take(options), take_sampling(options)
    text = gather(None, prompt, files) if prompt is not None or files else None
    if chat and text is None:
        raise click.UsageError("--chat needs a message: --prompt or --file")
    with load_model_of(source, model, loading) as loaded:
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
