"""Every stage, alone and in any order, against the slow reference: which tokens can be drawn, how likely."""

import copy
import json
import math

import numpy as np
import pytest
import sampling_reference as reference
from hypothesis import given, settings
from hypothesis import strategies as st

import llamay_kernels as lk
from llamay_kernels import Sampler, Threads, _kernels, sample_batch

OFF = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}


@pytest.fixture(autouse=True)
def _restore_isa():
    before = lk.isa()
    yield
    lk.use_isa(before)


def uniforms(seed: int, sequence: int, position: int) -> tuple[float, float]:
    """The random number of the draw, and that of stages that take a chance."""
    words = [position & 0xFFFFFFFF, position >> 32, sequence & 0xFFFFFFFF, sequence >> 32]
    a, b, c, d = _kernels.philox4x32(words, [seed & 0xFFFFFFFF, seed >> 32])
    return ((a << 32 | b) >> 11) * 2.0**-53, ((c << 32 | d) >> 11) * 2.0**-53


def pack(allowed: np.ndarray) -> np.ndarray:
    words = np.zeros(-(-len(allowed) // 32) * 32, np.uint8)
    words[: len(allowed)] = allowed
    return np.packbits(words, bitorder="little").view(np.uint32)


def left(sampler: Sampler, logits: np.ndarray, position=0, history=None, mask=None) -> dict[int, float]:
    """Token -> probability, of the distribution that a sampler draws from."""
    _, _, top = sampler.sample_scored(logits, position, history, mask, len(logits))
    return {t: math.exp(p) for t, p in top if p > -80}


def assert_same(got: dict[int, float], wanted: dict[int, float]) -> None:
    wanted = {t: p for t, p in wanted.items() if p > math.exp(-80)}
    assert got.keys() == wanted.keys()
    assert got == pytest.approx(wanted, rel=2e-4, abs=1e-7)


def logits_of(seed: int, n: int, spread: float = 2.0, excluded: float = 0.0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal(n) * spread).astype(np.float32)
    x[rng.random(n) < excluded] = -np.inf
    x[rng.integers(n)] = 1.0
    return x


ALONE = [
    {"top_k": 7},
    {"top_p": 0.7},
    {"min_p": 0.03},
    {"typical_p": 0.6},
    {"typical_p": 0.05},
    {"top_n_sigma": 1.5},
    {"top_n_sigma": 0.3},
    {"xtc_probability": 1.0, "xtc_threshold": 0.02},
    {"xtc_probability": 1.0, "xtc_threshold": 0.0},
    {"xtc_probability": 1.0, "xtc_threshold": 0.6},
    {"temperature": 0.4},
    {"temperature": 1.0, "dynatemp_range": 0.7, "dynatemp_exponent": 0.6},
    {"temperature": 0.5, "dynatemp_range": 2.0, "dynatemp_exponent": 2.0},
    {"mirostat": 1, "mirostat_tau": 3.0},
    {"mirostat": 2, "mirostat_tau": 2.0},
    {"mirostat": 2, "mirostat_tau": 0.0},
    {"mirostat": 2, "temperature": 0.5, "mirostat_tau": 1.0},
]


@pytest.mark.parametrize("options", ALONE, ids=json.dumps)
@pytest.mark.parametrize("isa", lk.runnable_isas())
@pytest.mark.parametrize("n", [1, 2, 17, 400, 3000])
def test_each_stage_alone_leaves_what_the_reference_leaves(options, isa, n):
    lk.use_isa(isa)
    for seed in range(4):
        logits = logits_of(seed, n, excluded=0.3 * (seed % 2))
        options = {**OFF, **options}
        wanted = reference.distribution(logits, chance=uniforms(0, 0, seed)[1], **options)
        assert_same(left(Sampler(0, **options), logits, seed), wanted)


SETTINGS = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([0.0, 0.3, 0.8, 1.0, 3.0]),
        "dynatemp_range": st.sampled_from([0.0, 0.0, 0.5]),
        "top_k": st.sampled_from([0, 1, 5, 40]),
        "top_p": st.sampled_from([0.0, 0.31, 0.93, 1.0]),
        "min_p": st.sampled_from([0.0, 0.051, 0.53]),
        "typical_p": st.sampled_from([0.0, 0.41, 0.89, 1.0]),
        "top_n_sigma": st.sampled_from([-1.0, 0.0, 0.9, 2.1]),
        "xtc_probability": st.sampled_from([0.0, 0.5, 1.0]),
        "xtc_threshold": st.sampled_from([0.0, 0.013, 0.11, 0.5]),
        "repeat_penalty": st.sampled_from([1.0, 1.3]),
        "repeat_last_n": st.sampled_from([-1, 0, 5, 64]),
        "presence_penalty": st.sampled_from([0.0, 0.5]),
        "frequency_penalty": st.sampled_from([0.0, -0.25]),
        "dry_multiplier": st.sampled_from([0.0, 0.8]),
        "dry_allowed_length": st.sampled_from([0, 1, 2]),
        "dry_penalty_last_n": st.sampled_from([-1, 0, 9]),
    }
)


