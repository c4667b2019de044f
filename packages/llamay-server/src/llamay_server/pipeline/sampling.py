"""The sampling fields that all dialects share, and how they become an engine's options.

A field that the engine cannot honour is refused by name unless its value means "off": an answer that quietly ignored it
would be a wrong answer.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct

from llamay_server.http.errors import invalid, unsupported
from llamay_server.models.lora import AdapterScale

if TYPE_CHECKING:
    from llamay_server.engine.protocol import Model

Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Unit = Annotated[float, Meta(ge=0, le=1)]
Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
LogitBias = dict[str, float | bool] | list[list[int | float | bool | str]]


class SamplingFields(Struct, kw_only=True):
    """Fields of OpenAI's routes, and of llama.cpp's and vLLM's extensions of them, about the generation of tokens.

    None means that the field is absent.
    """

    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Unit | None = None
    top_k: Annotated[int, Meta(ge=-1, le=2**31 - 1)] | None = None
    min_p: Unit | None = None
    typical_p: Unit | None = None
    top_n_sigma: Annotated[float, Meta(ge=-1e6, le=1e6)] | None = None
    xtc_probability: Unit | None = None
    xtc_threshold: Unit | None = None
    dry_multiplier: Annotated[float, Meta(ge=0, le=1e6)] | None = None
    dry_base: Annotated[float, Meta(ge=1, le=1e6)] | None = None
    dry_allowed_length: Count | None = None
    dry_penalty_last_n: Annotated[int, Meta(ge=-1, le=2**31 - 1)] | None = None
    dry_sequence_breakers: (
        Annotated[list[Annotated[str, Meta(min_length=1, max_length=40)]], Meta(max_length=64)] | None
    ) = None
    mirostat: Annotated[int, Meta(ge=0, le=2)] | None = None
    mirostat_tau: Annotated[float, Meta(ge=0, le=1000)] | None = None
    mirostat_eta: Annotated[float, Meta(ge=0, le=1000)] | None = None
    dynatemp_range: Annotated[float, Meta(ge=0, le=1e6)] | None = None
    dynatemp_exponent: Annotated[float, Meta(ge=0, le=1000)] | None = None
    repeat_penalty: Annotated[float, Meta(gt=0, le=10)] | None = None
    repetition_penalty: Annotated[float, Meta(gt=0, le=10)] | None = None
    repeat_last_n: Annotated[int, Meta(ge=-1, le=2**31 - 1)] | None = None
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    seed: Int64 | None = None
    logit_bias: LogitBias | None = None
    min_tokens: Count | None = None
    ignore_eos: bool | None = None
    stop_token_ids: list[int] | None = None
    allowed_token_ids: list[int] | None = None
    bad_words: list[str] | None = None
    samplers: list[str] | str | None = None
    lora: list[AdapterScale] | None = None
    t_max_predict_ms: Annotated[int, Meta(ge=-1, le=2**31 - 1)] | None = None
    timeout: Annotated[float, Meta(gt=0, le=1e6)] | None = None
    priority: Annotated[int, Meta(ge=-100, le=100)] | None = None
    n_indent: int | None = None
    n_keep: int | None = None
    n_discard: Count | None = None
    id_slot: int | None = None
    cache_prompt: bool | None = None
    cache_salt: Annotated[str, Meta(max_length=512)] | None = None
    grammar: str | None = None
    json_schema: dict[str, Any] | bool | None = None
    regex: str | None = None
    structured_outputs: dict[str, Any] | None = None
    guided_json: dict[str, Any] | str | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None


# By field, the values that mean "off".
_OFF: dict[str, tuple[Any, ...]] = {
    "typical_p": (1.0,),
    "top_n_sigma": (-1.0, 0.0),
    "xtc_probability": (0.0,),
    "dry_multiplier": (0.0,),
    "mirostat": (0,),
    "dynatemp_range": (0.0,),
    "min_tokens": (0,),
    "stop_token_ids": ([],),
    "allowed_token_ids": ([],),
    "bad_words": ([],),
    "samplers": ([], ""),
    "n_indent": (0,),
    "n_keep": (0, -1),
    "n_discard": (0,),
}
# Fields that only shape the effect of another field, by that field: alone they change nothing.
_COMPANIONS = {
    "xtc_threshold": "xtc_probability",
    "dry_base": "dry_multiplier",
    "dry_allowed_length": "dry_multiplier",
    "dry_penalty_last_n": "dry_multiplier",
    "dry_sequence_breakers": "dry_multiplier",
    "mirostat_tau": "mirostat",
    "mirostat_eta": "mirostat",
    "dynatemp_exponent": "dynatemp_range",
}
_DIRECT = ("temperature", "top_p", "top_k", "min_p", "repeat_penalty", "repeat_last_n")
_PENALTIES = ("presence_penalty", "frequency_penalty")

# OpenAI's own service does so without these fields: tokens are drawn from the whole distribution.
OPENAI_DEFAULTS: Mapping[str, Any] = {
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "repeat_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}


def sampling_options(
    fields: SamplingFields, model: Model, defaults: Mapping[str, Any] = OPENAI_DEFAULTS
) -> dict[str, Any]:
    """Return the fields of `llamay_models.Sampling` for a request's fields; a seed is drawn where none is given.

    `defaults` are the dialect's. Raises a 400 that names a field which cannot be honoured.
    """
    known = model.info.sampling_options
    out: dict[str, Any] = dict(defaults)
    for name in (*_DIRECT, *_PENALTIES):
        if (value := getattr(fields, name)) is not None:
            out[name] = value
    if fields.repetition_penalty is not None:
        if fields.repeat_penalty is not None and fields.repeat_penalty != fields.repetition_penalty:
            raise invalid(
                "repetition_penalty and repeat_penalty are one setting and differ", "repetition_penalty"
            )
        out["repeat_penalty"] = fields.repetition_penalty
    out["top_k"] = max(0, out.get("top_k", 0))
    for name, off in _OFF.items():
        value = getattr(fields, name)
        if value is None or value in off:
            continue
        if name not in known:
            raise unsupported(name)
        out[name] = value if name != "samplers" else _sampler_names(value)
    for name, parent in _COMPANIONS.items():
        if parent in out and (value := getattr(fields, name)) is not None:
            out[name] = value
    if bias := _logit_bias(fields.logit_bias, model):
        out["logit_bias"] = bias
    unknown = out.keys() - known
    for name in unknown:
        if out[name] == defaults.get(name):
            del out[name]
        else:
            raise unsupported(name)
    out["seed"] = fields.seed if fields.seed is not None else secrets.randbits(63)
    return out


def _sampler_names(value: list[str] | str) -> tuple[str, ...]:
    """Return the samplers in their order, from a list of names, llama.cpp's letters, or names with semicolons."""
    # Imported here, because a program that only reads settings or a recipe needs no engine.
    from llamay_models.engine import read_samplers
    from llamay_models.errors import SamplingError

    try:
        return read_samplers(value)
    except SamplingError as e:
        raise invalid(f"samplers: {str(e).removeprefix('samplers: ')}", "samplers") from None


