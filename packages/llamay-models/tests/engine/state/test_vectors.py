"""Rows that are vectors are rows like others: the same bits as the tokens whose embeddings they are."""

import hashlib

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llamay_models.engine import Request, Sampling
from llamay_models.engine.state.vectors import encode_vectors
from llamay_models.errors import ContextError, PromptError, PromptTooLongError, SnapshotError
from llamay_models.plan import Inputs, Reference, Rows

GREEDY = Sampling(temperature=0)
NAMES = ("llama", "mamba2", "hybrid")
each = pytest.mark.parametrize("name", NAMES)


def prompt_of(n, seed=0):
    return [5 + (i * 7 + seed * 13 + i * i) % 50 for i in range(n)]


def go_on(context, n=12, sampling=GREEDY, **more):
    return context.generate(sampling, max_tokens=n, ignore_eos=True, **more).tokens


def digest(what):
    return hashlib.sha256(repr(what).encode()).digest()


@pytest.fixture
def table(small_model):
    """`table("llama", tokens)`: what tokens are in the rows of a model."""

    def rows(name, tokens, **keys):
        return small_model(name, **keys).tensors["token_embd.weight"].values[tokens]

    return rows


def both(model, table, name, before, inside, after):
    """A context of tokens, and one of the same rows in which those inside were handed in."""
    tokens = model.context([*before, *inside, *after])
    rows = model.context(before) if before else model.context()
    rows.extend_vectors(table(name, inside), digest(inside))
    if after:
        rows.extend(after)
    return tokens, rows


@each
def test_embeddings_handed_in_give_the_bits_of_the_tokens(make_model, table, name):
    before, inside, after = prompt_of(9), prompt_of(40, 1), prompt_of(20, 2)
    for most in (64, 16):
        tokens, rows = both(make_model(name, max_rows=most), table, name, before, inside, after)
        assert len(rows) == len(tokens) == 69
        assert np.array_equal(rows.logits, tokens.logits)
        ids = list(rows.tokens)
        assert ids[:9] == before
        assert ids[49:] == after
        assert len({*ids[9:49]}) == 40
        assert all(t < 0 for t in ids[9:49])
        sampling = Sampling(seed=3, temperature=1.2)
        assert go_on(rows.fork(), 20, sampling) == go_on(tokens.fork(), 20, sampling)
        for n in (69, 60, 50, 49, 48, 30, 10, 9, 3):
            assert np.array_equal(rows.fork().truncate(n).logits, tokens.fork().truncate(n).logits)
        assert rows.text == rows.model.decode([*before, *after])


@each
def test_rows_may_begin_and_end_with_them(make_model, table, name):
    model = make_model(name)
    inside = prompt_of(20, 1)
    tokens, rows = both(model, table, name, [], inside, [])
    assert np.array_equal(rows.logits, tokens.logits)
    assert go_on(rows) == go_on(tokens)


@each
def test_penalties_drafts_and_streams_take_no_vector_for_a_token(make_model, table, name):
    inside = [9, 10, 11, 12] * 6
    for model in (
        make_model(name),
        make_model(name, draft=make_model(name)),
        make_model(name, speculation=False),
    ):
        _, rows = both(model, table, name, [7, 8, 7, 8], inside, [7, 8, 7, 8])
        sampling = Sampling(seed=1, repeat_penalty=1.3, repeat_last_n=-1, dry_multiplier=0.8)
        generation = rows.generate(sampling, max_tokens=30, ignore_eos=True)
        assert len(generation.tokens) == 30
        assert generation.error is None
        assert all(t >= 0 for t in generation.tokens)


@each
def test_equal_digests_are_computed_once_and_others_never_mixed_up(make_model, table, name):
    model = make_model(name, prefix_cache=1 << 24)
    plain = make_model(name)
    before, after = prompt_of(9), prompt_of(20, 2)

    def computed(inside, named):
        rows = model.engine.stats.prompt_tokens
        context = model.context(before).extend_vectors(table(name, inside), digest(named)).extend(after)
        expected = plain.context([*before, *inside, *after])
        assert np.array_equal(context.logits, expected.logits)
        return model.engine.stats.prompt_tokens - rows

    assert computed(prompt_of(40, 1), "a cat") == 69
    few = 3 + 4  # the last row of each part, and what is behind the last whole page
    assert computed(prompt_of(40, 1), "a cat") <= few
    assert computed(prompt_of(40, 3), "a dog") >= 60
    assert computed(prompt_of(40, 3), "a dog") <= few
    rows = model.engine.stats.prompt_tokens
    with model.context([*before, *prompt_of(40, 1), *after]) as tokens:
        assert np.array_equal(tokens.logits, plain.context([*before, *prompt_of(40, 1), *after]).logits)
    assert model.engine.stats.prompt_tokens - rows >= 60  # tokens are no vectors, whatever these hold


