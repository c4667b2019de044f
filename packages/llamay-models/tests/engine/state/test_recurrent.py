"""Contexts of recurrent layers are values like others: cut, forked, saved and found again, to the last bit.

The models are one of states only, one in which attention follows on states, and one with a window besides.
"""

import re

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llamay_models.engine import Request, Sampling

GREEDY = Sampling(temperature=0)
NAMES = [("mamba2", {}), ("hybrid", {}), ("hybrid", {"attention.sliding_window": 20})]
IDS = ["states", "hybrid", "windowed"]
each = pytest.mark.parametrize(("name", "keys"), NAMES, ids=IDS)


def prompt_of(n, seed=0):
    return [5 + (i * 7 + seed * 13 + i * i) % 50 for i in range(n)]


def go_on(context, n=12, sampling=GREEDY, **more):
    return context.generate(sampling, max_tokens=n, ignore_eos=True, **more).tokens


def same(context, plain):
    """Whether a context's logits are those of its tokens read at once, where nothing was known."""
    with plain.context(list(context.tokens)) as fresh:
        return np.array_equal(context.logits, fresh.logits)


@each
def test_reading_at_once_or_piece_by_piece_is_the_same_bit_for_bit(make_model, name, keys):
    model = make_model(name, **keys)
    tokens = prompt_of(150)
    whole, pieces = model.context(tokens), model.context(tokens[:1])
    for begin, end in ((1, 2), (2, 17), (17, 64), (64, 129), (129, 150)):
        pieces.extend(tokens[begin:end])
    assert np.array_equal(whole.logits, pieces.logits)


@each
def test_it_is_the_reference_s_text(make_model, small_model, name, keys):
    model, small = make_model(name, **keys), small_model(name, **keys)
    tokens = prompt_of(40)
    np.testing.assert_allclose(model.context(tokens).logits, small.reference(tokens)[-1], atol=1e-3)


@each
def test_truncating_goes_back_to_a_state_and_computes_what_lies_between(make_model, name, keys):
    model, plain = make_model(name, **keys), make_model(name, **keys)
    context = model.context(prompt_of(100))
    first = go_on(context, 30)
    go_on(context.extend(prompt_of(20, 3)), 20)
    assert {99, 129} <= set(context._state.kv.checkpoints)
    for n in (165, 130, 129, 100, 77, 64, 63, 1):
        twin = context.fork().truncate(n)
        assert len(twin) == n
        assert same(twin, plain)
    context.truncate(100)
    # No more than the last token is computed again, unless a window has dropped what it looks back on.
    assert len(context._state.pending) == (100 if keys else 1)
    assert go_on(context, 30) == first
    assert context.truncate(0).extend([9]).tokens == [9]


@each
@pytest.mark.parametrize("speculation", [False, True])
def test_a_step_that_keeps_less_than_it_computes_leaves_what_it_kept(make_model, name, keys, speculation):
    """Drafts that are wrong, steps that have begun, stop strings that are found late."""
    model = make_model(name, speculation=speculation, **keys)
    plain = make_model(name, speculation=False, **keys)
    prompt = [9, 10, 11, 12] * 8
    text = plain.engine.submit(Request(prompt, GREEDY, 60, ignore_eos=True)).text
    for stop in [text[i : i + 2] for i in range(3, 50, 7)]:
        context = model.context(prompt)
        context.generate(GREEDY, max_tokens=60, stop=stop, ignore_eos=True).wait()
        assert same(context, plain)
        context.close()
    if speculation:
        assert model.engine.stats.drafted_tokens > 0
    assert model.pool.used_bytes == 0


@each
def test_a_prompt_is_found_again_and_so_is_what_it_begins_with(make_model, name, keys):
    model, plain = make_model(name, prefix_cache=1 << 24, **keys), make_model(name, **keys)

    def cached(prompt):
        generation = model.engine.submit(Request(prompt, GREEDY, 8, ignore_eos=True))
        assert generation.tokens == plain.engine.submit(Request(prompt, GREEDY, 8, ignore_eos=True)).tokens
        return generation.usage.cached_tokens, [*prompt, *generation.tokens]

    system = prompt_of(41)
    none, turn = cached([*system, *prompt_of(30, 1)])
    assert none == 0
    assert cached([*system, *prompt_of(30, 1)])[0] == 70  # the same again: but for its last token
    assert cached([*turn, *prompt_of(12, 2)])[0] == len(turn) - 1  # the next turn
    assert cached([*system, *prompt_of(30, 3)])[0] == 0  # here nobody knew yet where they part
    assert cached([*system, *prompt_of(30, 4)])[0] == 41
    assert cached([*system, *prompt_of(30, 5)])[0] == 41


@each
def test_what_is_everybody_s_has_a_state_at_its_end(make_model, name, keys):
    model = make_model(name, prefix_cache=1 << 24, **keys)
    shared = prompt_of(48)

    def cached(tenant, rest):
        request = Request([*shared, *rest], GREEDY, 4, tenant=tenant, shared=48)
        generation = model.engine.submit(request)
        generation.wait()
        return generation.usage.cached_tokens

    assert cached("ann", prompt_of(20, 1)) == 0
    assert cached("bob", prompt_of(20, 2)) == 48
    assert cached("bob", prompt_of(20, 2)) == 67
    assert cached("ann", prompt_of(20, 2)) == 48  # what is bob's is nobody else's


