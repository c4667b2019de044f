"""A step that begins while its caller does something else, and the next step that follows by itself."""

import gc
import os
import threading
import time

import numpy as np
import pytest
from pages import FULL, Context, GroupSpec, LayerSpec
from plans import ATTENTION, same_bits, weight

from llamay_kernels import BegunRows, Brake, Plan, Sampler, Threads

RNG = np.random.default_rng(11)
SPEC = (GroupSpec((LayerSpec(0, 2, 8, 8),), FULL),)
TABLE, TO_KV, HEAD = (weight(RNG.standard_normal(shape)) for shape in ((40, 32), (16, 32), (40, 32)))
PLAN = Plan(
    [
        ("embed", (0,), (), (0,), {}),
        ("linear", (1,), (0,), (1,), {}),
        ("attention", (2,), (0, 1, 1), (), ATTENTION),
        ("select", (3,), (2,), (), {}),
        ("linear", (4,), (3,), (2,), {}),
    ],
    [32, 16, 32, 32, 40],
    [TABLE, TO_KV, HEAD],
    max_rows=16,
)
SAMPLERS = [Sampler(i, temperature=1.5) for i in range(3)]


def one_by_one(n: int, contexts: list[Context]) -> tuple[list[list[int]], list[np.ndarray]]:
    """Write n tokens after token i of each context, each step by itself."""
    threads, out = Threads(1), np.zeros((len(contexts), 40), np.float32)
    tokens, chosen, outs = list(range(len(contexts))), [], []
    for at in range(n):
        rows = [(c.reserve(1), [t], at, 1) for c, t in zip(contexts, tokens, strict=True)]
        draws = [(SAMPLERS[i], i, at + 1, None, None) for i in range(len(contexts))]
        _, tokens, errors = PLAN.run_rows(rows, out, threads, draws)
        assert not errors
        chosen.append(tokens)
        outs.append(out.copy())
        for c in contexts:
            c.commit(1)
    return chosen, outs


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("n_contexts", [1, 3])
def test_steps_that_follow_by_themselves_are_those_that_are_called_for(threads, n_contexts):
    n = 9
    expected, outs = one_by_one(n, ones := [Context(SPEC, seed=i) for i in range(n_contexts)])
    contexts, pool = [Context(SPEC, seed=i) for i in range(n_contexts)], Threads(threads, grain=0)
    out, brake = np.zeros((n_contexts, 40), np.float32), Brake()
    begun = PLAN.begin_rows([(c.reserve(n), [i], 0, 1) for i, c in enumerate(contexts)], out, pool)
    for at in range(n):
        draws = [(SAMPLERS[i], i, at + 1, None, None) for i in range(n_contexts)]
        time.sleep(0.001 * (at % 3))  # whether the others are through or have not begun
        seconds, tokens, errors, followed = begun.finish(draws, brake, [])
        assert tokens == expected[at]
        assert not errors
        assert seconds > 0
        assert followed == (at < n - 1)  # as long as positions are reserved
    assert same_bits(out, outs[-1])
    for one, other in zip(ones, contexts, strict=True):
        assert (one.arenas[0] == other.arenas[0]).all()


@pytest.fixture
def begin():
    """`begin()`: a step of one context with room for more rows; its pages stay until the test is over."""
    alive = []

    def begin(n: int = 4, threads: Threads | None = None) -> tuple[BegunRows, Context]:
        context, out = Context(SPEC), np.zeros((1, 40), np.float32)
        alive.append(context)
        rows = [(context.reserve(n), [0], 0, 1)]
        return PLAN.begin_rows(rows, out, threads or Threads(2, grain=0)), context

    return begin


FIRST = one_by_one(1, [Context(SPEC)])[0][0][0]
DRAW = (SAMPLERS[0], 0, 1, None, None)


@pytest.mark.parametrize(
    ("draws", "ends", "braked"),
    [
        ([DRAW], [], True),
        ([DRAW], [39, FIRST], False),
        ([], [], False),
        ([DRAW, DRAW], [], False),
        ([(SAMPLERS[0], 0, 1, None, np.zeros(2, np.uint32))], [], False),  # nothing can be drawn
    ],
)
def test_no_step_follows(begin, draws, ends, braked):
    begun, _ = begin()
    brake = Brake()
    brake.set(braked)
    assert begun.finish(draws, brake, ends)[3] is False
    with pytest.raises(RuntimeError, match="this step has ended"):
        begun.finish(draws)


def test_without_a_brake_no_step_follows(begin):
    assert begin()[0].finish([DRAW])[1:] == ([FIRST], {}, False)


