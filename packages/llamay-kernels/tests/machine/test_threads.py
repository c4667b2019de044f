"""The pool: it ends cleanly, costs nothing asleep, and does not survive a fork."""

import os
import subprocess
import sys
import time
import warnings

import numpy as np
import pytest
from plans import same_bits, weight

from llamay_kernels import Plan, Threads

RNG = np.random.default_rng(0)
SQUARE = weight(RNG.standard_normal((128, 128)))
PLAN = Plan(
    [("embed", (0,), (), (0,), {}), *(("linear", (i + 1,), (i,), (0,), {}) for i in range(20))],
    [128] * 21,
    [SQUARE],
    max_rows=8,
)


def run(threads: Threads, rows: int = 2) -> np.ndarray:
    n, out = np.arange(rows, dtype=np.int32), np.empty((rows, 128), np.float32)
    PLAN.run(n, n, [], [], n, out, threads)
    return out


@pytest.mark.parametrize("n", [0, 1025])
def test_impossible_sizes_are_refused(n):
    with pytest.raises(ValueError, match=f"a pool has 1 to 1024 threads, not {n}"):
        Threads(n)


def test_many_more_threads_than_cores_compute_the_same():
    expected = run(Threads(1))
    crowd = Threads(24, grain=0)
    assert (crowd.n, repr(crowd)) == (24, "Threads(24)")
    began = time.monotonic()
    for _ in range(20):
        assert same_bits(run(crowd), expected)
    assert time.monotonic() - began < 20  # hundreds of meetings; a pool that collapsed would take minutes


def test_pools_come_and_go():
    expected = run(Threads(1))
    for n in range(1, 40):
        threads = Threads(1 + n % 5, grain=0)
        if n % 3:
            assert same_bits(run(threads), expected)
        del threads


def test_an_idle_pool_burns_no_processor_time():
    threads = Threads(4, grain=0)
    run(threads)
    time.sleep(0.1)
    before = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - before < 0.05
    run(threads)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_gets_an_error_and_makes_its_own_pool():
    threads = Threads(3, grain=0)
    expected = run(threads)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # this test forks with threads on purpose
        child = os.fork()
    if child == 0:
        code = 1
        try:
            run(threads)
        except RuntimeError as error:
            if "did not survive it; make new ones in the child" in str(error) and same_bits(
                run(Threads(2, grain=0)), expected
            ):
                code = 0
        del threads
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert same_bits(run(threads), expected)


def test_leaving_python_with_a_pool_at_work_is_quiet():
    code = "import llamay_kernels as k; t = k.Threads(4); print(t)"
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (result.stdout, result.stderr) == ("Threads(4)\n", "")


def test_small_work_is_left_to_the_caller():
    """A step of a few thousand multiplications is over before another thread wakes up."""
    threads = Threads(2)
    assert threads.grain > 20 * 128 * 128
    assert same_bits(run(threads), run(Threads(1)))
