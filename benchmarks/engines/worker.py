"""The common parts of all engine processes: their arguments, and the channel of their answers."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

_PR_SET_PDEATHSIG = 1


def arguments(*, variants: bool) -> argparse.Namespace:
    """Read the arguments of an engine process; `variants` where the engine has more than one way to compute."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--context", type=int, required=True)
    parser.add_argument("--once", action="store_true", help="one token, for the time of a cold start")
    if variants:
        parser.add_argument(
            "--variant", required=True, help="repacked or plain, with +plain-attention or without"
        )
        parser.add_argument("--parallel", type=int, default=1)
    options = parser.parse_args()
    if not options.once:
        end_with_parent()
    return options


def end_with_parent() -> None:
    """Have the system end this process when the parent process is gone, however it ended (Linux)."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def answers() -> Callable[[dict[str, Any]], None]:
    """Return a function that sends an answer; whatever else is written to stdout from now on is dropped.

    Engines log there as they like, from native code too.
    """
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)

    def say(answer: dict[str, Any]) -> None:
        print(json.dumps(answer), file=channel, flush=True)

    return say


def requests() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield requests, by name and details, until the parent closes the pipe."""
    for line in sys.stdin:
        request = json.loads(line)
        yield request.pop("do"), request


def wait() -> None:
    """Return when the parent closes the pipe."""
    sys.stdin.read()
