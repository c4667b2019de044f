"""Every error ends here: as one line on stderr, perhaps with a hint, and with the exit code that belongs to it."""

from __future__ import annotations

import errno

import click
from click.core import ParameterSource

from ..errors import CliError, Exit, printable
from ..paths import settings_path


class ClosedOutputError(Exception):
    """The reader of stdout went away. No message is written, for nobody would read it."""


def report_error(error: Exception) -> Exit:
    """Print `error` as one line (and a hint) on stderr; return the exit code that belongs to it."""
    message, hint, code = describe(error)
    if message is not None:
        click.echo(f"{click.style('error:', fg='red')} {printable(message)}", err=True)
        if hint:
            click.echo(f"{click.style('hint:', fg='cyan')} {printable(hint)}", err=True)
    return code


def describe(error: Exception) -> tuple[str | None, str | None, Exit]:
    """Return message, hint and exit code of an error; the message is None where nothing is to be printed."""
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
    """Name the user's file where the refused value came from it."""
    name = error.param.name if isinstance(error, click.BadParameter) and error.param else None
    if name is None or error.ctx is None:
        return ""
    if error.ctx.get_parameter_source(name) is not ParameterSource.DEFAULT_MAP:
        return ""
    return f" ({settings_path()})"


def _of_the_system(error: OSError) -> tuple[str, str | None, Exit]:
    where = f"{error.filename}: " if error.filename else ""
    text = f"{where}{error.strerror or error}"
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return text, None, Exit.NOT_FOUND
    if error.errno == errno.ENOSPC:
        return text, "free some space, or set LLAMAY_HOME to a larger disk", Exit.ERROR
    return text, None, Exit.ERROR


def _is_ours(error: Exception) -> bool:
    """Return whether one of our packages raised its own kind of error; its message is a sentence for the user."""
    return any(base.__module__.partition(".")[0].startswith("llamay_") for base in type(error).__mro__)


def _one_line(text: str) -> str:
    return " ".join(text.split())
