"""Reading beside writing is bounded by what steps have been seen to take."""

import random

import pytest

from llamay_models.engine.scheduling.prefill_budget import PrefillBudget, Stall

FIFTY = Stall.parse("50ms")


def drive(budget, step, writing=4, begin=0, length=20_000, write=0.010):
    """Read a prompt on a machine on which a step takes `step(rows, depth)`; return what the steps took, and rows."""
    for _ in range(5):
        budget.observe(write, writing, 0)
    times, rows, depth = [], [], begin
    while depth < begin + length:
        n = budget.rows(writing, depth)
        seconds = write + step(n, depth)
        budget.observe(seconds, writing, n, depth + n // 2)
        times.append(seconds)
        rows.append(n)
        depth += n
    return times, rows


def test_alone_a_prompt_gets_every_row():
    assert PrefillBudget(512).rows(0) == 512


@pytest.mark.parametrize("row", [0.00001, 0.0002, 0.001])
def test_beside_writers_a_step_stays_within_its_bound(row):
    times, rows = drive(PrefillBudget(512, Stall(3.0)), lambda n, depth: n * row)
    settled = times[8:]
    assert max(settled) < 0.030 * 1.1
    assert min(settled) > 0.030 / 1.6 or max(rows) >= 508


def test_a_bound_in_seconds_holds_where_steps_are_short():
    times, _ = drive(PrefillBudget(512, Stall(3.0, 0.05)), lambda n, depth: n * 0.0002, write=0.001)
    assert 0.04 < max(times[8:]) < 0.055


def test_rows_that_cost_more_the_more_is_before_them_become_fewer():
    def step(n, depth):
        return depth * 2e-6 + n * (0.0002 + depth * 1e-7)

    times, rows = drive(PrefillBudget(512, FIFTY), step, length=12_000)
    assert max(times[8:]) < 0.05 * 1.6
    assert sum(t > 0.05 * 1.3 for t in times[8:]) < len(times) * 0.03
    assert rows[10] > 4 * rows[-1]
    # A prompt that begins deep inside is not read as if it were shallow.
    budget = PrefillBudget(512, FIFTY)
    drive(budget, step, length=12_000)
    again, _ = drive(budget, step, begin=11_000, length=100)
    assert again[0] < 0.05 * 1.6


def test_a_slow_machine_still_reads_something():
    budget = PrefillBudget(512)
    budget.observe(0.001, decode_rows=1, prefill_rows=0)
    for _ in range(20):
        budget.observe(10.0, decode_rows=1, prefill_rows=budget.rows(1))
    assert budget.rows(1) == 8


def test_writers_leave_no_more_than_there_is():
    budget = PrefillBudget(64)
    budget.observe(1.0, decode_rows=1, prefill_rows=0)
    budget.observe(1.001, decode_rows=1, prefill_rows=64)
    assert budget.rows(60) == 4


def test_before_anything_is_known_it_is_careful():
    assert PrefillBudget(512).rows(1) == 32


def test_what_a_row_more_costs_is_learned_from_steps_that_write():
    budget = PrefillBudget(512)
    assert budget.row_cost_share(4) == 0.5
    for i in range(100):
        rows = 1 + i % 8
        budget.observe(0.010 + rows * 0.0005, decode_rows=rows, prefill_rows=0)
    assert budget.row_cost_share(4) == pytest.approx(0.0005 * 4 / 0.012, rel=0.1)


def test_noise_neither_breaks_the_bound_for_long_nor_starves_the_prompt():
    rng = random.Random(0)
    times, rows = drive(
        PrefillBudget(512), lambda n, depth: n * 0.0003 * rng.choice((1.0, 1.0, 1.0, 0.8, 1.3)), write=0.005
    )
    settled = times[8:]
    assert sorted(settled)[int(len(settled) * 0.99)] <= 3 * 0.005
    assert sum(rows[8:]) / len(rows[8:]) > 0.6 * (1.5 * 0.005 / 0.0003)


@pytest.mark.parametrize(
    ("text", "step", "bound"),
    [("2.5x", 0.01, 0.025), ("50ms", 0.01, 0.05), ("0.2s", 0.01, 0.2), ("50 ms", 0.1, 0.1)],
)
def test_a_stall_is_times_or_time(text, step, bound):
    assert Stall.parse(text).bound(step) == pytest.approx(bound)


@pytest.mark.parametrize("text", ["", "2", "x", "-3x", "1x", "0.5x", "nan", "10m"])
def test_a_stall_that_says_nothing_is_refused(text):
    with pytest.raises(ValueError, match="max_stall is"):
        Stall.parse(text)


def test_where_a_step_may_not_take_longer_a_prompt_is_still_read():
    budget = PrefillBudget(512, Stall.parse("1ms"))
    for _ in range(5):
        budget.observe(0.010, decode_rows=4, prefill_rows=0)
    for _ in range(5):
        budget.observe(0.011, decode_rows=4, prefill_rows=8)
    assert budget.rows(4) == 8