@each
def test_equal_prompts_that_come_together_are_read_once(make_model, name, keys):
    model = make_model(name, prefix_cache=1 << 24, max_rows=32, speculation=False, **keys)
    plain = make_model(name, **keys)
    prompt = prompt_of(150)
    running = model.engine.call(
        lambda: [model.engine.submit(Request([*prompt, 5 + i], GREEDY, 6, ignore_eos=True)) for i in range(4)]
    )
    for i, generation in enumerate(running):
        alone = plain.engine.submit(Request([*prompt, 5 + i], GREEDY, 6, ignore_eos=True))
        assert generation.tokens == alone.tokens
    assert model.engine.stats.prompt_tokens < 2 * 151


@each
def test_a_text_whose_memory_is_taken_goes_on_to_the_same_bits(make_model, name, keys):
    plain = make_model(name, speculation=False, **keys)
    requests = [Request(prompt_of(30 + i, i), GREEDY, 60, ignore_eos=True) for i in range(6)]
    expected = [plain.engine.submit(r).tokens for r in requests]
    pages = sum(plain.pool.page_bytes)
    for prefix_cache in (0, 1 << 24):
        model = make_model(name, budget=16 * pages, prefix_cache=prefix_cache, **keys)
        assert [g.tokens for g in [model.engine.submit(r) for r in requests]] == expected
        assert prefix_cache or model.pool.used_bytes == 0


@each
def test_a_snapshot_restores_all_states_and_goes_on(make_model, tmp_path, name, keys):
    model, other = make_model(name, **keys), make_model(name, page_tokens=64, **keys)
    context = model.context(prompt_of(90))
    go_on(context, 20, Sampling(seed=9, temperature=1.5))
    context.save(tmp_path / "it")
    again = other.restore(tmp_path / "it")
    assert again._state.kv.checkpoints == context._state.kv.checkpoints
    assert np.array_equal(again.logits, context.logits)
    for n in (len(context), 100, 60):
        expected = go_on(context.fork().truncate(n), 15, None)
        assert go_on(again.fork().truncate(n), 15, None) == expected


@each
def test_scores_and_embeddings_are_those_of_other_company(make_model, name, keys):
    model, plain = make_model(name, prefix_cache=1 << 24, **keys), make_model(name, **keys)
    texts = [prompt_of(n, n) for n in (90, 1, 16, 130, 17)]
    for _ in range(2):
        for pooling in ("mean", "last", "cls"):
            together = model.embed(texts, pooling)
            assert np.array_equal(together, [plain.embed([t], pooling)[0] for t in texts])
        for text in texts:
            ours, theirs = (m.score(text, given=prompt_of(40)) for m in (model, plain))
            assert np.array_equal(ours.logprobs, theirs.logprobs)
    before = model.engine.stats.cached_tokens
    model.score([7], given=prompt_of(40))
    assert before == model.engine.stats.cached_tokens  # nothing that was asked of streams


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_history_leaves_what_the_tokens_alone_would_give(make_model, tmp_path_factory, data):
    """Random extends, forks, truncations, drafts, stop strings, snapshots and reuse: difference zero."""
    draw = data.draw
    name, keys = draw(st.sampled_from(NAMES))
    plain = make_model(name, speculation=False, **keys)
    model = make_model(
        name,
        prefix_cache=draw(st.sampled_from([0, 1 << 24])),
        max_rows=draw(st.sampled_from([16, 64])),
        budget=draw(st.sampled_from([40, 4000])) * sum(plain.pool.page_bytes),
        draft=make_model(name, seed=draw(st.integers(0, 1)), **keys) if draw(st.booleans()) else None,
        **keys,
    )
    path = tmp_path_factory.mktemp("recurrent") / "it"
    contexts = [model.context(prompt_of(3))]
    for _ in range(draw(st.integers(1, 10))):
        context = contexts[draw(st.integers(0, len(contexts) - 1))]
        step = draw(st.sampled_from(["extend", "fork", "truncate", "generate", "generate", "restore"]))
        if step == "extend" and len(context) < 150:
            context.extend(prompt_of(draw(st.integers(1, 70)), draw(st.integers(0, 2))))
        elif step == "fork" and len(contexts) < 4:
            contexts.append(context.fork())
        elif step == "truncate":
            context.truncate(draw(st.integers(1, len(context))))
        elif step == "generate" and len(context) < 150:
            sampling = Sampling(seed=draw(st.integers(0, 9)), temperature=draw(st.sampled_from([0.0, 1.0])))
            stop = draw(st.lists(st.text("abc", min_size=1, max_size=2), max_size=2))
            go_on(context, draw(st.integers(0, 40)), sampling, stop=stop)
        elif step == "restore":
            context.save(path)
            contexts.append(model.restore(path))
            contexts.pop(0).close() if len(contexts) > 4 else None
    for context in contexts:
        assert same(context, plain)
        context.close()
    assert model.engine.prefixes is not None or model.pool.used_bytes == 0
    model.close()
    plain.close()


@each
def test_a_budget_that_is_too_small_says_how_many_bytes_are_needed(make_model, name, keys):
    with pytest.raises(
        ValueError, match=r"^kv_budget must be at least \d+ bytes for this model, not 1$"
    ) as info:
        make_model(name, budget=1, **keys)
    least = int(re.search(r"\d+", str(info.value))[0])
    with pytest.raises(
        ValueError, match=f"^kv_budget must be at least {least} bytes for this model, not {least - 1}$"
    ):
        make_model(name, budget=least - 1, **keys)
    assert len(go_on(make_model(name, budget=least, **keys).context([5]), 1)) == 1
