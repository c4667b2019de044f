"""What was computed before is not computed again, and nobody can tell from the text."""

import gc

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import llamay_kv
from llamay_models.engine import Request, Sampling

MEGABYTE = 1 << 20
GREEDY = Sampling(temperature=0)
NAMES = [("llama", {}), ("gemma3", {"attention.sliding_window": 20}), ("qwen3", {})]


def ask(model, prompt, n=10, sampling=GREEDY, **more):
    generation = model.engine.submit(Request(prompt, sampling, n, ignore_eos=True, **more))
    return generation.tokens, generation.usage.cached_tokens


def prompt_of(n, seed=0):
    return [5 + (i * 7 + seed * 13 + i * i) % 50 for i in range(n)]


@pytest.mark.parametrize(("name", "keys"), NAMES)
def test_a_next_turn_reads_only_what_is_new(make_model, name, keys):
    model, plain = make_model(name, prefix_cache=MEGABYTE, **keys), make_model(name, **keys)
    history, known = prompt_of(50), 0
    for turn in range(4):
        tokens, cached = ask(model, history)
        assert tokens == ask(plain, history)[0]
        assert cached == known
        known = len(history) + len(tokens) - 1  # the last token of a text is chosen, but not computed
        history = [*history, *tokens, *prompt_of(9, turn)]
    assert model.engine.stats.prompt_tokens == 50 + 3 * 10
    assert plain.engine.stats.prompt_tokens > 4 * 50


@pytest.mark.parametrize(("name", "keys"), NAMES)
def test_an_equal_prompt_computes_one_token(make_model, name, keys):
    model = make_model(name, prefix_cache=MEGABYTE, **keys)
    first, none = ask(model, prompt_of(100))
    again, cached = ask(model, prompt_of(100))
    assert first == again
    assert none == 0
    assert cached == 99


def test_pages_that_a_window_has_passed_are_kept_all_the_same(make_model):
    model = make_model("gemma3", prefix_cache=MEGABYTE, **{"attention.sliding_window": 20})
    ask(model, prompt_of(100), 60, speculate=False)
    assert ask(model, prompt_of(100))[1] == 99
    assert ask(model, [*prompt_of(50), *prompt_of(50, 1)])[1] == 50


def test_a_text_that_is_still_being_written_is_found(make_model, gate):
    model = make_model(prefix_cache=MEGABYTE)
    running = model.engine.submit(Request(prompt_of(40), GREEDY, 5, constraint=gate, ignore_eos=True))
    next(iter(running))
    gate.open()
    _, cached = ask(model, prompt_of(40))
    assert cached >= 32
    running.wait()


def test_what_was_cancelled_was_not_in_vain(make_model, gate):
    model = make_model(prefix_cache=MEGABYTE)
    running = model.engine.submit(Request(prompt_of(40), GREEDY, 5, constraint=gate, ignore_eos=True))
    next(iter(running))
    running.cancel()
    gate.open()
    running.wait()
    assert ask(model, prompt_of(40))[1] == 39


def test_tenants_do_not_find_each_others(make_model):
    model = make_model(prefix_cache=MEGABYTE)
    prompt = prompt_of(80)
    assert ask(model, prompt, tenant="ann")[1] == 0
    assert ask(model, prompt, tenant="bob")[1] == 0
    assert ask(model, prompt)[1] == 0
    assert ask(model, prompt, tenant="ann")[1] == 79


def test_the_beginning_may_be_everybodys(make_model):
    model = make_model(prefix_cache=MEGABYTE)
    prompt = prompt_of(80)
    ask(model, prompt, tenant="ann", shared=40)
    assert ask(model, prompt, tenant="bob")[1] == 32  # whole pages of it


def test_reuse_can_be_refused(make_model):
    model = make_model(prefix_cache=MEGABYTE)
    ask(model, prompt_of(80), reuse=False)
    assert ask(model, prompt_of(80), reuse=False)[1] == 0
    assert ask(model, prompt_of(80))[1] == 0
    assert ask(model, prompt_of(80), reuse=False)[1] == 0


def test_contexts_begin_with_what_is_known_and_add_to_it(make_model):
    model = make_model(prefix_cache=MEGABYTE)
    first = model.context(prompt_of(80))
    read = model.engine.stats.prompt_tokens
    second = model.context(prompt_of(80))
    assert model.engine.stats.prompt_tokens == read + 1
    assert np.array_equal(first.logits, second.logits)
    assert model.context(prompt_of(80), tenant="ann").tokens == second.tokens
    told = []
    model.context(prompt_of(80), progress=lambda stage, done, total: told.append((done, total)))
    assert told[-1] == (80, 80)


