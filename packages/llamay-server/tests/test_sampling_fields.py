"""Sampling fields of all dialects become the engine's options, and wrong ones name themselves."""

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from llamay_server.http.errors import ApiError
from llamay_server.ollama.schema import Options
from llamay_server.pipeline.sampling import OPENAI_DEFAULTS, SamplingFields, sampling_options

EVERYTHING = frozenset(
    [
        *OPENAI_DEFAULTS,
        *("repeat_last_n", "typical_p", "top_n_sigma", "xtc_probability", "xtc_threshold", "dry_multiplier"),
        *("dry_base", "dry_allowed_length", "dry_penalty_last_n", "dry_sequence_breakers", "mirostat"),
        *("mirostat_tau", "mirostat_eta", "dynatemp_range", "dynatemp_exponent", "samplers", "logit_bias"),
        "seed",
    ]
)
MODEL: Any = SimpleNamespace(info=SimpleNamespace(sampling_options=EVERYTHING, vocab_size=300))


def read(**fields: Any) -> dict[str, Any]:
    """What an engine that can do everything gets, beside the defaults and the seed."""
    out = sampling_options(msgspec.convert(fields, SamplingFields), MODEL)
    return {k: v for k, v in out.items() if k != "seed" and OPENAI_DEFAULTS.get(k) != v}


def test_every_field_reaches_the_engine() -> None:
    fields = {
        "typical_p": 0.9,
        "top_n_sigma": 1.5,
        "xtc_probability": 0.5,
        "xtc_threshold": 0.2,
        "dry_multiplier": 0.8,
        "dry_base": 2.0,
        "dry_allowed_length": 3,
        "dry_penalty_last_n": 100,
        "dry_sequence_breakers": ["x"],
        "mirostat": 2,
        "mirostat_tau": 4.0,
        "mirostat_eta": 0.2,
        "dynatemp_range": 0.5,
        "dynatemp_exponent": 2.0,
    }
    assert read(**fields) == fields


def test_what_only_shapes_another_field_is_left_out_without_it() -> None:
    assert read(xtc_threshold=0.2, dry_base=2.0, mirostat_tau=3.0, dynatemp_exponent=2.0) == {}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (["top_k", "temperature"], ("top_k", "temperature")),
        (["typical_p", "nucleus", "temp"], ("typ_p", "top_p", "temperature")),
        ("kt", ("top_k", "temperature")),
        ("edskypmxt", ("penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature")),
        ("top-k;min-p", ("top_k", "min_p")),
        ("xtc", ("xtc",)),
    ],
)  # fmt: skip
def test_samplers_are_names_or_letters(value: Any, expected: tuple[str, ...]) -> None:
    assert read(samplers=value) == {"samplers": expected}


@pytest.mark.parametrize("value", [["tail_free"], "kq", "top_k;x", ["top_k"] * 65])
def test_an_unknown_sampler_is_named(value: Any) -> None:
    with pytest.raises(ApiError) as error:
        read(samplers=value)
    assert error.value.param == "samplers"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("dry_base", 0.5),
        ("dry_multiplier", -1),
        ("dry_sequence_breakers", [""]),
        ("dry_sequence_breakers", ["x" * 41]),
        ("dry_sequence_breakers", ["x"] * 65),
        ("mirostat", 3),
        ("mirostat_tau", -1),
        ("xtc_probability", 1.5),
        ("typical_p", -0.1),
        ("dynatemp_range", -1),
        ("top_n_sigma", 1e9),
    ],
)
def test_a_value_out_of_range_is_refused_before_the_engine_sees_it(field: str, value: Any) -> None:
    with pytest.raises(msgspec.ValidationError, match=field):
        read(**{field: value})


def test_ollamas_options_are_the_same_fields() -> None:
    options = msgspec.convert(
        {"typical_p": 0.5, "mirostat": 1, "mirostat_tau": 3, "mirostat_eta": 0.2}, Options
    )
    fields = {
        name: value
        for name in SamplingFields.__struct_fields__
        if (value := getattr(options, name, None)) is not None
    }
    assert read(**fields) == {"typical_p": 0.5, "mirostat": 1, "mirostat_tau": 3.0, "mirostat_eta": 0.2}
