"""A context is a value: what happens to one never shows in another, and nothing of it is lost."""

import threading

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llamay_models.engine import Sampling
from llamay_models.errors import ContextError, OutOfMemoryError, PromptError, PromptTooLongError

from ...architecture_names import DENSE as NAMES

GREEDY = Sampling(temperature=0)


def go_on(context, n=12, sampling=GREEDY):
    return context.generate(sampling, max_tokens=n, ignore_eos=True).tokens


@pytest.mark.parametrize("name", NAMES)
def test_reading_at_once_or_piece_by_piece_is_the_same_bit_for_bit(make_model, name):
    model = make_model(name)
    tokens = [5 + i * 7 % 50 for i in range(60)]
    whole = model.context(tokens)
    pieces = model.context(tokens[:1])
    for begin, end in ((1, 2), (2, 17), (17, 33), (33, 60)):
        pieces.extend(tokens[begin:end])
    assert np.array_equal(whole.logits, pieces.logits)
    assert list(pieces.tokens) == tokens


def test_generated_tokens_become_part_of_the_context(make_model):
    model = make_model()
    context = model.context([9, 9, 12])
    tokens = go_on(context)
    assert list(context.tokens) == [9, 9, 12, *tokens]
    assert len(context) == 15
    assert np.array_equal(context.logits, model.context([9, 9, 12, *tokens]).logits)


def test_generating_in_parts_is_generating_at_once(make_model):
    model = make_model()
    sampling = Sampling(seed=11, temperature=1.5)
    whole = go_on(model.context([9, 9, 12]), 30, sampling)
    context = model.context([9, 9, 12])
    parts = [*go_on(context, 1, sampling), *go_on(context, 11, sampling), *go_on(context, 18, sampling)]
    assert tuple(parts) == whole


def test_a_context_goes_on_as_it_sampled(make_model):
    model = make_model()
    whole = go_on(model.context([9]), 20, Sampling(seed=3, temperature=2.0))
    context = model.context([9])
    first = go_on(context, 8, Sampling(seed=3, temperature=2.0))
    assert (*first, *go_on(context, 12, None)) == whole
    assert context.sampling == Sampling(seed=3, temperature=2.0)


@pytest.mark.parametrize("name", NAMES)
def test_a_fork_continues_as_its_parent(make_model, name):
    model = make_model(name)
    parent = model.context([5 + i % 40 for i in range(37)])
    fork = parent.fork()
    assert np.array_equal(fork.logits, parent.logits)
    expected = go_on(model.context(parent.tokens), 25)
    assert go_on(fork, 25) == expected
    assert list(parent.tokens) == [5 + i % 40 for i in range(37)]
    assert go_on(parent, 25) == expected


def test_forks_allocate_nothing(make_model):
    model = make_model()
    context = model.context([9] * 100)
    before = model.pool.used_bytes
    forks = [*context.fork(50), context.fork()]
    assert model.pool.used_bytes == before
    for fork in forks:
        fork.close()
    context.close()
    assert model.pool.used_bytes == 0


def test_forks_of_one_seed_differ_and_can_be_repeated(make_model):
    model = make_model()
    sampling = Sampling(seed=5, temperature=3.0)
    texts = [[go_on(f, 12, sampling) for f in model.context([9]).fork(6)] for _ in range(2)]
    assert texts[0] == texts[1]
    assert len(set(texts[0])) == 6


def test_a_fork_of_a_fork_draws_as_its_parent(make_model):
    model = make_model()
    sampling = Sampling(seed=5, temperature=3.0)
    for fork in model.context([9]).fork(3):
        twin = fork.fork()
        assert go_on(twin, 12, sampling) == go_on(fork, 12, sampling)


def test_a_fork_of_a_context_at_work_has_the_tokens_so_far(make_model):
    model = make_model()
    context = model.context([9, 9, 12])
    expected = go_on(model.context([9, 9, 12]), 100)
    generation = context.generate(GREEDY, max_tokens=100, ignore_eos=True)
    forks = [context.fork() for _ in range(3)]
    assert generation.tokens == expected
    for fork in forks:
        so_far = list(fork.tokens)[3:]
        assert tuple(so_far) == expected[: len(so_far)]
        assert (*so_far, *go_on(fork, 100 - len(so_far))) == expected


def test_truncating_and_going_on_is_never_having_gone_there(make_model):
    model = make_model()
    context = model.context([9, 9, 12])
    logits = context.logits
    expected = go_on(context)
    context.truncate(3)
    assert np.array_equal(context.logits, logits)
    assert go_on(context) == expected
    context.truncate(3).truncate(0)
    assert len(context) == 0
    with pytest.raises(PromptError, match="the context is empty"):
        _ = context.logits
    with pytest.raises(PromptError, match="the context is empty"):
        context.generate()
    assert np.array_equal(context.extend([9, 9, 12]).logits, logits)


