"""Memory, admission and time are shared: waiting requests are served, preempted texts computed again, bit for bit."""

import gc
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import llamay_kv
from llamay_models.engine import Request, Sampling
from llamay_models.engine.scheduling.waiting_queue import AGING, WaitingQueue
from llamay_models.engine.state.page_demand import PageDemand
from llamay_models.errors import OutOfMemoryError, QueueFullError

GREEDY = Sampling(temperature=0)


def prompt_of(n, seed=0):
    return [5 + (i * 7 + seed * 13 + i * i) % 50 for i in range(n)]


def together(model, *requests):
    return model.engine.call(lambda: [model.engine.submit(r) for r in requests])


def pages(model):
    return sum(model.pool.page_bytes)


class TestMemory:
    def test_requests_wait_for_it_instead_of_failing(self, make_model):
        plain = make_model()
        prompts = [prompt_of(60, i) for i in range(8)]
        expected = [plain.engine.submit(Request(p, GREEDY, 20, ignore_eos=True)).tokens for p in prompts]
        model = make_model(budget=8 * pages(plain))  # six pages each
        running = together(model, *(Request(p, GREEDY, 20, ignore_eos=True) for p in prompts))
        assert [g.tokens for g in running] == expected
        assert model.pool.used_bytes == 0
        assert model.engine.stats.failed == 0

    def test_who_grows_into_nothing_waits_and_goes_on_exactly(self, make_model):
        plain = make_model()
        requests = [
            Request(prompt_of(10, i), Sampling(seed=i, logprobs=1), 100, ignore_eos=True) for i in range(4)
        ]
        expected = [plain.engine.submit(r).scores for r in requests]
        model = make_model(budget=12 * pages(plain))  # each begins with one page and ends with seven
        running = together(model, *requests)
        assert [g.scores for g in running] == expected
        assert model.engine.stats.preempted > 0
        assert model.pool.used_bytes == 0

    def test_a_context_that_was_preempted_is_what_it_was(self, make_model):
        plain = make_model()
        model = make_model(budget=12 * pages(plain))
        contexts = [model.context(prompt_of(10, i)) for i in range(4)]
        running = model.engine.call(
            lambda: [c.generate(GREEDY, max_tokens=100, ignore_eos=True) for c in contexts]
        )
        done = [g.wait(60) for g in running]
        assert all(done)
        for i, (context, generation) in enumerate(zip(contexts, running, strict=True)):
            if generation.finish_reason != "length":
                assert isinstance(generation.error, OutOfMemoryError)  # the finished ones hold their pages
                continue
            expected = plain.context(prompt_of(10, i)).generate(GREEDY, max_tokens=100, ignore_eos=True)
            assert generation.tokens == expected.tokens
            context.close()
        assert model.engine.stats.preempted > 0

    def test_where_pages_spill_nothing_is_computed_twice_and_idle_contexts_make_room(
        self, make_model, tmp_path
    ):
        plain = make_model()
        model = make_model(budget=12 * pages(plain), spill=llamay_kv.Spill(tmp_path, 1 << 26, 0))
        idle = [
            model.context(prompt_of(60, 20 + i)) for i in range(6)
        ]  # four pages each, twice what there is
        requests = [
            Request(prompt_of(10, i), Sampling(seed=i, logprobs=1), 100, ignore_eos=True) for i in range(4)
        ]
        running = together(model, *requests)
        assert [g.scores for g in running] == [plain.engine.submit(r).scores for r in requests]
        stats = model.engine.stats
        assert stats.preempted > 0
        assert stats.recomputed_tokens == stats.failed == 0
        for i, context in enumerate(idle):
            expected = plain.context(prompt_of(60, 20 + i)).generate(GREEDY, max_tokens=5).tokens
            assert context.generate(GREEDY, max_tokens=5).tokens == expected
            context.close()
        assert model.pool.used_bytes == 0

    def test_what_can_never_fit_is_an_error_and_nobody_waits_for_it(self, make_model):
        plain = make_model()
        model = make_model(budget=4 * pages(plain))
        small, large, after = together(
            model,
            Request(prompt_of(10), GREEDY, 20, ignore_eos=True),
            Request(prompt_of(100), GREEDY, 20),
            Request(prompt_of(10), GREEDY, 20, ignore_eos=True),
        )
        with pytest.raises(OutOfMemoryError, match="no K/V memory is left"):
            list(large)
        assert small.tokens == after.tokens

    @pytest.mark.parametrize(("name", "keys"), [("llama", {}), ("gemma3", {"attention.sliding_window": 20})])
    def test_what_is_needed_is_what_is_taken(self, make_model, name, keys):
        model = make_model(name, **keys)
        need = PageDemand(model.pool, 64)
        for n in (1, 16, 17, 100, 200):
            before = model.pool.used_bytes
            context = model.context(prompt_of(n))
            taken = model.pool.used_bytes - before
            assert taken <= need(0, n)
            assert name == "gemma3" or taken == need(0, n)
            context.close()