def _logit_bias(value: LogitBias | None, model: Model) -> dict[int, float]:
    """Return the biases by token id, from OpenAI's map of ids or llama.cpp's pairs.

    The token of a pair may be text, all of whose tokens get the bias; False bans a token.
    """
    if not value:
        return {}
    if isinstance(value, dict):
        pairs: list[tuple[Any, Any, str]] = []
        for key, bias in value.items():
            where = f"logit_bias.{key[:40]}"
            if not _is_number(key):
                raise invalid(
                    f"{where}: a key is a token id; the tokens of a text get a bias in pairs, [[text, bias]]",
                    where,
                )
            pairs.append((key, bias, where))
    else:
        pairs = []
        for n, item in enumerate(value):
            if len(item) != 2:
                raise invalid(f"logit_bias[{n}]: it must be a pair of token and bias", f"logit_bias[{n}]")
            pairs.append((item[0], item[1], f"logit_bias[{n}]"))
    out: dict[int, float] = {}
    size = model.info.vocab_size
    for key, bias, where in pairs:
        if bias is True or isinstance(bias, str):
            raise invalid(f"{where}: a bias is a number from -100 to 100, or false to ban the token", where)
        number = float("-inf") if bias is False else float(bias)
        if bias is not False and not -100 <= number <= 100:
            raise invalid(f"{where}: a bias is a number from -100 to 100, or false to ban the token", where)
        for token in _tokens_of(key, where, size, model):
            out[token] = number
    return out


def _is_number(text: str) -> bool:
    """Return whether a text spells a whole number in ASCII; other digits, as ², are characters of a text."""
    return re.fullmatch(r"\s*-?[0-9]+\s*", text, re.ASCII) is not None


def _tokens_of(key: Any, where: str, size: int, model: Model) -> list[int]:
    if isinstance(key, str) and not _is_number(key):
        return model.encode(key, add_special=False, parse_special=True)
    if isinstance(key, bool | float):
        raise invalid(f"{where}: a token is a whole number or text", where)
    token = int(key) if len(str(key)) < 20 else -1
    if not 0 <= token < size:
        raise invalid(f"{where}: {str(key)[:40]} is not a token of this model (0 to {size - 1})", where)
    return [token]