@settings(max_examples=300, deadline=None)
@given(
    options=SETTINGS,
    samplers=st.one_of(
        st.just(reference.ORDER),
        st.lists(st.sampled_from(reference.ORDER), max_size=9).map(tuple),
        st.permutations(reference.ORDER).map(tuple),
    ),
    seed=st.integers(0, 2**32),
    n=st.integers(1, 300),
    masked=st.booleans(),
    isa=st.sampled_from(lk.runnable_isas()),
)
def test_any_chain_draws_what_the_reference_draws(options, samplers, seed, n, masked, isa):
    rng = np.random.default_rng(seed)
    logits = logits_of(seed, n)
    history = rng.integers(0, max(1, min(n, 6)), 40).astype(np.int32)
    allowed = None
    if masked:
        allowed = rng.random(n) < 0.5
        allowed[rng.integers(n)] = True
    lk.use_isa(isa)
    sampler = Sampler(seed, 1, samplers=samplers, **options)
    u, chance = uniforms(seed, 1, 7)
    wanted = reference.distribution(
        logits, history=history.tolist(), allowed=allowed, chance=chance, samplers=samplers, **options
    )
    mask = None if allowed is None else pack(allowed)
    got = left(sampler, logits, 7, history, mask)
    if got.keys() != {t for t, p in wanted.items() if p > math.exp(-80)}:
        # A cut's edge may fall between two neighbours in float32 and float64; it cannot move far.
        near = reference.distribution(
            logits + np.float32(1e-4) * rng.standard_normal(n).astype(np.float32),
            history=history.tolist(),
            allowed=allowed,
            chance=chance,
            samplers=samplers,
            **options,
        )
        assert len(got.keys() ^ wanted.keys()) <= max(2, 2 * len(near.keys() ^ wanted.keys()))
        return
    assert_same(got, wanted)
    token = sampler.sample(logits, 7, history, mask)
    edges = np.cumsum([wanted[t] for t in sorted(wanted)])
    if np.abs(edges - u).min() > 1e-5:
        assert token == sorted(wanted)[int(np.searchsorted(edges, u, side="right"))]


# -- DRY


def test_dry_finds_what_would_prolong_a_repetition():
    history = np.array([1, 2, 3, 4, 9, 1, 2, 3], np.int32)
    logits = np.zeros(12, np.float32)
    got = left(Sampler(0, **OFF, dry_multiplier=1.0, dry_base=2.0), logits, history=history)
    # 1 2 3 came before, and 4 followed: a repetition of 3 with 2 allowed, so 1.0 * 2^1 is taken off.
    assert got[4] / got[0] == pytest.approx(math.exp(-2.0), rel=1e-6)
    assert len({round(p, 9) for t, p in got.items() if t != 4}) == 1


@settings(max_examples=200, deadline=None)
@given(
    history=st.lists(st.integers(0, 3), max_size=40),
    breakers=st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=3), max_size=3),
    allowed=st.integers(0, 4),
    last=st.sampled_from([-1, 1, 2, 7, 30, 100]),
    base=st.sampled_from([1.0, 1.75]),
)
def test_dry_penalises_as_the_reference_does(history, breakers, allowed, last, base):
    options = {
        "dry_multiplier": 0.7,
        "dry_base": base,
        "dry_allowed_length": allowed,
        "dry_penalty_last_n": last,
        "dry_sequence_breakers": breakers,
    }
    logits = np.zeros(6, np.float32)
    wanted = reference.distribution(logits, history=history, **OFF, **options)
    assert_same(left(Sampler(0, **OFF, **options), logits, history=np.array(history, np.int32)), wanted)