def test_truncating_beyond_the_window_says_so(make_model):
    context = make_model("gemma3").context([9] * 100)
    with pytest.raises(ContextError, match="cannot go back to 20 tokens"):
        context.truncate(20)
    assert len(context) == 100
    with pytest.raises(ContextError, match="cannot keep 101 tokens of a context of 100"):
        context.truncate(101)
    context.truncate(99)


def test_logits_are_read_only(make_model):
    logits = make_model().context([9]).logits
    assert logits.dtype == np.float32
    assert logits.shape == (61,)
    with pytest.raises(ValueError, match="read-only"):
        logits[0] = 0


def test_text_is_read_by_the_tokenizer(make_model):
    model = make_model()
    context = model.context("hello")
    assert context.text == "hello"
    context.extend("world")
    assert context.text == "helloworld"


class TestExtend:
    def test_too_much_leaves_it_as_it_was(self, make_model):
        context = make_model(ctx_size=40).context([9] * 30)
        with pytest.raises(PromptTooLongError, match="the prompt has 41 tokens but the context holds 40"):
            context.extend([9] * 11)
        assert len(context) == 30
        context.extend([9] * 10)

    def test_nothing_is_nothing(self, make_model):
        context = make_model().context([9])
        assert len(context.extend([]).extend("")) == 1

    def test_progress_counts_tokens(self, make_model):
        seen = []
        make_model(max_rows=16).context([9] * 70, progress=lambda *a: seen.append(a))
        assert seen[-1] == ("reading", 70, 70)
        assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)
        assert len(seen) >= 4

    def test_progress_that_raises_leaves_it_as_it_was(self, make_model):
        model = make_model("gemma3", max_rows=16)
        context = model.context([9, 9, 12])
        logits = context.logits

        def stop(stage, done, total):
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            context.extend([9] * 200, progress=stop)
        assert list(context.tokens) == [9, 9, 12]
        assert np.array_equal(context.logits, logits)
        assert go_on(context) == go_on(model.context([9, 9, 12]))

    def test_memory_that_runs_out_leaves_it_as_it_was(self, make_model):
        model = make_model(budget=3 * 16 * 1024)
        context = model.context([9] * 8)
        used = model.pool.used_bytes
        with pytest.raises(OutOfMemoryError):
            context.extend([9] * 200)
        assert len(context) == 8
        assert model.pool.used_bytes == used
        context.extend([9])


class TestClose:
    def test_gives_everything_back(self, make_model):
        model = make_model()
        with model.context([9] * 50) as context:
            fork = context.fork()
        assert model.pool.used_bytes > 0
        fork.close()
        fork.close()
        assert model.pool.used_bytes == 0

    def test_everything_afterwards_says_so(self, make_model):
        context = make_model().context([9])
        context.close()
        for use in (
            context.fork,
            context.generate,
            lambda: context.extend([9]),
            lambda: context.tokens,
            lambda: context.logits,
        ):
            with pytest.raises(ContextError, match="the context is closed"):
                use()

    def test_cancels_what_runs_on_it(self, make_model, gate):
        model = make_model()
        context = model.context([9])
        generation = context.generate(GREEDY, constraint=gate, ignore_eos=True)
        threading.Timer(0.05, gate.open).start()
        context.close()
        assert generation.finish_reason == "cancelled"
        assert model.pool.used_bytes == 0


def test_one_context_serves_one_thread_at_a_time(make_model):
    context, refused, done = make_model().context([9]), [], []

    def work():
        for _ in range(20):
            try:
                done.append(len(context.generate(GREEDY, max_tokens=2, ignore_eos=True).tokens))
            except ContextError:
                refused.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(done) + len(refused) == 80
    assert len(context) == 1 + 2 * len(done)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_history_leaves_what_the_tokens_alone_would_give(make_model, data):
    """Random extends, forks, truncations and generations:

    every context's logits are those of its tokens read at once.
    """
    model = make_model(data.draw(st.sampled_from(NAMES)), page_tokens=16)
    contexts = [model.context([7, 8, 9])]
    for _ in range(data.draw(st.integers(1, 10))):
        context = contexts[data.draw(st.integers(0, len(contexts) - 1))]
        step = data.draw(st.sampled_from(["extend", "fork", "truncate", "generate"]))
        if step == "extend" and len(context) < 150:
            context.extend(data.draw(st.lists(st.integers(1, 60), min_size=1, max_size=40)))
        elif step == "fork":
            contexts.append(context.fork())
        elif step == "truncate":
            try:
                context.truncate(data.draw(st.integers(max(1, len(context) - 12), len(context))))
            except ContextError:
                assert model.architecture == "gemma3"
        elif step == "generate" and len(context) < 150:
            go_on(context, data.draw(st.integers(0, 6)), Sampling(seed=data.draw(st.integers(0, 9))))
    for context in contexts:
        fresh = model.context(list(context.tokens))
        assert np.array_equal(context.logits, fresh.logits)
        fresh.close()
    for context in contexts:
        context.close()
    assert model.pool.used_bytes == 0
    model.close()