def test_what_is_marked_is_kept_from_others(make_model):
    model = make_model(prefix_cache=MEGABYTE)
    context = model.context(prompt_of(8))
    context._state.kv.marking = "secret"
    context.extend(prompt_of(80, 3))
    context.generate(GREEDY, max_tokens=3).wait()
    assert ask(model, prompt_of(8) + prompt_of(80, 3))[1] <= 8


def test_kept_prefixes_give_way_to_contexts(make_model):
    pages, size = 20, sum(make_model().pool.page_bytes)
    model = make_model(prefix_cache=64 * MEGABYTE, budget=pages * size)
    for seed in range(12):
        ask(model, prompt_of(100, seed))
    assert model.pool.used_bytes > (pages - 8) * size
    contexts = [model.context(prompt_of(100, 50 + i)) for i in range(2)]
    assert len(contexts[0]) == 100
    model.pool.audit()


def test_disk_prefixes_outlive_the_model(make_model, tmp_path):
    prompt = prompt_of(200)

    def disk():
        return llamay_kv.DiskCache(tmp_path, budget_bytes=MEGABYTE << 6, min_free_bytes=0)

    with disk() as cache:
        model = make_model(disk_cache=cache)
        model.engine.prefixes._executor.submit(lambda: None).result()  # until the weights are hashed
        first, cached = ask(model, prompt)
        assert cached == 0
        model.close()
    with disk() as cache:
        model = make_model(disk_cache=cache)
        model.engine.prefixes._executor.submit(lambda: None).result()
        model.engine._loop._prefill_budget._row_seconds = 1.0  # a second a token: the disk is faster
        again, cached = ask(model, prompt)
        assert (again, cached) == (first, 192)
        model.close()
    with disk() as cache:
        other = make_model(disk_cache=cache, seed=1)
        other.engine.prefixes._executor.submit(lambda: None).result()
        assert ask(other, prompt)[1] == 0
        other.close()


def test_cancelling_while_the_disk_is_read_frees_everything(make_model, tmp_path):
    with llamay_kv.DiskCache(tmp_path, budget_bytes=MEGABYTE << 6, min_free_bytes=0) as cache:
        model = make_model(disk_cache=cache)
        model.engine.prefixes._executor.submit(lambda: None).result()
        ask(model, prompt_of(200))
        cache.flush()
        generation = model.engine.submit(Request(prompt_of(200), GREEDY, 10))
        generation.cancel()
        assert generation.wait(10)
        assert model.engine.active == 0
        model.engine.prefixes.tree.clear()
        cache.flush()
        assert model.pool.used_bytes == 0
        model.close()


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_reuse_changes_no_token_and_no_score(make_model, data):
    """Any prompts that begin alike, in any order, under any pressure, against a model that keeps nothing."""
    name, keys = data.draw(st.sampled_from(NAMES))
    size = data.draw(st.integers(1, 40)) * 16384
    model = make_model(name, prefix_cache=size, max_rows=data.draw(st.sampled_from([16, 64])), **keys)
    plain = make_model(name, **keys)
    stems = [prompt_of(data.draw(st.integers(1, 90)), i) for i in range(3)]
    running = []
    for i in range(data.draw(st.integers(2, 8))):
        stem = data.draw(st.sampled_from(stems))
        prompt = stem[: data.draw(st.integers(1, len(stem)))] + prompt_of(data.draw(st.integers(0, 30)), 9)
        sampling = Sampling(seed=i, temperature=data.draw(st.sampled_from([0.0, 1.0])), logprobs=2)
        request = Request(
            prompt, sampling, data.draw(st.integers(1, 20)), tenant=data.draw(st.sampled_from(["", "a"]))
        )
        generation = model.engine.submit(request)
        running.append((request, generation))
        if data.draw(st.booleans()):
            stems.append([*prompt, *generation.tokens])
    for request, generation in running:
        expected = plain.engine.submit(request)
        assert generation.tokens == expected.tokens
        assert generation.scores == expected.scores
    model.pool.audit()
    del running
    gc.collect()
    model.close()
    plain.close()
    assert model.pool.used_bytes == 0
