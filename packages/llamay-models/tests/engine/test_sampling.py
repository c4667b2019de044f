"""Sampling options are checked when they are given, and named when they are wrong."""

import math

import pytest

from llamay_models.engine import Sampling
from llamay_models.errors import SamplingError


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("temperature", -0.1, "temperature must be a number from 0 to 1e+06, not -0.1"),
        ("temperature", math.nan, "temperature must be a number from 0 to 1e+06, not nan"),
        ("temperature", "hot", "temperature must be a number from 0 to 1e+06, not 'hot'"),
        ("top_p", 1.1, "top_p must be a number from 0 to 1, not 1.1"),
        ("min_p", True, "min_p must be a number from 0 to 1, not True"),
        ("repeat_penalty", 0, "repeat_penalty must be a number from 1e-06 to 1e+06, not 0"),
        ("top_k", -1, "top_k (0 keeps all) must be a whole number from 0 to 2147483648, not -1"),
        ("top_k", 1.5, "top_k (0 keeps all) must be a whole number from 0 to 2147483648, not 1.5"),
        ("top_k", None, "top_k (0 keeps all) must be a whole number from 0 to 2147483648, not None"),
        ("seed", -1, "seed must be a whole number from 0 to 18446744073709551615, not -1"),
        ("logprobs", 1025, "logprobs must be a whole number from 0 to 1024, not 1025"),
        ("repeat_last_n", -2, "repeat_last_n must be a whole number from -1 to 2147483648, not -2"),
        ("logit_bias", {-1: 1.0}, "a token of logit_bias must be a whole number from 0 on, not -1"),
        ("logit_bias", {1: math.inf}, "logit_bias of token 1 must be a number or -inf, not inf"),
        ("logit_bias", {1: math.nan}, "logit_bias of token 1 must be a number or -inf, not nan"),
    ],
)
def test_a_wrong_option_is_named(option, value, message):
    with pytest.raises(SamplingError) as error:
        Sampling(**{option: value})
    assert str(error.value) == message


def test_a_seed_is_drawn_where_none_is_given():
    assert Sampling(seed=3).seeded() == Sampling(seed=3)
    assert Sampling().seeded() != Sampling().seeded()
    assert 0 <= Sampling().seeded().seed < 1 << 32