class TestQueue:
    def test_is_bounded(self, make_model, gate):
        model = make_model(max_sequences=1, max_queue=3)
        first = model.engine.submit(Request(prompt_of(5), GREEDY, 5, constraint=gate, ignore_eos=True))
        next(iter(first))
        waiting = [model.engine.submit(Request(prompt_of(5), GREEDY, 1)) for _ in range(3)]
        with pytest.raises(QueueFullError, match="3 requests wait for this model already"):
            model.engine.submit(Request(prompt_of(5), GREEDY, 1))
        gate.open()
        assert all(g.wait(10) for g in [first, *waiting])
        assert model.engine.stats.refused == 1
        assert model.engine.submit(Request(prompt_of(5), GREEDY, 1)).wait(10)

    def test_higher_priority_comes_first(self, make_model, gate):
        model = make_model(max_sequences=1)
        first = model.engine.submit(Request(prompt_of(5), GREEDY, 5, constraint=gate, ignore_eos=True))
        next(iter(first))
        # The engine's thread stands at the gate: all come before it looks again.
        low = model.engine.submit(Request(prompt_of(5), GREEDY, 1))
        high = model.engine.submit(Request(prompt_of(5), GREEDY, 1, priority=2))
        gate.open()
        assert low.wait(10)
        assert high.wait(10)
        assert high._channel.first < low._channel.first

    def test_a_tenant_that_asks_for_much_does_not_keep_others_waiting(self, make_model, gate):
        model = make_model(max_sequences=1)
        first = model.engine.submit(Request(prompt_of(5), GREEDY, 5, constraint=gate, ignore_eos=True))
        next(iter(first))
        many = [Request(prompt_of(30), GREEDY, 5, ignore_eos=True, tenant="ann") for _ in range(20)]
        many.append(Request(prompt_of(5), GREEDY, 5, ignore_eos=True, tenant="bob"))
        *anns, bob = [model.engine.submit(r) for r in many]
        gate.open()
        assert all(g.wait(30) for g in [*anns, bob])
        assert sum(a._channel.first < bob._channel.first for a in anns) <= 1


class Waiter:
    def __init__(self, tenant="", priority=0, submitted=0.0, order=0):
        self.state = type("State", (), {"tenant": tenant})
        self.priority, self.order = priority, order
        self.channel = type("Channel", (), {"submitted": submitted})


def drain(queue, now):
    out = []
    while len(queue):
        out.append(queue.peek(now))
        queue.pop(out[-1], now)
    return out


def nobody():
    return set()


def test_a_low_priority_is_served_in_the_end():
    queue = WaitingQueue()
    low = Waiter(priority=0, submitted=0.0)
    queue.push(low, nobody)
    served, now = [], 0.0
    while low not in served:
        queue.push(Waiter(priority=3, submitted=now, order=len(served) + 1), nobody)
        served.append(queue.peek(now))
        queue.pop(served[-1], now)
        now += 1.0
        assert now < 5 * AGING
    assert now > 2 * AGING


def test_a_line_that_is_served_does_not_age():
    queue = WaitingQueue()
    for i in range(100):
        queue.push(Waiter("ann", submitted=0.0, order=i), nobody)
    for i in range(5):
        queue.pop(queue.peek(100.0 + i), 100.0 + i)
        queue.count_served("ann", 10)
    bob = Waiter("bob", submitted=105.0, order=200)
    queue.push(bob, lambda: {"ann"})
    queue.count_served("ann", 1)
    assert queue.peek(106.0) is bob


