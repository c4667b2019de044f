"""Every sampling option through the engine: the same text alone, in a batch, continued, forked and restored."""

import json
import math

import numpy as np
import pytest

import llamay_kernels as kernels
from llamay_models.engine import Request, Sampling
from llamay_models.engine.decoding.dry_breakers import token_sequences
from llamay_models.engine.decoding.token_sampler import BatchedDraws, TokenSampler
from llamay_models.engine.state.context_state import State
from llamay_models.errors import SamplingError

OPTIONS = [
    {},
    {"temperature": 0.0},
    {"temperature": 1.2, "dynatemp_range": 0.8, "dynatemp_exponent": 0.7},
    {"typical_p": 0.7, "top_k": 0},
    {"top_n_sigma": 1.0},
    {"xtc_probability": 0.5, "xtc_threshold": 0.05},
    {"dry_multiplier": 2.0, "dry_allowed_length": 1, "repeat_penalty": 1.2},
    {"mirostat": 1, "mirostat_tau": 3.0, "mirostat_eta": 0.3},
    {"mirostat": 2, "mirostat_tau": 2.0, "mirostat_eta": 0.3},
    {"samplers": "temperature;top_k;min_p", "temperature": 2.0},
    {"logit_bias": {7: 3.0, 9: -math.inf}, "logprobs": 2, "post_sampling_logprobs": True},
]
PROMPT = [20, 9, 31, 9, 31]


def tokens(model, options, n=24):
    return model.engine.submit(
        Request(PROMPT, Sampling(seed=11, **options), n, ignore_eos=True, random_stream=0)
    ).tokens


@pytest.mark.parametrize("options", OPTIONS, ids=json.dumps)
def test_a_text_is_the_same_alone_and_among_all_the_others(make_model, options):
    model = make_model()
    expected = tokens(model, options)
    requests = [
        Request(PROMPT, Sampling(seed=11, **o), 24, ignore_eos=True, random_stream=0) for o in OPTIONS
    ]
    together = [model.engine.submit(r) for r in requests]
    assert together[OPTIONS.index(options)].tokens == expected
    assert tokens(make_model(threads=3), options) == expected


@pytest.mark.parametrize("options", OPTIONS, ids=json.dumps)
def test_a_text_goes_on_as_if_it_had_not_been_interrupted(make_model, options, tmp_path):
    model = make_model()
    expected = tokens(model, options)
    context = model.context(PROMPT)
    begun = context.generate(Sampling(seed=11, **options), max_tokens=9, ignore_eos=True).tokens
    context.save(tmp_path / "begun")
    fork = context.fork()
    restored = make_model().restore(tmp_path / "begun")
    for other in (context, fork, restored):
        assert begun + other.generate(max_tokens=15, ignore_eos=True).tokens == expected


def test_a_text_is_the_same_with_every_kernel_set(make_model):
    before = kernels.isa()
    texts = []
    try:
        for isa in kernels.runnable_isas():
            kernels.use_isa(isa)
            model = make_model()
            texts.append([tokens(model, options, 12) for options in OPTIONS])
    finally:
        kernels.use_isa(before)
    assert all(t == texts[0] for t in texts)


def test_another_mirostat_begins_anew(make_model):
    model = make_model()
    context = model.context(PROMPT)
    context.generate(Sampling(seed=1, mirostat=2, mirostat_eta=0.5), max_tokens=5, ignore_eos=True).wait()
    learned = context._state.mirostat
    assert learned is not None
    assert learned[3] != 10.0
    sampler = TokenSampler(
        Sampling(seed=1, mirostat=2, mirostat_tau=4.0), context._state, 60, frozenset(), backend=model.backend
    )
    assert sampler._sampler.mu == 8.0
    sampler = TokenSampler(
        Sampling(seed=1, mirostat=2, mirostat_eta=0.5), context._state, 60, frozenset(), backend=model.backend
    )
    assert sampler._sampler.mu == learned[3]


def test_scores_after_sampling_are_those_of_what_was_left(make_model):
    model = make_model()
    sampling = Sampling(seed=3, top_k=2, top_p=1.0, min_p=0.0, logprobs=5, post_sampling_logprobs=True)
    generation = model.engine.submit(Request(PROMPT, sampling, 8, ignore_eos=True))
    scores = [s for piece in generation for s in piece.logprobs]
    assert len(scores) == 8
    for score in scores:
        assert len(score.top) == 2
        assert math.fsum(math.exp(p) for _, p in score.top) == pytest.approx(1.0)
        assert dict(score.top)[score.token] == pytest.approx(score.logprob)


# -- drawing with the step


def draw(backend, what, threads=None):
    draws = BatchedDraws()
    for i, (sampler, _, position) in enumerate(what):
        draws.add(sampler, i, position, None)
    draws.draw([logits for _, logits, _ in what], backend.sample_batch, threads)


def test_what_is_drawn_ahead_is_what_would_have_been_chosen(make_model):
    model = make_model()
    rng = np.random.default_rng(0)
    rows = [rng.standard_normal(60).astype(np.float32) for _ in OPTIONS]

    def samplers():
        made = []
        for options in OPTIONS:
            state = State(model.pool.context())
            state.append(PROMPT)
            made.append(
                TokenSampler(Sampling(seed=4, **options), state, 60, frozenset(), backend=model.backend)
            )
        return made

    alone = [c.choose(x, 5, None) for c, x in zip(samplers(), rows, strict=True)]
    predrawn = samplers()
    draw(model.backend, [(c, x, 5) for c, x in zip(predrawn, rows, strict=True)], model.backend.threads(2))
    nonsense = np.zeros(60, np.float32)
    for options, sampler, x, expected in zip(OPTIONS, predrawn, rows, alone, strict=True):
        logits = x if "logprobs" in options else nonsense  # so that it shows what was taken
        assert sampler.choose(logits, 5, None) == expected


