"""Encoders keep nothing and write nothing: a text is one step, the same bits in any company."""

import threading

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import llamay_models
from llamay_models import scoring
from llamay_models.embedding import RankHead, default_pooling
from llamay_models.engine import Request
from llamay_models.errors import EncoderOnlyError, LlamayError, ModelError, PromptError, PromptTooLongError
from llamay_models.plan import Reference, Rows

TEXTS = [[5 + i * k % 50 for i in range(n)] for k, n in ((11, 40), (7, 1), (3, 16), (13, 33), (17, 17))]
POOLING = {"none": 0, "mean": 1, "cls": 2, "last": 3}


@pytest.fixture
def encoder(make_model):
    """`encoder("mean", max_rows=64)`: a small BERT whose file asks for this pooling."""

    def make(pooling="mean", **options):
        return make_model("bert", pooling_type=POOLING[pooling], **options)

    return make


def states(small_model, tokens, types=None):
    """The reference's hidden states of a text: float64 (tokens, width)."""
    small = small_model("bert", pooling_type=0)
    rows = Rows(tokens, types=types)
    return small.architecture.build(Reference(rows), small.config, small.weights()).array


@pytest.mark.parametrize("asked", POOLING)
@pytest.mark.parametrize("pooling", [None, "mean", "cls", "last"])
def test_an_embedding_is_what_the_reference_pools(encoder, small_model, asked, pooling):
    model = encoder(asked)
    assert default_pooling(model) == ("mean" if asked == "none" else asked)
    got = model.embed(TEXTS, pooling, normalize=False)
    for vector, tokens in zip(got, TEXTS, strict=True):
        rows = states(small_model, tokens)
        expected = {"mean": rows.mean(0), "cls": rows[0], "last": rows[-1]}
        np.testing.assert_allclose(vector, expected[pooling or default_pooling(model)], atol=2e-3)
    np.testing.assert_allclose(np.linalg.norm(model.embed(TEXTS, pooling), axis=1), 1, atol=1e-6)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    texts=st.lists(st.lists(st.integers(5, 60), min_size=1, max_size=40), min_size=1, max_size=9),
    asked=st.sampled_from(sorted(POOLING)),
    pooling=st.sampled_from([None, "mean", "cls", "last"]),
)
def test_company_does_not_show(encoder, texts, asked, pooling):
    model = encoder(asked, max_rows=64)
    together = model.embed(texts, pooling)
    assert np.array_equal(together, [model.embed([t], pooling)[0] for t in texts])
    model.close()


