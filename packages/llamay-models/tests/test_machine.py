"""Threads follow affinity, cores and quotas; memory the limits of the groups that the process is in."""

import os

import pytest

from llamay_models.machine import usable_memory, usable_processors


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Return a function that writes files of /proc and /sys; eight hardware threads are allowed."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)

    def write(**files):
        write_files(tmp_path, files)
        return usable_processors(tmp_path)

    return write


def write_files(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_without_a_word_from_the_system_every_allowed_one_counts(machine):
    assert machine() == 8


def test_affinity_is_respected(machine, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5})
    assert machine() == 2


def test_hardware_threads_of_one_core_count_once(machine):
    topology = "sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    assert machine(**{topology.format(n): f"{n % 4},{n % 4 + 4}\n" for n in range(8)}) == 4


V2, V1 = {"proc/self/cgroup": "0::/a/b\n"}, {"proc/self/cgroup": "4:memory:/x\n3:cpu,cpuacct:/a/b\n"}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({**V2, "sys/fs/cgroup/a/b/cpu.max": "300000 100000\n"}, 3),
        ({**V2, "sys/fs/cgroup/a/b/cpu.max": "max 100000\n"}, 8),
        (
            {**V2, "sys/fs/cgroup/a/cpu.max": "250000 100000\n", "sys/fs/cgroup/a/b/cpu.max": "max 100000\n"},
            2,
        ),
        ({**V2, "sys/fs/cgroup/cpu.max": "50000 100000\n"}, 1),
        ({**V2, "sys/fs/cgroup/cpu.max": "9900000 100000\n"}, 8),
        ({**V2, "sys/fs/cgroup/cpu.max": "nonsense\n"}, 8),
        (
            {
                **V1,
                "sys/fs/cgroup/cpu/a/b/cpu.cfs_quota_us": "200000\n",
                "sys/fs/cgroup/cpu/a/b/cpu.cfs_period_us": "100000\n",
            },
            2,
        ),
        (
            {
                **V1,
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            8,
        ),
        ({"proc/self/cgroup": "0::/../..\n", "sys/fs/cgroup/cpu.max": "400000 100000"}, 4),
    ],
)
def test_a_quota_of_the_group_or_one_around_it_is_respected(machine, files, expected):
    assert machine(**files) == expected


def test_this_machine_has_at_least_one():
    assert 1 <= usable_processors() <= (os.cpu_count() or 1)


INSTALLED = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, INSTALLED),
        ({**V2, "sys/fs/cgroup/a/b/memory.max": "1000000\n"}, 1_000_000),
        (
            {**V2, "sys/fs/cgroup/a/memory.max": "2000000\n", "sys/fs/cgroup/a/b/memory.max": "max\n"},
            2_000_000,
        ),
        ({**V2, "sys/fs/cgroup/memory.max": f"{1 << 60}\n"}, INSTALLED),
        ({**V2, "sys/fs/cgroup/memory.max": "nonsense\n"}, INSTALLED),
        ({**V1, "sys/fs/cgroup/memory/x/memory.limit_in_bytes": "3000000\n"}, 3_000_000),
        ({**V1, "sys/fs/cgroup/memory/x/memory.limit_in_bytes": "9223372036854771712\n"}, INSTALLED),
    ],
)
def test_memory_is_what_the_machine_has_or_what_a_group_allows(tmp_path, files, expected):
    write_files(tmp_path, files)

    assert usable_memory(tmp_path) == expected


def test_without_a_word_of_the_machine_a_groups_limit_is_what_there_is(tmp_path, monkeypatch):
    def unknown(name):
        raise ValueError(name)

    monkeypatch.setattr(os, "sysconf", unknown)
    assert usable_memory(tmp_path) == 0
    write_files(tmp_path, {**V2, "sys/fs/cgroup/memory.max": "5000000"})
    assert usable_memory(tmp_path) == 5_000_000
