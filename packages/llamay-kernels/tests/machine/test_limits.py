"""The probes of the machine's limits."""

import time

import pytest

import llamay_kernels as lk


@pytest.mark.parametrize("n", [1, 2])
def test_limits_are_plausible_and_quick(n):
    threads = lk.Threads(n)
    began = time.monotonic()
    limits = lk.limits(threads)
    assert time.monotonic() - began < 15  # about one second, on a machine that does nothing else
    assert (limits.threads, limits.isa) == (n, lk.isa())
    assert 1e8 < limits.read_bandwidth < 1e13
    assert 1e8 < limits.int8_ops < 1e15
    assert f"threads={n}" in repr(limits)


def test_more_capable_sets_have_a_higher_peak():
    before, peaks = lk.isa(), {}
    try:
        for isa in (lk.runnable_isas()[0], "portable"):
            lk.use_isa(isa)
            peaks[isa] = lk.limits(lk.Threads(1)).int8_ops
    finally:
        lk.use_isa(before)
    if len(peaks) == 2:
        assert peaks[lk.runnable_isas()[0]] > 2 * peaks["portable"]