def test_dry_of_an_endless_repetition_stays_a_number_and_takes_linear_time():
    history = np.zeros(200_000, np.int32)
    sampler = Sampler(0, **OFF, dry_multiplier=1e6, dry_base=1e6)
    got = left(sampler, np.zeros(5, np.float32), history=history)
    assert 0 not in got
    assert len(got) == 4


# -- XTC


def test_xtc_acts_as_often_as_it_is_told():
    logits = np.log(np.array([0.5, 0.3, 0.2], np.float32))
    sampler = Sampler(3, **OFF, xtc_probability=0.25, xtc_threshold=0.15)
    acted = sum(len(left(sampler, logits, i)) == 1 for i in range(4000))
    assert abs(acted - 1000) < 5 * math.sqrt(1000)


# -- mirostat


@pytest.mark.parametrize("version", [1, 2])
def test_mirostat_learns_as_the_reference_does(version):
    logits = [logits_of(i, 500) for i in range(40)]
    sampler = Sampler(8, 1, temperature=0.9, mirostat=version, mirostat_tau=2.0, mirostat_eta=0.3)
    mu = 4.0
    for i, x in enumerate(logits):
        assert sampler.mu == pytest.approx(mu, rel=1e-4)
        wanted = reference.distribution(x, temperature=0.9, mirostat=version, mu=sampler.mu)
        before = sampler.mu
        token = sampler.sample(x, i)
        assert token in wanted
        mu = before - 0.3 * (-math.log2(wanted[token]) - 2.0)


def test_mirostat_holds_the_surprise():
    sampler = Sampler(1, temperature=1.0, mirostat=2, mirostat_tau=3.0, mirostat_eta=0.2)
    surprises = []
    for i in range(600):
        _, logprob, _ = sampler.sample_scored(logits_of(i, 2000, 1.5), i)
        surprises.append(-logprob / math.log(2))
    assert np.mean(surprises[100:]) == pytest.approx(3.0, abs=0.2)


def test_a_mirostat_goes_on_from_its_state():
    options = {"mirostat": 2, "mirostat_tau": 2.5}
    logits = [logits_of(i, 300) for i in range(30)]
    whole = Sampler(5, **options)
    expected = [whole.sample(x, i) for i, x in enumerate(logits)]
    first = Sampler(5, **options)
    begun = [first.sample(x, i) for i, x in enumerate(logits[:12])]
    for second in (copy.copy(first), Sampler(**first.state()), Sampler(5, **options, mu=first.mu)):
        assert begun + [second.sample(x, i + 12) for i, x in enumerate(logits[12:])] == expected


# -- hostile values


