"""Options that most verbs have: threads, the network, progress; and values that several options read alike."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..console.progress import MODES
from ..errors import CliError, NotFoundError, WrongUsageError

if TYPE_CHECKING:
    from llamay_server import ConfigError

F = TypeVar("F", bound=Callable[..., Any])

_SUFFIXES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}


def threads_option(text: str = "CPU threads.") -> Callable[[F], F]:
    """Add the number of threads."""
    names = ["LLAMAY_THREADS", "LLAMA_ARG_THREADS"]
    return click.option("-t", "--threads", type=click.IntRange(1, 1024), envvar=names, help=text)


def kv_option(text: str = "Precision of keys and values.", *, envvar: str | None = None) -> Callable[[F], F]:
    """Add the precision of keys and values."""
    kinds = click.Choice(["f16", "f32", "vq8", "q8"])
    return click.option("--kv", type=kinds, envvar=envvar, default="f16", help=text)


def offline_option(text: str = "Pull nothing from the network.") -> Callable[[F], F]:
    """Add the option that forbids the network."""
    return click.option("--offline", is_flag=True, envvar=["LLAMAY_OFFLINE", "LLAMA_OFFLINE"], help=text)


def progress_option() -> Callable[[F], F]:
    """Add the way to show progress."""
    text = "How to show progress, on stderr."
    return click.option("--progress", type=click.Choice(MODES), default="auto", help=text)


def read_size(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """Read bytes as people write them: 800M, 4G, 1.5T."""
    if value is None:
        return None
    text = value.strip().lower().removesuffix("b")
    number, unit = (text[:-1], text[-1]) if text[-1:] in _SUFFIXES and text[-1:] else (text, "")
    try:
        result = int(float(number) * _SUFFIXES[unit])
    except (ValueError, OverflowError):
        result = -1
    if not 0 < result < 1 << 62:
        raise click.BadParameter(f"{value!r} is not a size such as 800M or 4G")
    return result


def config_error(error: ConfigError) -> CliError:
    """Return the error of a setting of the server as one of the command's, whose code tells a missing file."""
    missing = isinstance(error.__context__, FileNotFoundError | NotADirectoryError)
    return (NotFoundError if missing else WrongUsageError)(str(error))


def read_mix(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Read the name of a mix of formats, in any case."""
    from llamay_models.quantization import MIXES

    return _one_of("type", MIXES, value)


def read_format(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Read the name of a format that tensors can be written in, in any case."""
    from llamay_kernels import FORMATS

    return _one_of("format", FORMATS, value)


def _one_of(what: str, known: Collection[str], value: str | None) -> str | None:
    if value is None or value.upper() in known:
        return value and value.upper()
    raise click.BadParameter(f"there is no {what} {value[:40]!r}; choose one of {', '.join(known)}")


def read_digest(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Read a SHA-256, with or without `sha256:` before it."""
    if value is None:
        return None
    text = value.lower().removeprefix("sha256:").removeprefix("sha256-")
    if len(text) != 64 or any(c not in "0123456789abcdef" for c in text):
        raise click.BadParameter(f"{value!r} is not 64 hexadecimal digits")
    return text