def test_time_away_is_no_credit():
    queue = WaitingQueue()
    queue.push(Waiter("ann"), nobody)
    queue.count_served("ann", 1000)
    queue.push(Waiter("bob"), nobody)
    assert queue.served_rows("bob") == queue.served_rows("ann") == 1000


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(-2, 2), st.floats(0, 100)), min_size=1, max_size=30
    )
)
def test_everybody_is_served_once_and_a_line_in_its_order(entries):
    queue, waiters = WaitingQueue(), []
    for i, (tenant, priority, submitted) in enumerate(entries):
        waiters.append(Waiter(tenant, priority, submitted, i))
        queue.push(waiters[-1], nobody)
    out = drain(queue, 200.0)
    assert sorted(w.order for w in out) == list(range(len(entries)))
    for key in {(w.state.tenant, w.priority) for w in out}:
        line = [w.order for w in out if (w.state.tenant, w.priority) == key]
        assert line == sorted(line)
    assert len(queue) == 0


class TestTime:
    def test_up_while_writing(self, make_model, gate):
        model = make_model()
        generation = model.engine.submit(
            Request(prompt_of(5), GREEDY, constraint=gate, ignore_eos=True, timeout=1.0)
        )
        pieces = iter(generation)
        first = next(pieces)
        time.sleep(1.1)
        gate.open()
        assert generation.wait(10)
        assert generation.finish_reason == "timeout"
        assert generation.error is None
        assert generation.text.startswith(first.text)
        assert model.pool.used_bytes == 0
        assert model.engine.stats.timed_out == 1

    def test_up_in_the_queue(self, make_model, gate):
        model = make_model(max_sequences=1)
        first = model.engine.submit(Request(prompt_of(5), GREEDY, 5, constraint=gate, ignore_eos=True))
        next(iter(first))
        second = model.engine.submit(Request(prompt_of(5), GREEDY, 5, timeout=0.0))
        gate.open()
        assert second.wait(10)
        assert (second.finish_reason, second.tokens) == ("timeout", ())
        assert len(first.tokens) == 5


def test_equal_prompts_that_come_together_are_read_once(make_model):
    model = make_model(prefix_cache=1 << 20, max_rows=32)
    running = together(
        model, *(Request(prompt_of(100), Sampling(seed=i), 5, ignore_eos=True) for i in range(6))
    )
    assert all(g.wait(30) for g in running)
    assert model.engine.stats.prompt_tokens < 100 + 5 * 16 + 6
    plain = make_model()
    for i, g in enumerate(running):
        assert (
            g.tokens
            == plain.engine.submit(Request(prompt_of(100), Sampling(seed=i), 5, ignore_eos=True)).tokens
        )


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_pressure_gives_every_request_what_it_gets_alone(make_model, data):
    """Few pages, few admitted sequences, many tenants: every text is whole, and nothing is left behind."""
    name, keys = data.draw(
        st.sampled_from([("llama", {}), ("gemma3", {"attention.sliding_window": 20}), ("qwen3", {})])
    )
    plain = make_model(name, **keys)
    model = make_model(
        name,
        budget=data.draw(st.integers(9, 24)) * pages(plain),
        max_sequences=data.draw(st.integers(1, 8)),
        max_rows=data.draw(st.sampled_from([16, 64])),
        prefix_cache=data.draw(st.sampled_from([0, 1 << 20])),
        speculation=data.draw(st.booleans()),
        **keys,
    )
    requests = [
        Request(
            prompt_of(data.draw(st.integers(1, 80)), data.draw(st.integers(0, 3))),
            Sampling(seed=i, temperature=data.draw(st.sampled_from([0.0, 1.0])), logprobs=1),
            data.draw(st.integers(1, 40)),
            ignore_eos=True,
            tenant=data.draw(st.sampled_from(["", "ann", "bob"])),
            priority=data.draw(st.integers(-1, 1)),
        )
        for i in range(data.draw(st.integers(1, 10)))
    ]
    running = together(model, *requests)
    for request, generation in zip(requests, running, strict=True):
        assert generation.scores == plain.engine.submit(request).scores
        assert generation.finish_reason == "length"
    if model.engine.prefixes is not None:
        model.engine.prefixes.tree.clear()
    model.pool.audit()
    assert model.pool.used_bytes == 0
    del running
    gc.collect()
    model.close()
    plain.close()
