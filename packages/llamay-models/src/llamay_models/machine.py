"""The part of the machine that this process may use: processors for `threads=None`, memory for `kv_budget=None`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path


def usable_processors(root: Path = Path("/")) -> int:
    """Return the cores that a process of this one's affinity and quota can keep busy, at least 1.

    Two hardware threads of one core share its arithmetic, so they count once. A container's quota (cgroup v2
    `cpu.max`, v1 `cpu.cfs_quota_us`, of this group and of those around it) counts in whole processors:
    threads that wait for each other are slowed as one by a quota that the last of them has used up. `root`
    is where /proc and /sys are.
    """
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
    return max(1, min([_cores(allowed, root), *_quotas(root)]))


def _cores(allowed: set[int], root: Path) -> int:
    cpus = root / "sys/devices/system/cpu"
    siblings = {_read(cpus / f"cpu{n}/topology/thread_siblings_list") or str(n) for n in allowed}
    return len(siblings)


def usable_memory(root: Path = Path("/")) -> int:
    """Return the bytes of memory that this process may use; 0 where they are not known.

    A container's limit (cgroup v2 `memory.max`, v1 `memory.limit_in_bytes`, of this group and of those around
    it) counts where it is below the memory of the machine: a process that exceeds it is killed. `root` as above.
    """
    try:
        installed = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        installed = 0
    limits = [limit for limit in _groups(root, "memory", _memory_v2, _memory_v1) if limit > 0]
    return min([*limits, installed] if installed > 0 else limits, default=0)


def _quotas(root: Path) -> Iterator[int]:
    return _groups(root, "cpu", _quota_v2, _quota_v1)


def _groups(
    root: Path, controller: str, v2: Callable[[Path], int | None], v1: Callable[[Path], int | None]
) -> Iterator[int]:
    """Yield every limit of one controller that this process is under."""
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            yield from _along(root / "sys/fs/cgroup", path, v2)
        elif controller in controllers.split(","):
            yield from _along(root / "sys/fs/cgroup" / controller, path, v1)


def _along(mount: Path, path: str, limit: Callable[[Path], int | None]) -> Iterator[int]:
    """Yield the limits of a group and of the groups around it, as far as this process can see them.

    In a container the mount may begin at the group itself, independent of its path outside.
    """
    parts = [part for part in path.split("/") if part not in ("", "..")]
    for n in range(len(parts), -1, -1):
        if (found := limit(mount.joinpath(*parts[:n]))) is not None:
            yield found


def _quota_v2(group: Path) -> int | None:
    quota, _, period = _read(group / "cpu.max").partition(" ")
    return _whole(quota, period)


def _quota_v1(group: Path) -> int | None:
    return _whole(_read(group / "cpu.cfs_quota_us"), _read(group / "cpu.cfs_period_us"))


def _memory_v2(group: Path) -> int | None:
    return _bytes(_read(group / "memory.max"))


def _memory_v1(group: Path) -> int | None:
    """Return the limit of version 1; without one, the file holds a number beyond any machine."""
    return _bytes(_read(group / "memory.limit_in_bytes"))


def _bytes(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def _whole(quota: str, period: str) -> int | None:
    """Return the limit in processors; None for `max`, -1, and numbers that cannot be read."""
    if not quota.strip().isdigit() or not period.strip().isdigit() or int(period) == 0:
        return None
    return max(1, int(quota) // int(period))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
