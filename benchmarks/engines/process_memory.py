"""The memory of this process, as Linux counts it."""

from __future__ import annotations

import re
from pathlib import Path


def resident() -> int:
    """Return the resident bytes, mapped files included; 0 where the system does not report them."""
    return _status("VmRSS")


def peak() -> int:
    """Return the peak of the resident bytes; 0 where the system does not report it."""
    return _status("VmHWM")


def _status(key: str) -> int:
    try:
        found = re.search(rf"^{key}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) << 10 if found else 0