def test_a_token_that_the_plan_has_not_ends_the_row_of_steps():
    small = Plan(
        [("embed", (0,), (), (0,), {}), ("linear", (1,), (0,), (1,), {})],
        [32, 40],
        [weight(RNG.standard_normal((3, 32))), HEAD],
        max_rows=4,
    )
    out, sampler = np.zeros((1, 40), np.float32), Sampler(0, logit_bias={30: 1000.0})
    context = Context(())
    begun = small.begin_rows([(context.reserve(4), [0], 0, 1)], out, Threads(2, grain=0))
    assert begun.finish([(sampler, 0, 1, None, None)], Brake(), [])[1:] == ([30], {}, False)


@pytest.mark.parametrize("how", ["leave", "drop"])
def test_a_step_that_is_left_frees_the_threads_and_what_was_committed_stays(begin, how):
    threads = Threads(2, grain=0)
    one_by_one(1, [one := Context(SPEC)])
    begun, context = begin(threads=threads)
    begun.finish([DRAW], Brake(), [])
    if how == "leave":
        begun.leave()
        begun.leave()
        with pytest.raises(RuntimeError, match="this step has ended"):
            begun.finish()
    del begun
    gc.collect()
    context.commit(1)
    again = np.zeros((1, 40), np.float32)
    other = np.zeros((1, 40), np.float32)
    PLAN.run_rows([(context.reserve(1), [5], 1, 1)], again, threads)
    PLAN.run_rows([(one.reserve(1), [5], 1, 1)], other, Threads(1))
    assert same_bits(again, other)


def test_jobs_of_others_wait_for_a_step_that_has_begun(begin):
    threads, out = Threads(2, grain=0), np.zeros((1, 40), np.float32)
    begun, _ = begin(threads=threads)
    done = threading.Event()

    def run():
        PLAN.run_rows([(Context(SPEC).reserve(1), [1], 0, 1)], out, threads)
        done.set()

    other = threading.Thread(target=run)
    other.start()
    assert not done.wait(0.05)
    begun.finish()
    assert done.wait(10)
    other.join()


def test_what_does_not_fit_is_refused_before_anything_begins():
    threads, out = Threads(2), np.zeros((1, 40), np.float32)
    context = Context(SPEC).reserve(1)
    before = context.arenas[0].copy()
    for rows, message in (([(context, [40], 0, 1)], "the vocabulary has 40"), ([], "1 to 16 rows, not 0")):
        with pytest.raises(ValueError, match=message):
            PLAN.begin_rows(rows, out, threads)
    with pytest.raises(ValueError, match="out is 0 x 40"):
        PLAN.begin_rows([(context, [0], 0, 1)], out[:0], threads)
    assert (context.arenas[0] == before).all()
    PLAN.run_rows([(context, [0], 0, 1)], out, threads)  # the threads are free


def test_a_draw_that_does_not_fit_leaves_the_step_to_be_finished(begin):
    begun, _ = begin()
    with pytest.raises(ValueError, match="a draw is from output 1 but there are 1"):
        begun.finish([(SAMPLERS[0], 1, 1, None, None)])
    assert begun.finish([DRAW])[1] == [FIRST]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_can_let_go_of_a_step(begin):
    begun, _ = begin()
    child = os.fork()
    if not child:
        try:
            begun.finish()
        except RuntimeError as error:
            os._exit(0 if "before a fork" in str(error) else 1)
        os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert begun.finish([DRAW])[1] == [FIRST]


def test_one_thread_ends_a_step():
    """Two would both be the first thread of it."""
    table, square = weight(np.ones((4, 512))), weight(np.full((512, 512), 0.01))
    records = [("embed", (0,), (), (0,), {})]
    records += [("linear", (i + 1,), (i,), (1,), {}) for i in range(24)]
    plan = Plan(records, [512] * 25, [table, square], max_rows=64)
    threads, told = Threads(2, grain=0), []
    for _ in range(20):
        out = np.zeros((64, 512), np.float32)
        begun = plan.begin_rows([(None, [1] * 64, 0, 64)], out, threads)

        def end(begun=begun):
            try:
                begun.finish()
            except RuntimeError as error:
                told.append(str(error))

        others = [threading.Thread(target=end) for _ in range(3)]
        for other in others:
            other.start()
        for other in others:
            other.join()
        assert (out == out[0, 0]).all()
    assert len(told) == 40
    assert set(told) <= {"another thread is ending this step", "this step has ended"}
