"""Sampling: llama.cpp's meaning, against a slow reference; and a draw is a function of its arguments."""

import copy
import json
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import llamay_kernels as lk
from llamay_kernels import Sampler, _kernels, logprobs

OFF = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}


@pytest.fixture(autouse=True)
def _restore_isa():
    before = lk.isa()
    yield
    lk.use_isa(before)


# -- random numbers


@pytest.mark.parametrize(
    ("counter", "key", "out"),
    [
        ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xA4093822, 0x299F31D0],
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ],
)
def test_philox_gives_the_published_vectors(counter, key, out):
    """From the known answers that come with Random123."""
    assert _kernels.philox4x32(counter, key) == out


def uniform(seed: int, sequence: int, position: int) -> float:
    words = [position & 0xFFFFFFFF, position >> 32, sequence & 0xFFFFFFFF, sequence >> 32]
    high, low, *_ = _kernels.philox4x32(words, [seed & 0xFFFFFFFF, seed >> 32])
    return ((high << 32 | low) >> 11) * 2.0**-53


# -- a slow sampler with the same meaning


def kept(
    logits,
    *,
    temperature=0.8,
    top_k=40,
    top_p=0.95,
    min_p=0.05,
    allowed=None,
    bias=None,
    history=(),
    **penalties,
):
    """Token -> probability, of the tokens that can be drawn, in llama.cpp's order of stages."""
    x = logits.astype(np.float32).copy()
    if allowed is not None:
        x[~allowed] = -np.inf
    for token, b in (bias or {}).items():
        x[token] += np.float32(b)
    last = penalties.get("repeat_last_n", 64)
    recent = list(history) if last < 0 else list(history)[len(history) - min(last, len(history)) :]
    for token in set(recent):
        repeat = np.float32(penalties.get("repeat_penalty", 1.0))
        x[token] = x[token] * repeat if x[token] <= 0 else x[token] / repeat
        off = np.float32(recent.count(token)) * np.float32(penalties.get("frequency_penalty", 0.0))
        x[token] -= off + np.float32(penalties.get("presence_penalty", 0.0))
    order = sorted((i for i in range(len(x)) if x[i] > -np.inf), key=lambda i: (-x[i], i))
    if top_k > 0:
        order = order[:top_k]
    if top_p < 1:
        p = np.exp(x[order].astype(np.float64) - x[order[0]])
        order = order[: max(1, int(np.searchsorted(np.cumsum(p), top_p * p.sum() * (1 - 1e-9))) + 1)]
    if min_p > 0:
        order = [i for i in order if x[i] >= x[order[0]] + np.float32(np.log(min_p))]
    if temperature == 0:
        return {order[0]: 1.0}
    p = np.exp((x[order].astype(np.float64) - x[order[0]]) / temperature)
    return dict(zip(order, p / p.sum(), strict=True))


def random_logits(seed: int, n: int, spread: float, ties: bool) -> np.ndarray:
    x = (np.random.default_rng(seed).standard_normal(n) * spread).astype(np.float32)
    return np.round(x) if ties else x


