"""Embeddings are the reference's pooled states, and the same to the last bit in any company."""

import math
import threading
import time

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llamay_models.architectures import ARCHITECTURES
from llamay_models.embedding import RankHead, default_pooling, take_rank_head
from llamay_models.engine import Request, Sampling
from llamay_models.errors import (
    EngineClosedError,
    OutOfMemoryError,
    PromptError,
    PromptTooLongError,
    TensorError,
)
from llamay_models.plan import Reference

TEXTS = [
    [5 + i * k % 50 for i in range(n)] for k, n in ((11, 75), (7, 1), (3, 16), (13, 130), (17, 17), (11, 2))
]


class Hidden(Reference):
    """Keeps what the output matrix is applied to."""

    def linear(self, x, w, width, bias=None):
        self.last = x
        return super().linear(x, w, width, bias)


def reference(small, tokens):
    """The final hidden states, float64 (tokens, width)."""
    g = Hidden(tokens, list(range(len(tokens))))
    small.architecture.build(g, small.config, small.weights())
    return np.asarray(g.last.array)


@pytest.mark.parametrize("name", sorted(n for n, a in ARCHITECTURES.items() if a.kind == "decoder"))
@pytest.mark.parametrize("pooling", ["mean", "last", "cls"])
def test_an_embedding_is_the_pooled_hidden_state_of_the_reference(make_model, small_model, name, pooling):
    model = make_model(name)
    got = model.embed(TEXTS, pooling, normalize=False)
    assert got.dtype == np.float32
    for vector, tokens in zip(got, TEXTS, strict=True):
        states = reference(small_model(name), tokens)
        expected = {"mean": states.mean(0), "last": states[-1], "cls": states[0]}[pooling]
        np.testing.assert_allclose(vector, expected, atol=2e-3)
    units = model.embed(TEXTS, pooling)
    np.testing.assert_allclose(np.linalg.norm(units, axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(units, got / np.linalg.norm(got, axis=1, keepdims=True), atol=1e-6)


@pytest.mark.parametrize("pooling", ["mean", "last", "cls"])
def test_an_embedding_is_the_same_alone_in_a_batch_and_on_any_threads(make_model, pooling):
    alone = [make_model(max_rows=512).embed([t], pooling)[0] for t in TEXTS]
    for rows, threads, page in ((64, 1, 16), (7, 3, 32), (512, 2, 64)):
        together = make_model(max_rows=rows, threads=threads, page_tokens=page).embed(TEXTS, pooling)
        assert np.array_equal(together, alone)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    texts=st.lists(st.lists(st.integers(5, 60), min_size=1, max_size=90), min_size=1, max_size=9),
    pooling=st.sampled_from(["mean", "last", "cls"]),
)
def test_company_does_not_show(make_model, texts, pooling):
    model = make_model()
    together = model.embed(texts, pooling)
    assert np.array_equal(together, [model.embed([t], pooling)[0] for t in texts])
    model.close()


def test_texts_of_many_callers_and_streams_do_not_show(make_model):
    model = make_model()
    expected = model.embed(TEXTS)
    sampling = Sampling(seed=1)
    text = model.engine.submit(Request([9, 8], sampling, 60, ignore_eos=True, random_stream=0)).tokens
    streams = [
        model.engine.submit(Request([9, 8], sampling, 60, ignore_eos=True, random_stream=0)) for _ in range(3)
    ]
    out = [None] * 6

    def one(i):
        out[i] = model.embed(TEXTS[i % 6 :] + TEXTS[: i % 6])

    threads = [threading.Thread(target=one, args=(i,)) for i in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for i, got in enumerate(out):
        assert np.array_equal(np.roll(got, i % 6, axis=0), expected)
    assert all(s.tokens == text for s in streams)
    assert model.pool.used_bytes == 0 or model.engine.prefixes is not None


def test_fewer_dimensions_are_the_first_ones_at_length_one(make_model):
    model = make_model()
    whole = model.embed(TEXTS[:2], normalize=False)
    short = model.embed(TEXTS[:2], dimensions=5)
    np.testing.assert_allclose(
        short, whole[:, :5] / np.linalg.norm(whole[:, :5], axis=1, keepdims=True), atol=1e-6
    )


def test_one_text_is_a_batch_of_one_and_none_of_none(make_model):
    model = make_model()
    assert np.array_equal(model.embed("abcd"), model.embed([model.encode("abcd")]))
    assert np.array_equal(model.embed([5, 6, 7]), model.embed([[5, 6, 7]]))
    assert model.embed([]).shape == (0, 32)


@pytest.mark.parametrize(
    ("kind", "pooling"), [(0, "last"), (1, "mean"), (2, "cls"), (3, "last"), (None, "last")]
)
def test_the_file_says_how_to_pool(make_model, kind, pooling):
    model = make_model()
    model.metadata = {} if kind is None else {"llama.pooling_type": kind}
    assert default_pooling(model) == pooling
    assert np.array_equal(model.embed(TEXTS), model.embed(TEXTS, pooling))


def test_wrong_texts_are_told_and_leave_nothing(make_model):
    model = make_model(ctx_size=80)
    used = model.pool.used_bytes
    with pytest.raises(PromptError, match="text 2 of 2 is empty"):
        model.embed([[5], []])
    with pytest.raises(PromptError, match="text 2 of 3: token 61 is outside the vocabulary of 61"):
        model.embed([[5], [61], [5]])
    with pytest.raises(PromptTooLongError):
        model.embed([[5] * 81])
    with pytest.raises(ValueError, match="pooling must be one of mean, last, cls, not 'max'"):
        model.embed([[5]], "max")
    with pytest.raises(ValueError, match="dimensions must be a whole number from 1 to 32, not 33"):
        model.embed([[5]], dimensions=33)
    assert model.pool.used_bytes == used
    assert len(model.pass_runner._queue) == 0


def test_a_text_that_does_not_fit_into_memory_is_told_and_others_still_fit(make_model):
    model = make_model(budget=10 * sum(make_model().pool.page_bytes))
    with pytest.raises(OutOfMemoryError, match="no K/V memory is left to compute this text"):
        model.embed([[5] * 256])
    many = model.embed([[5 + i % 50] * 20 for i in range(40)])
    assert np.array_equal(many[7], model.embed([[12] * 20])[0])


def test_giving_up_frees_what_was_read(make_model):
    model = make_model(max_rows=16)

    def stop(stage, done, total):
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.embed(TEXTS, progress=stop)
    assert len(model.pass_runner._queue) == 0
    assert np.array_equal(model.embed(TEXTS[:1]), make_model().embed(TEXTS[:1]))


def test_a_closed_model_says_so(make_model):
    model = make_model()
    model.embed(TEXTS[:1])
    model.close()
    with pytest.raises(EngineClosedError):
        model.embed(TEXTS[:1])


def test_progress_counts(make_model):
    seen = []
    make_model(max_rows=512).embed(TEXTS, progress=lambda *a: seen.append(a))
    assert seen[-1] == ("embedding", 6, 6)


# -- ranking


def test_without_a_head_the_rank_is_the_cosine(make_model):
    model = make_model()
    scores = model.rerank("abc", ["abc", "xyz", "q"])
    a, b, c = (model.embed(t)[0].astype(float) for t in ("abc", "xyz", "q"))
    assert scores == pytest.approx([1.0, a @ b, a @ c], abs=1e-6)
    assert scores.dtype == np.float32
    assert model.rerank("abc", []).shape == (0,)
    assert np.array_equal(model.rerank("abc", ["q"]), scores[2:])


def test_a_head_of_one_class_gives_its_logit_and_of_two_a_probability(make_model):
    model = make_model()
    rng = np.random.default_rng(0)
    state = model.embed([model.encode("ab") + model.encode("cd")], "last", normalize=False)[0].astype(float)
    w = rng.standard_normal((2, 32)).astype(np.float32)
    model.tokenizer.eos = model.tokenizer.sep = None
    try:
        model.rank_head = RankHead(None, None, w[:1], np.array([0.5], np.float32))
        assert model.rerank("ab", ["cd"]) == pytest.approx([w[0] @ state + 0.5], rel=1e-5)
        model.rank_head = RankHead(None, None, w, None)
        p = np.exp(w @ state)
        assert model.rerank("ab", ["cd"]) == pytest.approx([p[0] / p.sum()], rel=1e-5)
        dense = rng.standard_normal((8, 32)).astype(np.float32)
        model.rank_head = RankHead(dense, np.ones(8, np.float32), w[:1, :8], None)
        assert model.rerank("ab", ["cd"]) == pytest.approx([w[0, :8] @ np.tanh(dense @ state + 1)], rel=1e-4)
    finally:
        del model.tokenizer.eos, model.tokenizer.sep


class Array:
    format = "F32"

    def __init__(self, *shape):
        self.rows, self.cols = shape if len(shape) == 2 else (1, *shape)
        self.values = np.arange(self.rows * self.cols, dtype=np.float32).reshape(self.rows, self.cols)

    def dequantize(self):
        return self.values


def test_a_head_is_taken_out_of_the_tensors_and_checked():
    tensors = {"cls.output.weight": Array(2, 32), "cls.output.bias": Array(2), "other": Array(3)}
    head = take_rank_head(tensors, 32)
    assert list(tensors) == ["other"]
    assert head.output.shape == (2, 32)
    assert head.output_bias.tolist() == [0, 1]
    assert take_rank_head(tensors, 32) is None
    with pytest.raises(TensorError, match=r"cls\.output\.weight is 2 x 31"):
        take_rank_head({"cls.output.weight": Array(2, 31)}, 32)
    with pytest.raises(TensorError, match=r"no cls\.output\.weight"):
        take_rank_head({"cls.bias": Array(2)}, 32)


# -- scores


def test_a_score_is_the_log_likelihood_of_each_token(make_model):
    from llamay_models import scoring

    model = make_model(max_rows=16)
    tokens = TEXTS[0]
    result = model.score(tokens, top=3)
    assert result.tokens == tuple(tokens)
    assert math.isnan(result.logprobs[0])
    assert np.array_equal(result.logprobs[1:], scoring.log_likelihoods(model, tokens))
    assert result.log_likelihood == pytest.approx(result.logprobs[1:].sum())
    assert result.top[0] == ()
    assert all(len(t) == 3 and t[0][1] >= t[1][1] for t in result.top[1:])
    after = model.score(tokens[40:], given=tokens[:40])
    assert np.array_equal(after.logprobs, result.logprobs[40:])
    assert len(model.score([5]).logprobs) == 1


def test_a_text_is_scored_after_the_beginning_token(make_model, monkeypatch):
    model = make_model()
    monkeypatch.setattr(model.tokenizer, "bos", 3)
    monkeypatch.setattr(model.tokenizer, "adds_bos", True)
    result = model.score("abc")
    assert np.array_equal(result.logprobs, model.score(model.encode("abc"), given=[3]).logprobs)
    assert not np.isnan(result.logprobs).any()


def test_scoring_nothing_says_so(make_model):
    with pytest.raises(PromptError, match="there is no text to score"):
        make_model().score("")
    with pytest.raises(PromptError, match="top must be a whole number from 0 to 1024, not -1"):
        make_model().score([5, 6], top=-1)


# -- what is known, and memory


def watch(model):
    """A list that gets the number of tokens of each step that texts are read in."""
    steps, run = [], model.pass_runner._compute

    def compute(runner, batch):
        steps.append(sum(len(rows.tokens) for _, rows in batch))
        run(runner, batch)

    model.pass_runner._compute = compute
    return steps


@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_what_was_computed_before_is_not_computed_again(make_model, name):
    model, plain = make_model(name, prefix_cache=1 << 24), make_model(name)
    steps = watch(model)
    text = TEXTS[3]
    first = model.embed([text], "last")
    assert sum(steps) == len(text)
    steps.clear()
    assert np.array_equal(model.embed([text], "last"), first)
    assert np.array_equal(first, plain.embed([text], "last"))
    assert sum(steps) < 20  # what is left of the last page
    steps.clear()
    scored = model.score([9, 20, 7], given=text)
    assert sum(steps) < 20 + 3
    assert np.array_equal(scored.logprobs, plain.score([9, 20, 7], given=text).logprobs)
    steps.clear()
    assert np.array_equal(model.embed([text], "mean"), plain.embed([text], "mean"))
    assert sum(steps) == len(text)  # every state is wanted
    # A text that is written finds it too, and it finds a text that was written.
    assert model.engine.submit(Request([*text, 9], Sampling(temperature=0), 4)).wait()
    assert model.engine.stats.cached_tokens >= len(text) // 16 * 16


def test_what_belongs_to_one_is_not_found_by_another(make_model):
    model = make_model(prefix_cache=1 << 24)
    counted = watch(model)
    text = TEXTS[3]
    for tenant, expected in (
        ("ann", len(text)),
        ("bob", len(text)),
        ("ann", 0),
        (None, len(text)),
        ("bob", 0),
    ):
        counted.clear()
        model.embed([text], "last", tenant=tenant)
        assert sum(counted) == expected if expected else sum(counted) < 20


def test_texts_wait_for_the_memory_of_streams_that_end(make_model, gate):
    page = sum(make_model().pool.page_bytes)
    model, plain = make_model(budget=12 * page), make_model()
    running = model.engine.submit(
        Request([9, 20] * 40, Sampling(seed=1), 30, constraint=gate, ignore_eos=True)
    )
    while not running.usage.completion_tokens:
        time.sleep(0.001)
    threading.Timer(0.3, gate.open).start()
    got = model.embed([TEXTS[3], TEXTS[0]], "mean")
    assert np.array_equal(got, plain.embed([TEXTS[3], TEXTS[0]], "mean"))
    assert running.wait(30)
    assert running.error is None
    model.pool.audit()
    assert model.pool.used_bytes == 0


def test_a_stream_gets_the_memory_that_texts_can_do_without(make_model):
    page = sum(make_model().pool.page_bytes)
    model, plain = make_model(budget=12 * page, max_rows=16), make_model()
    expected = plain.engine.submit(Request([9, 20] * 40, Sampling(seed=1), 60, ignore_eos=True)).tokens
    results, vectors = [], []
    reading = threading.Thread(target=lambda: vectors.append(model.embed([TEXTS[3]] * 6, "mean")))
    reading.start()
    for _ in range(4):
        results.append(
            model.engine.submit(Request([9, 20] * 40, Sampling(seed=1), 60, ignore_eos=True)).tokens
        )
    reading.join(60)
    assert results == [expected] * 4
    assert np.array_equal(vectors[0], plain.embed([TEXTS[3]] * 6, "mean"))
    assert model.pool.used_bytes == 0


def test_documents_are_a_list(make_model):
    model = make_model()
    for wrong in ("abc", b"abc", None, 3):
        with pytest.raises(PromptError, match="documents must be a list of texts"):
            model.rerank("ab", wrong)
    assert np.array_equal(model.rerank("ab", np.array(["cd", "e"])), model.rerank("ab", ["cd", "e"]))
    assert len(model.rerank("ab", [])) == 0


def test_progress_may_embed_itself(make_model):
    model = make_model("qwen3")
    plain = model.embed([[9, 9, 12], [10, 11]])
    inner = []

    def progress(*_):
        inner.append(model.embed([[10, 11]]))

    assert (model.embed([[9, 9, 12], [10, 11]], progress=progress) == plain).all()
    assert all((each == plain[1:]).all() for each in inner)