@each
def test_a_text_whose_memory_is_taken_reads_its_vectors_again(make_model, table, name):
    plain = make_model(name, speculation=False)
    pages = sum(plain.pool.page_bytes)
    model = make_model(name, budget=16 * pages)

    def contexts(model):
        return [
            model.context(prompt_of(4 + i)).extend_vectors(table(name, prompt_of(20, i)), digest(i))
            for i in range(5)
        ]

    expected = [go_on(c, 50) for c in contexts(plain)]
    held = contexts(model)
    generations = [c.generate(GREEDY, max_tokens=50, ignore_eos=True) for c in held]
    done = [g for g in generations if g.wait() and g.error is None]
    assert [g.tokens for g in done] == [
        e for e, g in zip(expected, generations, strict=True) if g.error is None
    ]
    assert len(done) >= 2


@each
@pytest.mark.parametrize("page_tokens", [16, 64])
def test_snapshots_restore_the_rows_and_go_on(make_model, table, tmp_path, name, page_tokens):
    model = make_model(name)
    tokens, rows = both(model, table, name, prompt_of(9), prompt_of(40, 1), prompt_of(20, 2))
    rows.save(tmp_path / "it")
    again = make_model(name, page_tokens=page_tokens).restore(tmp_path / "it")
    assert np.array_equal(again.logits, rows.logits)
    for n in (69, 50, 30, 9):
        expected = go_on(tokens.fork().truncate(n), 9)
        assert go_on(again.fork().truncate(n), 9) == expected
    assert list(again.tokens[:9]) == prompt_of(9)


def test_a_snapshot_whose_vectors_are_others_is_refused(make_model, table, tmp_path):
    model = make_model()
    context = model.context(prompt_of(9)).extend_vectors(table("llama", prompt_of(5, 1)), digest("a"))
    context.save(tmp_path / "it")
    kv = context._state.kv
    line, _, raw = encode_vectors(context._state.vectors).partition(b"\n")
    for wrong in (
        b"",
        b"[]",
        b"{}\n",
        line,
        line + b"\n" + raw[:-4],
        line + b"\n" + raw + b"1234",
        line.replace(digest("a").hex().encode(), digest("b").hex().encode()) + b"\n" + raw,
        line.replace(b'"begin": 9', b'"begin": 8') + b"\n" + raw,
        line.replace(b'"shape": [5, 32]', b'"shape": [5, 1000000000000]') + b"\n" + raw,
    ):
        kv.save(tmp_path / "bad", identity=model.identity, side={"llamay.vectors": (1, wrong)})
        with pytest.raises(SnapshotError, match="its vectors are not valid"):
            model.restore(tmp_path / "bad")


def test_rows_whose_vectors_nobody_kept_can_go_on_but_not_back(make_model, table, tmp_path):
    model = make_model()
    context = model.context(prompt_of(9)).extend_vectors(table("llama", prompt_of(5, 1)), digest("a"))
    context.extend([7, 8])
    context._state.kv.save(tmp_path / "it", identity=model.identity, side={})
    again = model.restore(tmp_path / "it")
    assert np.array_equal(again.logits, context.logits)
    again.truncate(12)
    with pytest.raises(ContextError, match="row 11 of this context is a vector that is not here any more"):
        _ = again.logits


