"""The sampling fields that all dialects share, and how they become an engine's options.

A field that this engine cannot honour is refused by name unless its value means "off": an answer that quietly ignored
it would be a wrong answer.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from llamay_server.engine.protocol import Model
from llamay_server.http.errors import ApiError, invalid
from llamay_server.models.lora import AdapterScale

Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Unit = Annotated[float, Meta(ge=0, le=1)]
Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
LogitBias = dict[str, float | bool] | list[list[int | float | bool | str]]


class SamplingFields(Struct, kw_only=True):
    """Fields of OpenAI's routes and llama.cpp's extensions that steer the choice of tokens. None means absent."""

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


# field: the values that mean "off"
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
# These only shape another field's effect, so alone they change nothing.
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

# What OpenAI's own service does with a field that is not sent: sample from the whole distribution.
OPENAI_DEFAULTS: Mapping[str, Any] = {
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "repeat_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}


def sampling(
    fields: SamplingFields, model: Model, defaults: Mapping[str, Any] = OPENAI_DEFAULTS
) -> dict[str, Any]:
    """An engine's options from a request's fields. Raises a 400 naming a field that cannot be honoured."""
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
        out[name] = value if name != "samplers" else samplers(value)
    for name, parent in _COMPANIONS.items():
        if parent in out and (value := getattr(fields, name)) is not None:
            out[name] = value
    if bias := logit_bias(fields.logit_bias, model):
        out["logit_bias"] = bias
    unknown = out.keys() - known
    for name in unknown:
        if out[name] == defaults.get(name):
            del out[name]
        else:
            raise unsupported(name)
    out["seed"] = fields.seed if fields.seed is not None else secrets.randbits(63)
    return out


def urgency(fields: SamplingFields) -> int:
    """The engine's priority: as vLLM has it, the lower a request's `priority` the earlier its turn."""
    return -(fields.priority or 0)


def time_limit(fields: SamplingFields) -> float | None:
    """Seconds that a generation may take from its submission: `timeout` or `t_max_predict_ms`, the shorter."""
    limits = [fields.timeout] if fields.timeout is not None else []
    if (milliseconds := fields.t_max_predict_ms) is not None and milliseconds > 0:
        limits.append(milliseconds / 1000)
    return min(limits, default=None)


def samplers(value: list[str] | str) -> tuple[str, ...]:
    """Names of samplers in their order, from llama.cpp's list of names, its letters, or names with semicolons."""
    from llamay_server.engine.model import (
        read_samplers,  # the engine alone knows them, and takes a while to import
    )

    try:
        return read_samplers(value)
    except ValueError as e:
        raise invalid(f"samplers: {str(e).removeprefix('samplers: ')}", "samplers") from None


def unsupported(name: str, why: str = "this server does not support it") -> ApiError:
    """A 400 for a field that is known and cannot be honoured."""
    return ApiError("invalid", f"{name}: {why}; leave it out.", param=name, code="unsupported_parameter")


def logit_bias(value: LogitBias | None, model: Model) -> dict[int, float]:
    """Biases by token id, from OpenAI's map or llama.cpp's pairs; a key that is no number is text; False bans."""
    if not value:
        return {}
    if isinstance(value, dict):
        pairs: list[tuple[Any, Any, str]] = [(k, v, f"logit_bias.{k[:40]}") for k, v in value.items()]
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


def _tokens_of(key: Any, where: str, size: int, model: Model) -> list[int]:
    text = key.strip() if isinstance(key, str) else ""
    if isinstance(key, str) and not text.removeprefix("-").isdigit():
        return model.encode(key, add_special=False, parse_special=True)
    if isinstance(key, bool | float):
        raise invalid(f"{where}: a token is a whole number or text", where)
    token = int(key) if len(str(key)) < 20 else -1
    if not 0 <= token < size:
        raise invalid(f"{where}: {str(key)[:40]} is not a token of this model (0 to {size - 1})", where)
    return [token]


# The kinds with JSON in them, where strings have escapes only for what cannot be written without.
_CANONICAL = {"json_schema": "json_schema_canonical", "json_object": "json_object_canonical"}


class Bound(Struct, frozen=True):
    """What the output must match: json_schema, json_object, regex or grammar, and its value."""

    kind: str
    value: Any
    param: str