def test_an_error_that_was_drawn_ahead_is_told_to_its_own_sequence(make_model):
    model = make_model()
    good, bad = np.zeros(60, np.float32), np.full(60, np.nan, np.float32)
    samplers = [
        TokenSampler(Sampling(seed=1), State(model.pool.context()), 60, frozenset(), backend=model.backend)
        for _ in range(2)
    ]
    draw(model.backend, [(samplers[0], good, 0), (samplers[1], bad, 0)])
    assert samplers[0].choose(good, 0, None)[1] is None
    with pytest.raises(SamplingError, match="no token can be chosen at position 0: the logit of token 0"):
        samplers[1].choose(bad, 0, None)


def test_what_was_drawn_for_another_position_or_without_the_mask_is_not_taken(make_model):
    model = make_model()
    logits = np.zeros(60, np.float32)
    logits[[7, 8]] = 20, 19
    samplers = [
        TokenSampler(
            Sampling(temperature=0), State(model.pool.context()), 60, frozenset(), backend=model.backend
        )
        for _ in (1, 2)
    ]
    draw(model.backend, [(c, logits, 3) for c in samplers])
    mask = np.full(2, 0xFFFFFFFF, np.uint32)
    mask[0] ^= 1 << 7
    assert samplers[0].choose(logits, 3, mask)[0] == 8
    assert samplers[1].choose(logits[::-1].copy(), 4, None)[0] == 52


# -- sequence breakers


class Words:
    """A vocabulary that is told."""

    def __init__(self, *words):
        self.words = [w.encode() for w in words]
        self.vocab_size = len(words)

    def token_bytes(self, token):
        return self.words[token]

    def encode(self, text, *, add_special=True, parse_special=False):
        raw, out = text if isinstance(text, bytes) else text.encode(), []
        while raw:
            word = max((w for w in self.words if w and raw.startswith(w)), key=len)
            out.append(self.words.index(word))
            raw = raw[len(word) :]
        return out


def test_a_breaker_is_found_however_tokens_divide_it():
    words = Words("a", "b", "c", "xa", "ab", "abc", "bc", "cab", "zabcz", "")
    assert sorted(token_sequences(words, 100, ["abc"])) == sorted([[5], [8], [0, 6], [3, 6], [4, 2], [7, 2]])
    assert token_sequences(words, 100, ["b"]) == [[1], [4], [5], [6], [7], [8]]
    assert token_sequences(words, 100, []) == []


def test_a_character_that_tokens_divide_is_found():
    words = Words("a")
    raw = "é".encode()
    words.words += [raw[:1], raw[1:]]
    words.vocab_size = 3
    assert token_sequences(words, 3, ["é"]) == [[1, 2]]


def test_repetitions_do_not_reach_over_a_breaker(make_model):
    """With the letter as a breaker nothing is penalised that without it would be."""
    model = make_model()
    prompt = model.encode("abcdaefgabcdabcdaefgabcd")
    free, broken = (
        Sampling(temperature=0, dry_multiplier=1e5, dry_allowed_length=2, dry_sequence_breakers=b)
        for b in ((), ("d",))
    )
    logits = np.zeros(60, np.float32)
    logits[model.encode("a")] = 1.0
    chosen = []
    for sampling in (free, broken):
        state = State(model.pool.context())
        state.append(prompt)
        sampler = TokenSampler(sampling, state, 60, frozenset(), model.tokenizer, backend=model.backend)
        chosen.append(sampler.choose(logits, len(prompt), None)[0])
    assert chosen[0] != model.encode("a")[0]
    assert chosen[1] == model.encode("a")[0]


# -- the options themselves


def test_samplers_are_known_by_all_their_names():
    assert Sampling(samplers="temp;top-k;nucleus;typical-p;").samplers == (
        "temperature",
        "top_k",
        "top_p",
        "typ_p",
    )
    assert Sampling(samplers=["XTC"]).samplers == ("xtc",)
    assert Sampling(samplers=[]).samplers == ()


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("samplers", "top_k;tail_free", "samplers must be among penalties, dry, .* not 'tail_free'"),
        ("samplers", 3, "samplers must be at most 64 names of samplers, not 3"),
        ("samplers", [None], "samplers must be among .* not None"),
        ("dry_sequence_breakers", "abc", "dry_sequence_breakers must be at most 64 texts"),
        ("dry_sequence_breakers", [""], "dry_sequence_breakers must be texts of 1 to 40 characters, not ''"),
        ("dry_base", 0.9, "dry_base must be a number from 1 to 1e"),
        ("mirostat", 3, "mirostat must be a whole number from 0 to 2, not 3"),
        ("typical_p", -1, "typical_p must be a number from 0 to 1, not -1"),
        ("post_sampling_logprobs", 1, "post_sampling_logprobs must be True or False, not 1"),
    ],
)
def test_a_wrong_option_is_named(option, value, message):
    with pytest.raises(SamplingError, match=message):
        Sampling(**{option: value})


def test_every_option_reaches_the_native_sampler_with_the_same_default():
    native = kernels.Sampler().state()
    for name, value in native.items():
        if name in ("seed", "sequence", "mu", "dry_sequence_breakers", "samplers"):
            continue
        assert getattr(Sampling(), name) == value, name
    assert list(Sampling().samplers) == native["samplers"]