HOSTILE = {
    "all equal": np.zeros(300, np.float32),
    "one": np.zeros(1, np.float32),
    "one of many": np.where(np.arange(300) == 211, np.float32(3), np.float32(-np.inf)),
    "two of many": np.where(np.arange(300) % 150 == 3, np.float32(3), np.float32(-np.inf)),
    "largest numbers": np.where(np.arange(300) % 2, np.float32(3e38), np.float32(-3e38)),
    "denormals": np.full(300, 1e-45, np.float32),
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("options", [*ALONE, {"dry_multiplier": 1e6, "dry_base": 1e6}], ids=json.dumps)
@pytest.mark.parametrize("temperature", [1e-45, 1.0, 1e6])
def test_a_token_that_can_be_chosen_is_chosen_whatever_the_logits(name, options, temperature):
    logits = HOSTILE[name]
    history = np.zeros(50, np.int32)
    draws = []
    for isa in lk.runnable_isas():
        lk.use_isa(isa)
        sampler = Sampler(2, **{**OFF, "temperature": temperature, "repeat_penalty": 1e6, **options})
        draws.append([sampler.sample(logits, i, history) for i in range(20)])
        assert all(logits[t] > -np.inf for t in draws[-1])
        assert math.isfinite(sampler.mu)
    assert all(d == draws[0] for d in draws)


@pytest.mark.parametrize("options", [{}, *ALONE], ids=json.dumps)
def test_a_logit_that_is_no_number_is_told(options):
    logits = logits_of(0, 300)
    for value, word in ((np.nan, "NaN"), (np.inf, "infinity")):
        bad = logits.copy()
        bad[77] = value
        with pytest.raises(ValueError, match=f"the logit of token 77 is {word}"):
            Sampler(**{**OFF, **options}).sample(bad, 0)
    with pytest.raises(ValueError, match="no token can be chosen"):
        Sampler(**{**OFF, **options}).sample(np.full(300, -np.inf, np.float32), 0)


# -- log-probabilities of the draw


def test_scores_after_sampling_are_those_of_what_was_drawn_from():
    logits = logits_of(4, 1000)
    sampler = Sampler(9, top_k=5)
    for position in range(20):
        token, own, top = sampler.sample_scored(logits, position, top=3)
        assert token == sampler.sample(logits, position)
        everything = left(sampler, logits, position)
        assert math.fsum(everything.values()) == pytest.approx(1.0, abs=1e-6)
        assert math.exp(own) == pytest.approx(everything[token], rel=1e-6)
        assert [t for t, _ in top] == sorted(everything, key=lambda t: -everything[t])[:3]
    assert Sampler(temperature=0).sample_scored(logits, 0, top=5)[1:] == (0.0, [(int(logits.argmax()), 0.0)])


# -- batches


@pytest.mark.parametrize("threads", [None, 1, 4])
def test_a_batch_draws_what_its_rows_draw_alone(threads):
    pool = None if threads is None else Threads(threads)
    history, mask = np.arange(50, dtype=np.int32), pack(np.arange(20_000) % 3 == 0)

    def rows():
        options = [{}, {"temperature": 0}, {"mirostat": 2}, {"repeat_penalty": 1.5}, {"typical_p": 0.5}]
        return [
            (Sampler(i, i, **options[i % 5]), logits_of(i, 20_000), i, history, mask if i % 2 else None)
            for i in range(13)
        ]

    alone = [s.sample(x, p, h, m) for s, x, p, h, m in rows()]
    together = rows()
    tokens, errors = sample_batch(together, pool)
    assert (tokens, errors) == (alone, {})
    again = rows()
    for row in again:
        row[0].sample(*row[1:])
    assert [r[0].mu for r in together] == [r[0].mu for r in again]


def test_what_goes_wrong_in_a_row_touches_no_other():
    good, bad = logits_of(0, 100), np.full(100, np.nan, np.float32)
    tokens, errors = sample_batch([(Sampler(1), x, 0, None, None) for x in (good, bad, good)])
    assert tokens == [Sampler(1).sample(good, 0), -1, Sampler(1).sample(good, 0)]
    assert list(errors) == [1]
    assert "token 0 is NaN" in errors[1]
    assert sample_batch([]) == ([], {})


def test_two_rows_cannot_teach_one_mirostat():
    sampler, x = Sampler(mirostat=1), logits_of(0, 10)
    with pytest.raises(ValueError, match="two rows share a mirostat sampler"):
        sample_batch([(sampler, x, 0, None, None), (sampler, x, 1, None, None)])


# -- errors


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dynatemp_range": -1.0}, "dynatemp_range must be 0 to 1e6, not -1"),
        ({"dynatemp_exponent": math.nan}, "dynatemp_exponent must be 0 to 1e3, not nan"),
        ({"typical_p": 1.5}, "typical_p must be 0 to 1, not 1.5"),
        ({"top_n_sigma": math.inf}, "top_n_sigma must be"),
        ({"xtc_probability": 2.0}, "xtc_probability must be 0 to 1, not 2"),
        ({"xtc_threshold": -0.1}, "xtc_threshold must be 0 to 1"),
        ({"dry_multiplier": -1.0}, "dry_multiplier must be 0 to 1e6, not -1"),
        ({"dry_base": 0.5}, "dry_base must be 1 to 1e6, not 0.5"),
        ({"dry_allowed_length": -1}, "dry_allowed_length must be 0 or more, not -1"),
        ({"dry_penalty_last_n": -2}, r"dry_penalty_last_n must be -1 \(all\)"),
        ({"mirostat": 3}, r"mirostat must be 0 \(none\), 1 or 2, not 3"),
        ({"mirostat_tau": -1.0}, "mirostat_tau must be 0 to 1e3, not -1"),
        ({"mirostat_eta": math.nan}, "mirostat_eta must be 0 to 1e3, not nan"),
        ({"samplers": ["top_k", "topp"]}, "samplers names 'topp', which is none of penalties, dry"),
        ({"mu": math.nan}, "mu must be a number"),
    ],
    ids=str,
)
def test_options_out_of_range_name_themselves(options, message):
    with pytest.raises(ValueError, match=message):
        Sampler(**options)
    if "mu" in options:
        with pytest.raises(ValueError, match=message):
            Sampler().mu = options["mu"]