def bound(
    fields: SamplingFields, response_format: Any = None, param: str = "response_format"
) -> Bound | None:
    """The one constraint that a request asks for, `param` being where `response_format` is. Two are refused."""
    found: list[Bound] = []
    if fields.grammar:
        found.append(Bound("grammar", fields.grammar, "grammar"))
    if fields.json_schema is not None:
        found.append(Bound("json_schema", fields.json_schema, "json_schema"))
    if fields.regex:
        found.append(Bound("regex", fields.regex, "regex"))
    if fields.guided_json is not None:
        found.append(Bound("json_schema", _schema(fields.guided_json, "guided_json"), "guided_json"))
    if fields.guided_regex:
        found.append(Bound("regex", fields.guided_regex, "guided_regex"))
    if fields.guided_choice:
        found.append(Bound("json_schema_text", fields.guided_choice, "guided_choice"))
    if fields.guided_grammar:
        found.append(Bound("grammar", fields.guided_grammar, "guided_grammar"))
    canonical = (fields.structured_outputs or {}).get("canonical_escapes")
    for key, value in (fields.structured_outputs or {}).items():
        where = f"structured_outputs.{key[:40]}"
        if value is None:
            continue
        if key == "canonical_escapes" and isinstance(value, bool):
            continue
        kind = {
            "json": "json_schema",
            "regex": "regex",
            "choice": "json_schema_text",
            "grammar": "grammar",
        }.get(key)
        if key == "json_object" and value is True:
            kind = "json_object"
        if kind is None:
            raise unsupported(where)
        found.append(Bound(kind, _schema(value, where) if key == "json" else value, where))
    if (form := format_bound(response_format, param)) is not None:
        found.append(form)
    if canonical is True:
        found = [Bound(_CANONICAL.get(b.kind, b.kind), b.value, b.param) for b in found]
    if len(found) > 1:
        raise invalid(
            f"{found[1].param}: the output is already bound by {found[0].param}; use one", found[1].param
        )
    if found and found[0].kind == "json_schema_text":
        choices = found[0].value
        if not isinstance(choices, list) or not choices or not all(isinstance(c, str) and c for c in choices):
            raise invalid(f"{found[0].param}: it must be a list of texts, none empty", found[0].param)
        return Bound("regex", "|".join(escape(c) for c in choices), found[0].param)
    return found[0] if found else None


def format_bound(form: Any, param: str = "response_format") -> Bound | None:
    """OpenAI's response_format (or text.format of Responses) as a constraint."""
    if form is None:
        return None
    kind = form.get("type") if isinstance(form, dict) else None
    if kind in (None, "text"):
        if kind is None:
            raise invalid(
                f"{param}.type: it is missing; use text, json_object or json_schema", f"{param}.type"
            )
        return None
    if kind == "json_object":
        # llama.cpp reads a schema here too, and its clients send one.
        schema = form.get("schema")
        return (
            Bound("json_object", None, param)
            if schema is None
            else Bound("json_schema", schema, f"{param}.schema")
        )
    if kind == "json_schema":
        # Chat has name and schema one level down, Responses and Messages beside the type.
        inner, where = form, f"{param}.schema"
        if "json_schema" in form or param == "response_format":
            inner, where = form.get("json_schema", form), f"{param}.json_schema.schema"
        if not isinstance(inner, dict) or "schema" not in inner:
            raise invalid(f"{where}: it is missing", where)
        if not isinstance(inner["schema"], dict | bool):
            raise invalid(f"{where}: it must be an object", where)
        return Bound("json_schema", inner["schema"], where)
    raise invalid(
        f"{param}.type: {str(kind)[:40]!r} is unknown; use text, json_object or json_schema", f"{param}.type"
    )


def _schema(value: Any, where: str) -> Any:
    if isinstance(value, str):
        try:
            return msgspec.json.decode(value)
        except msgspec.DecodeError as e:
            raise invalid(f"{where}: not valid JSON: {e}", where) from None
    return value


def escape(text: str) -> str:
    """A regular expression that matches just this text."""
    return "".join("\\" + c if c in r"\^$.|?*+()[]{}/" else c for c in text)


def stop_list(value: str | list[str] | None, param: str = "stop") -> tuple[str, ...]:
    """Stop strings without empty ones. Bounded, because each is looked for after every token."""
    strings = [value] if isinstance(value, str) else value or []
    if len(strings) > 256:
        raise invalid(f"{param}: at most 256 stop strings, not {len(strings)}", param)
    return tuple(s for s in strings if s)
