"""Options of sampling."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..errors import WrongUsageError

if TYPE_CHECKING:
    from llamay_models import Sampling

F = TypeVar("F", bound=Callable[..., Any])

SAMPLING_DEFAULTS: Mapping[str, float] = {
    "temperature": 0.8,
    "top_k": 40,
    "top_p": 0.95,
    "min_p": 0.05,
    "repeat_penalty": 1.0,
    "repeat_last_n": 64,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "dynatemp_range": 0.0,
    "dynatemp_exponent": 1.0,
    "typical_p": 1.0,
    "top_n_sigma": -1.0,
    "xtc_probability": 0.0,
    "xtc_threshold": 0.1,
    "dry_multiplier": 0.0,
    "dry_base": 1.75,
    "dry_allowed_length": 2,
    "dry_penalty_last_n": -1,
    "mirostat": 0,
    "mirostat_tau": 5.0,
    "mirostat_eta": 0.1,
}
"""The engine's defaults, repeated here so that `--help` need not import the engine; a test compares them."""


def sampling_options(command: F) -> F:
    """Add the sampling options, named as llama.cpp names them; the verb gets them in `**options`."""
    for decorate in reversed(
        (
            click.option(
                "--seed",
                type=click.IntRange(0, 2**64 - 1),
                help="Same seed, same text.  [default: random]",
            ),
            _number("temperature", "Randomness; 0 takes the most likely token.", "--temp"),
            _whole("top_k", "Keep the K most likely tokens; 0 keeps all."),
            _number("top_p", "Keep tokens until they hold this much probability.", high=1.0),
            _number("min_p", "Keep tokens this likely relative to the likeliest.", high=1.0),
            _number(
                "typical_p", "Keep the most typical tokens until they hold this much.", "--typical", high=1.0
            ),
            _number(
                "top_n_sigma", "Keep logits this many deviations below the largest.", "--top-nsigma", low=-1.0
            ),
            _number("xtc_probability", "How often the likeliest tokens are dropped.", high=1.0),
            _number("xtc_threshold", "Tokens at least this likely may be dropped; above 0.5 none.", high=1.0),
            _number("repeat_penalty", "Penalty of recent tokens; 1 is none.", low=1e-6),
            _whole("repeat_last_n", "Tokens that penalties look at; -1 all.", low=-1),
            _number("presence_penalty", "Penalty of tokens that occurred.", low=-1e6),
            _number("frequency_penalty", "Penalty for each occurrence.", low=-1e6),
            _number("dry_multiplier", "Penalty of what prolongs a repetition; 0 is none."),
            _number("dry_base", "Base of the penalty's growth with the length.", low=1.0),
            _whole("dry_allowed_length", "Repetitions shorter than this get no penalty."),
            _whole("dry_penalty_last_n", "Tokens searched for repetitions; -1 all.", low=-1),
            click.option(
                "--dry-sequence-breaker",
                "dry_sequence_breakers",
                multiple=True,
                metavar="TEXT",
                help='Repetitions end at TEXT; may be repeated; none for no breakers.  [default: newline : " *]',
            ),
            _number("dynatemp_range", "Range in which the temperature follows the entropy."),
            _number("dynatemp_exponent", "Exponent of that dependence.", "--dynatemp-exp"),
            _whole("mirostat", "Mirostat, version 1 or 2; 0 is off.", high=2),
            _number("mirostat_tau", "Mirostat's target entropy, in bits.", "--mirostat-ent"),
            _number("mirostat_eta", "Mirostat's learning rate.", "--mirostat-lr"),
            click.option(
                "-l",
                "--logit-bias",
                multiple=True,
                metavar="ID(+|-)BIAS",
                callback=_biases,
                help="Make a token likelier or less likely, as 15043+1 or 2-inf; may be repeated.",
            ),
            click.option(
                "--samplers",
                metavar="A;B;...",
                help="The samplers, in the order they are used.  [default: "
                "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature]",
            ),
            click.option(
                "--sampling-seq",
                "--sampler-seq",
                "sampling_seq",
                metavar="LETTERS",
                callback=_sequence,
                help="The samplers as letters.  [default: edskypmxt]",
            ),
        )
    ):
        command = decorate(command)
    return command


def take_sampling(options: dict[str, Any]) -> dict[str, Any]:
    """Take the sampling options that the user gave out of the options that click collected."""
    names = ("seed", *SAMPLING_DEFAULTS, "samplers")
    taken = {name: options.pop(name) for name in names}
    letters = options.pop("sampling_seq")
    if letters is not None and taken["samplers"] is not None:
        raise click.UsageError("--samplers and --sampling-seq exclude each other")
    taken["samplers"] = letters if letters is not None else taken["samplers"]
    # Click gives an empty list for an option that the user did not give.
    taken["logit_bias"] = options.pop("logit_bias") or None
    breakers = options.pop("dry_sequence_breakers") or None
    taken["dry_sequence_breakers"] = () if breakers == ("none",) else breakers
    return {name: value for name, value in taken.items() if value is not None}


def make_sampling(given: Mapping[str, Any]) -> Sampling:
    """Return the engine's Sampling with the options that the user gave. Raises WrongUsageError."""
    from llamay_models import Sampling
    from llamay_models.errors import SamplingError

    try:
        return Sampling(**given)
    except SamplingError as error:
        raise WrongUsageError(str(error)) from None


_BIAS = re.compile(r"(\d{1,12})([+-].+)")


def _biases(context: click.Context, option: click.Parameter, values: Sequence[str]) -> dict[int, float]:
    out: dict[int, float] = {}
    for value in values:
        match = _BIAS.fullmatch(value)
        try:
            out[int(match[1])] = float(match[2])  # type: ignore[index]
        except (TypeError, ValueError):
            raise click.BadParameter(f"{value!r} is not a token id and a signed number, as 15043+1") from None
    return out


def _sequence(context: click.Context, option: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    if value is None:
        return None
    from llamay_models.engine import sampler_letters
    from llamay_models.errors import SamplingError

    try:
        return sampler_letters(value)
    except SamplingError as error:
        raise click.BadParameter(str(error)) from None


def _number(
    name: str, text: str, *also: str, low: float = 0.0, high: float | None = None
) -> Callable[[F], F]:
    return _option(name, text, also, click.FloatRange(low, high), "X")


def _whole(name: str, text: str, *also: str, low: int = 0, high: int = 2**31) -> Callable[[F], F]:
    return _option(name, text, also, click.IntRange(low, high), "N")


def _option(
    name: str, text: str, also: Sequence[str], kind: click.ParamType[Any], metavar: str
) -> Callable[[F], F]:
    flag, default = "--" + name.replace("_", "-"), SAMPLING_DEFAULTS[name]
    return click.option(flag, *also, name, type=kind, metavar=metavar, help=f"{text}  [default: {default:g}]")