@settings(max_examples=300, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    n=st.one_of(st.integers(1, 700), st.sampled_from([4097, 9003])),
    spread=st.sampled_from([0.0, 0.1, 2.0, 8.0, 60.0]),
    ties=st.booleans(),
    temperature=st.sampled_from([0.0, 0.3, 1.0, 5.0]),
    top_k=st.sampled_from([0, 1, 2, 5, 40, 1000]),
    top_p=st.sampled_from([0.0, 0.3, 0.9, 0.999, 1.0]),
    min_p=st.sampled_from([0.0, 0.05, 0.5, 1.0]),
    isa=st.sampled_from(lk.runnable_isas()),
    masked=st.sampled_from([0.0, 0.5, 0.999]),
    penalised=st.sampled_from([0, 30, 700]),
)
def test_a_draw_is_the_reference_samplers(
    seed, n, spread, ties, temperature, top_k, top_p, min_p, isa, masked, penalised
):
    rng = np.random.default_rng(seed)
    logits = random_logits(seed, n, spread, ties)
    options = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
    allowed, mask, bias, history = None, None, None, np.empty(0, np.int32)
    if masked:
        allowed = rng.random(n) >= masked
        allowed[rng.integers(n)] = True
        words = np.zeros(-(-n // 32) * 32, np.uint8)
        words[:n] = allowed
        mask = np.packbits(words, bitorder="little").view(np.uint32)
    if penalised:
        bias = {
            int(t): float(b) for t, b in zip(rng.integers(0, n, 3), rng.standard_normal(3) * 4, strict=True)
        }
        history = rng.integers(0, n, penalised).astype(np.int32)
        options |= {
            "repeat_penalty": 1.3,
            "repeat_last_n": 20 if penalised < 100 else -1,
            "frequency_penalty": 0.25,
            "presence_penalty": -0.5,
        }
    lk.use_isa(isa)
    sampler = Sampler(seed, 3, logit_bias=bias, **options)
    wanted = kept(logits, **options, allowed=allowed, bias=bias, history=history.tolist())
    # A sum in another order may move the edge of top-p by one token; not here, where it would show as a wrong meaning.
    close = min(abs(c - uniform(seed, 3, 9)) for c in np.cumsum([wanted[i] for i in sorted(wanted)])) < 1e-5
    token = sampler.sample(logits, 9, history, mask)
    assert token in wanted
    u, total = uniform(seed, 3, 9), 0.0
    for expected in sorted(wanted):
        total += wanted[expected]
        if total > u:
            break
    assert token == expected or close


@pytest.mark.parametrize("n", [1, 15, 16, 17, 63, 64, 65, 5000])
def test_every_kernel_set_draws_the_same(n):
    logits = random_logits(n, n, 4.0, False)
    options = [
        OFF,
        {},
        {**OFF, "top_p": 0.7},
        {**OFF, "min_p": 0.01},
        {**OFF, "top_k": 3},
        {"temperature": 0.0},
    ]
    for option in options:
        draws = []
        for isa in lk.runnable_isas():
            lk.use_isa(isa)
            draws.append([Sampler(5, **option).sample(logits, i) for i in range(50)])
        assert all(d == draws[0] for d in draws)


def test_draws_follow_the_distribution():
    logits = np.log(np.array([0.5, 0.25, 0.125, 0.125, 1e-9], np.float32))
    sampler = Sampler(11, **OFF)
    counts = np.bincount([sampler.sample(logits, i) for i in range(20_000)], minlength=5)
    expected = np.array([0.5, 0.25, 0.125, 0.125, 0]) * 20_000
    assert (np.abs(counts - expected) < 5 * np.sqrt(expected + 1)).all()


# -- dependencies of a draw


def test_a_draw_depends_on_seed_sequence_and_position_only():
    logits = random_logits(0, 1000, 1.0, False)
    sampler = Sampler(1, 2, **OFF)
    forward = [sampler.sample(logits, i) for i in range(50)]
    assert [sampler.sample(logits, i) for i in reversed(range(50))] == forward[::-1]
    assert [Sampler(1, 2, **OFF).sample(logits, i) for i in range(50)] == forward
    assert [Sampler(1, 3, **OFF).sample(logits, i) for i in range(50)] != forward
    assert [Sampler(2, 2, **OFF).sample(logits, i) for i in range(50)] != forward
    assert Sampler(2**64 - 1, 2**64 - 1, **OFF).sample(logits, 2**63) >= 0


def test_temperature_zero_takes_the_likeliest_and_the_lowest_of_equals():
    logits = np.zeros(300, np.float32)
    logits[[70, 200, 290]] = 5
    assert Sampler(temperature=0).sample(logits, 0) == 70
    mask = np.full(10, 0xFFFFFFFF, np.uint32)
    mask[70 // 32] ^= 1 << 70 % 32
    assert Sampler(temperature=0).sample(logits, 0, mask=mask) == 200
    assert Sampler(temperature=0, logit_bias={290: 0.5}).sample(logits, 0) == 290


def test_the_smallest_temperature_takes_the_likeliest():
    logits = random_logits(3, 500, 1.0, False)
    assert (
        Sampler(temperature=1e-45, **{k: v for k, v in OFF.items() if k != "temperature"}).sample(logits, 1)
        == logits.argmax()
    )


def test_penalties_look_back_as_far_as_they_are_told():
    logits = np.array([1.0, 0.9, 0.0], np.float32)
    history = np.array([0] + [2] * 64, np.int32)
    greedy = {"temperature": 0, "repeat_penalty": 2.0}
    assert Sampler(**greedy).sample(logits, 0, history) == 0  # 64 positions back is one too few
    assert Sampler(**greedy, repeat_last_n=65).sample(logits, 0, history) == 1
    assert Sampler(**greedy, repeat_last_n=-1).sample(logits, 0, history) == 1
    assert Sampler(**greedy, repeat_last_n=0).sample(logits, 0, np.array([0], np.int32)) == 0


def test_state_is_plain_values_and_makes_the_same_sampler():
    sampler = Sampler(
        2**63, 9, temperature=1.5, top_k=7, repeat_penalty=1.1, logit_bias={3: -1.5, 700: float("-inf")}
    )
    logits = random_logits(1, 1000, 2.0, False)
    expected = [sampler.sample(logits, i) for i in range(30)]
    state = sampler.state()
    restored = json.loads(json.dumps({**state, "logit_bias": None}))
    restored["logit_bias"] = {3: -1.5, 700: float("-inf")}
    assert restored == state
    for other in (Sampler(**state), pickle.loads(pickle.dumps(sampler)), copy.copy(sampler)):
        assert other.state() == state
        assert [other.sample(logits, i) for i in range(30)] == expected


# -- log-probabilities


@pytest.mark.parametrize("isa", lk.runnable_isas())
def test_logprobs_are_those_of_the_logits(isa):
    lk.use_isa(isa)
    logits = random_logits(2, 3000, 3.0, False)
    x = logits.astype(np.float64)
    exact = x - x.max() - np.log(np.exp(x - x.max()).sum())
    own, top = logprobs(logits, 17, 5)
    order = np.argsort(-exact, kind="stable")[:5]
    assert own == pytest.approx(exact[17], abs=1e-6)
    assert [t for t, _ in top] == order.tolist()
    assert [p for _, p in top] == pytest.approx(exact[order].tolist(), abs=1e-6)
    assert logprobs(logits, 17)[1] == []
    assert len(logprobs(logits[:3], 0, 10)[1]) == 3


def test_logprobs_of_what_is_excluded_is_minus_infinity():
    assert logprobs(np.array([0.0, -np.inf], np.float32), 1, 0)[0] == -np.inf


# -- errors


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": -0.1}, "temperature must be 0 to 1e6, not -0.1"),
        ({"temperature": float("nan")}, "temperature must be 0 to 1e6, not nan"),
        ({"top_p": 1.1}, "top_p must be 0 to 1, not 1.1"),
        ({"min_p": -1.0}, "min_p must be 0 to 1, not -1"),
        ({"repeat_penalty": 0.0}, "repeat_penalty must be more than 0"),
        ({"repeat_last_n": -2}, r"repeat_last_n must be -1 \(all\), 0 \(none\) or more, not -2"),
        ({"presence_penalty": float("inf")}, "presence_penalty must be -1e6 to 1e6, not inf"),
        ({"frequency_penalty": float("nan")}, "frequency_penalty must be -1e6 to 1e6, not nan"),
        ({"logit_bias": {-1: 1.0}}, "a token in logit_bias must be 0 or more, not -1"),
        ({"logit_bias": {1: float("nan")}}, "a bias in logit_bias must be a number up to 1e6"),
    ],
    ids=str,
)
def test_options_out_of_range_name_themselves(options, message):
    with pytest.raises(ValueError, match=message):
        Sampler(**options)


def test_logits_that_cannot_be_used_are_errors():
    logits = np.zeros(100, np.float32)
    nan = logits.copy()
    nan[41] = np.nan
    with pytest.raises(ValueError, match="the logit of token 41 is NaN; the model's output is not usable"):
        Sampler().sample(nan, 0)
    with pytest.raises(ValueError, match="the logit of token 41 is NaN"):
        logprobs(nan, 0, 1)
    with pytest.raises(ValueError, match="the logit of token 0 is infinity"):
        Sampler(temperature=0).sample(np.full(3, np.inf, np.float32), 0)
    nothing = "no token can be chosen: the mask, the biases and the logits exclude all 100"
    for options in (
        {},
        {"temperature": 0},
        OFF,
        {**OFF, "top_p": 0.5},
        {**OFF, "min_p": 0.5},
        {**OFF, "top_k": 3},
    ):
        with pytest.raises(ValueError, match=nothing):
            Sampler(**options).sample(logits, 0, mask=np.zeros(4, np.uint32))
        with pytest.raises(ValueError, match=nothing):
            Sampler(**options).sample(np.full(100, -np.inf, np.float32), 0)
    with pytest.raises(ValueError, match="every logit is -infinity"):
        logprobs(np.full(3, -np.inf, np.float32), 0)


def test_what_does_not_fit_the_vocabulary_is_refused():
    logits = np.zeros(100, np.float32)
    with pytest.raises(ValueError, match="the mask has 3 words but 100 tokens need 4"):
        Sampler().sample(logits, 0, mask=np.zeros(3, np.uint32))
    with pytest.raises(ValueError, match="logit_bias names token 100 but the vocabulary has 100"):
        Sampler(logit_bias={100: 1.0}).sample(logits, 0)
    for token in (100, -1):
        with pytest.raises(ValueError, match=f"the history holds token {token} but the vocabulary has 100"):
            Sampler(repeat_penalty=1.1).sample(logits, 0, np.array([token], np.int32))
    with pytest.raises(ValueError, match="token 100 is not in a vocabulary of 100"):
        logprobs(logits, 100)
    with pytest.raises(ValueError, match="logits must hold 1 to 2"):
        Sampler().sample(np.empty(0, np.float32), 0)
    with pytest.raises(TypeError):
        Sampler().sample(np.zeros(3), 0)
