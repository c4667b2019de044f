"""Reading beside writing is bounded by what steps have been seen to take."""

from llamay_models.engine._pace import Pace


def test_alone_a_prompt_gets_every_row():
    assert Pace(512).budget(0) == 512


def test_beside_writers_a_step_stays_within_its_bound():
    pace = Pace(512, stall=3.0)
    for _ in range(50):
        pace.observe(0.010, writing=4, reading=0)
        pace.observe(0.010 + 64 * 0.0002, writing=4, reading=64)
    # 20 ms are left for rows of 0.2 ms each.
    assert 84 <= pace.budget(4) <= 100


def test_a_slow_machine_still_reads_something():
    pace = Pace(512)
    pace.observe(0.001, writing=1, reading=0)
    pace.observe(10.0, writing=1, reading=64)
    assert pace.budget(1) == 16


def test_writers_leave_no_more_than_there_is():
    pace = Pace(64)
    pace.observe(1.0, writing=1, reading=0)
    pace.observe(1.001, writing=1, reading=64)
    assert pace.budget(60) == 4


def test_before_anything_is_known_it_is_careful():
    assert Pace(512).budget(1) == 64
