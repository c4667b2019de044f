"""How many processors this process may use: what `threads=None` means."""

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


def _quotas(root: Path) -> Iterator[int]:
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            yield from _along(root / "sys/fs/cgroup", path, _quota_v2)
        elif "cpu" in controllers.split(","):
            yield from _along(root / "sys/fs/cgroup/cpu", path, _quota_v1)


def _along(mount: Path, path: str, quota: Callable[[Path], int | None]) -> Iterator[int]:
    """Of a group and all groups around it, as far as this process can see them.

    In a container the mount may begin at the group itself, whatever its path outside is.
    """
    parts = [part for part in path.split("/") if part not in ("", "..")]
    for n in range(len(parts), -1, -1):
        if (found := quota(mount.joinpath(*parts[:n]))) is not None:
            yield found


def _quota_v2(group: Path) -> int | None:
    quota, _, period = _read(group / "cpu.max").partition(" ")
    return _whole(quota, period)


def _quota_v1(group: Path) -> int | None:
    return _whole(_read(group / "cpu.cfs_quota_us"), _read(group / "cpu.cfs_period_us"))


def _whole(quota: str, period: str) -> int | None:
    """`max`, -1, and what cannot be read are no limit."""
    if not quota.strip().isdigit() or not period.strip().isdigit() or int(period) == 0:
        return None
    return max(1, int(quota) // int(period))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