def test_positions_of_several_axes_turn_them_and_what_follows_goes_on(make_model, small_model, table):
    small, model = small_model("turned"), make_model("turned", prefix_cache=1 << 24)
    before, inside, after = prompt_of(5), prompt_of(12, 1), prompt_of(9, 2)
    grid = np.array([[5, 5 + i // 4, 5 + i % 4] for i in range(12)], np.int32)
    places = [[i] * 3 for i in range(5)] + grid.tolist() + [[9 + i] * 3 for i in range(9)]
    vectors = table("turned", inside)
    rows = Rows(
        [*before, *[0] * 12, *after],
        positions=places,
        vectors={5 + i: v for i, v in enumerate(vectors)},
    )
    expected = small.architecture.build(Reference(rows), small.config, small.weights()).array
    context = model.context(before).extend_vectors(vectors, digest("grid"), positions=grid).extend(after)
    np.testing.assert_allclose(context.logits, expected[-1], atol=1e-3)
    for n in (20, 17, 14, 6):
        np.testing.assert_allclose(context.fork().truncate(n).logits, expected[n - 1], atol=1e-3)
    # A part of the picture: the text goes on after the largest position that is left.
    cut = context.fork().truncate(13).extend([9])
    again = model.context(before).extend_vectors(vectors[:8], digest("grid"), positions=grid[:8]).extend([9])
    assert np.array_equal(cut.logits, again.logits)
    # The same picture elsewhere is other K/V, though its digest is the same.
    there = model.context(before).extend_vectors(vectors, digest("grid"), positions=grid + 1)
    here = model.context(before).extend_vectors(vectors, digest("grid"))
    assert len({c.logits.tobytes() for c in (context.fork().truncate(17), there, here)}) == 3
    tokens = model.context([*before, *inside])
    assert np.array_equal(here.logits, tokens.logits)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"vectors": np.zeros((3, 31))}, r"vectors must be of shape \(n, 32\), not \(3, 31\)"),
        ({"vectors": np.zeros((0, 32))}, r"vectors must be of shape \(n, 32\), not \(0, 32\)"),
        ({"vectors": np.zeros(32)}, r"vectors must be of shape \(n, 32\), not \(32,\)"),
        ({"vectors": np.full((1, 32), np.nan)}, "vectors must be finite numbers"),
        ({"digest": b"short"}, "must be 32 bytes"),
        ({"positions": [0, 1]}, r"positions of 3 vectors must be of shape \(3,\) or \(3, 1\)"),
        ({"positions": [0.5, 1, 2]}, "must be whole numbers"),
        ({"positions": [0, -1, 2]}, "must be from 0 to 536870911"),
    ],
)
def test_what_does_not_fit_is_told_and_changes_nothing(make_model, how, message):
    context = make_model().context([9])
    with pytest.raises(PromptError, match=message):
        context.extend_vectors(**{"vectors": np.zeros((3, 32)), "digest": digest(1), **how})
    assert len(context) == 1
    assert go_on(context)


def test_a_model_that_takes_none_and_a_context_that_is_full_say_so(make_model):
    model = make_model(ctx_size=10)
    context = model.context([9])
    with pytest.raises(PromptTooLongError, match="the prompt has 11 tokens but the context holds 10"):
        context.extend_vectors(np.zeros((10, 32)), digest(1))
    model.engine.reads = Inputs(tokens=61)
    with pytest.raises(PromptError, match="this model takes tokens only"):
        context.extend_vectors(np.zeros((3, 32)), digest(1))
    with pytest.raises(PromptError, match="token -2 is outside the vocabulary"):
        model.engine.submit(Request([5, -2]))


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_history_is_that_of_the_tokens(make_model, table, tmp_path_factory, data):
    draw = data.draw
    name = draw(st.sampled_from(NAMES))
    model = make_model(
        name,
        prefix_cache=draw(st.sampled_from([0, 1 << 24])),
        max_rows=draw(st.sampled_from([16, 64])),
    )
    plain = make_model(name, speculation=False)
    path = tmp_path_factory.mktemp("vectors") / "it"
    contexts = [(model.context([9]), [9])]  # each with the tokens that its rows are
    for _ in range(draw(st.integers(1, 9))):
        at = draw(st.integers(0, len(contexts) - 1))
        context, tokens = contexts[at]
        step = draw(
            st.sampled_from(["vectors", "vectors", "extend", "fork", "truncate", "generate", "restore"])
        )
        more = prompt_of(draw(st.integers(1, 30)), draw(st.integers(0, 2)))
        if step == "vectors" and len(tokens) < 120:
            context.extend_vectors(table(name, more), digest(more))
            tokens += more
        elif step == "extend" and len(tokens) < 120:
            context.extend(more)
            tokens += more
        elif step == "fork" and len(contexts) < 4:
            contexts.append((context.fork(), list(tokens)))
        elif step == "truncate":
            n = draw(st.integers(1, len(tokens)))
            context.truncate(n)
            del tokens[n:]
        elif step == "generate" and len(tokens) < 120:
            tokens += go_on(context, draw(st.integers(0, 12)), Sampling(seed=1))
        elif step == "restore":
            context.save(path)
            contexts[at] = (model.restore(path), tokens)
            context.close()
    for context, tokens in contexts:
        with plain.context(tokens) as expected:
            assert np.array_equal(context.logits, expected.logits)
        context.close()
    assert model.engine.prefixes is not None or model.pool.used_bytes == 0
    model.close()
    plain.close()