def test_texts_of_many_callers_share_steps(encoder):
    model = encoder(max_rows=64)
    expected = model.embed(TEXTS)
    out = [None] * 6

    def one(i):
        out[i] = model.embed(TEXTS[i % 5 :] + TEXTS[: i % 5])

    threads = [threading.Thread(target=one, args=(i,)) for i in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for i, got in enumerate(out):
        assert np.array_equal(np.roll(got, i % 5, axis=0), expected)


def test_a_text_is_one_step_and_one_that_is_too_long_says_so(encoder):
    model = encoder(max_rows=32)
    assert model.embed([[9] * 32]).shape == (1, 32)
    with pytest.raises(
        PromptTooLongError,
        match="text 2 of 2: the text has 33 tokens, but this model reads a text in one step, which has 32 rows; "
        "shorten it or load the model with a larger max_rows",
    ) as error:
        model.embed([[9], [9] * 33])
    assert (error.value.tokens, error.value.limit) == (33, 32)
    with pytest.raises(PromptTooLongError, match="the prompt has 41 tokens but the context holds 40"):
        encoder(ctx_size=40).embed([[9] * 41])


def test_nothing_is_kept_and_no_memory_is_needed(encoder):
    model = encoder(prefix_cache=1 << 20)
    assert model.pool.budget_bytes == 0
    model.embed(TEXTS)
    assert model.pool.used_bytes == 0
    assert len(model.pass_runner._queue) == 0


@pytest.mark.parametrize(
    "ask",
    [
        lambda model: model.context([9]),
        lambda model: model.engine.submit(Request([9])),
        lambda model: model.restore("nothing"),
        lambda model: model.score([9, 8]),
        lambda model: list(scoring.logits(model, [9, 8])),
        lambda model: scoring.perplexity(model, [9] * 8, 4),
    ],
)
def test_it_writes_no_text_and_says_so(encoder, ask):
    model = encoder()
    assert not model.writes
    with pytest.raises(
        EncoderOnlyError, match="small bert is an encoder and writes no text: use embed or rerank"
    ):
        ask(model)
    assert issubclass(EncoderOnlyError, PromptError)
    assert model.embed([9]).shape == (1, 32)


def test_a_token_it_does_not_have_and_an_empty_text_are_refused(encoder):
    model = encoder()
    with pytest.raises(PromptError, match="token 61 is outside the vocabulary of 61"):
        model.embed([[61]])
    with pytest.raises(PromptError, match="text 2 of 2 is empty"):
        model.embed([[9], []])


def test_a_step_that_fails_ends_the_text_at_fault(encoder, monkeypatch):
    model = encoder()
    expected = model.embed(TEXTS)
    runner, plain = model.engine.runner, model.engine.runner.run

    def run(batch):
        if any(rows.tokens[0] == 60 for rows in batch):
            raise RuntimeError("no such luck")
        return plain(batch)

    monkeypatch.setattr(runner, "run", run)
    with pytest.raises(LlamayError, match="a step of the model failed: no such luck"):
        model.embed([*TEXTS, [60]])
    assert np.array_equal(model.embed(TEXTS), expected)


class Pairs:
    """A tokenizer with what BERT's has: a beginning, and one separator."""

    kind, bos, eos, sep, adds_bos, adds_eos, eog = "wpm", 1, 2, 2, True, True, frozenset({2})

    def encode(self, text, *, add_special=True, parse_special=False, continuation=False):
        ids = [ord(c) - 92 for c in text]
        return [1, *ids, 2] if add_special else ids


def test_a_rank_head_reads_the_pair_with_the_types_it_was_trained_with(encoder, small_model):
    rng = np.random.default_rng(0)
    head = RankHead(
        rng.normal(size=(32, 32)).astype("f4"), rng.normal(size=32).astype("f4"),
        rng.normal(size=(1, 32)).astype("f4"), None,
    )  # fmt: skip
    model = encoder("cls", tokenizer=Pairs())
    model.rank_head = head
    got = model.rerank("ab", ["cde", "f"])
    for found, document in zip(got, ("cde", "f"), strict=True):
        first, second = [1, *Pairs().encode("ab", add_special=False), 2], [
            *Pairs().encode(document, add_special=False), 2
        ]  # fmt: skip
        row = states(small_model, [*first, *second], [0] * len(first) + [1] * len(second))[0]
        assert found == pytest.approx(head.score(row), abs=2e-3)


class TestFiles:
    """Files of sentence encoders, from the bytes to the embedding."""

    @pytest.fixture
    def path(self, shared_data):
        return shared_data / "models" / "all-MiniLM-L6-v2-Q8_0.gguf"

    def test_a_sentence_encoder_loads_and_embeds(self, path, backend):
        with llamay_models.load(path, threads=1, backend=backend) as model:
            near, same, far = model.embed(["a cat sat", "a cat was sitting", "interest rates rose"])
            assert near @ same > 0.7 > 0.3 > near @ far
            assert model.rerank("cat", ["a cat sat", "interest rates rose"]).argmax() == 0
            alone = model.embed(["a cat sat"])
            assert np.array_equal(alone[0], near)
            with pytest.raises(EncoderOnlyError):
                model.context("a cat")

    def test_it_cannot_draft_for_another(self, path, shared_data, backend):
        with pytest.raises(ModelError, match="cannot draft for this model: it is an encoder"):
            llamay_models.load(
                shared_data / "models" / "stories260K.gguf", threads=1, backend=backend, draft=path
            )
        with pytest.raises(EncoderOnlyError):
            llamay_models.load(
                path, threads=1, backend=backend, draft=shared_data / "models" / "stories260K.gguf"
            )

    @pytest.mark.parametrize("name", ["bert-cross-encoder", "xlm-roberta-rerank"])
    def test_a_cross_encoder_scores_as_transformers_does(self, shared_data, name, backend):
        path = shared_data / "models" / f"{name}.gguf"
        with llamay_models.load(path, threads=1, backend=backend) as model:
            head = model.rank_head
            ids = [1, 297, 277, 456, 301, 8, 99, 100]
            assert head is not None
            found = model.rerank("a cat", ["a cat sat", "rates"])
            assert found.shape == (2,)
            assert np.isfinite(found).all()
            assert len(ids) == 8
