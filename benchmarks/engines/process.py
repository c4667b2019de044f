"""The compared engines: each is a process of its own that measures on request."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PAUSE = 0.1
"""Seconds before each measurement, in which the other engines' idle threads fall asleep."""


def environment() -> dict[str, str]:
    """Return the environment of timed processes: a user's Python keeps its compiled modules."""
    return {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}


class EngineError(Exception):
    """An engine ended, or did not answer in time; the message has the last line of its stderr."""


class Engine:
    """A worker process: one JSON request a line in, one JSON answer a line out.

    `hello` is its first message, sent when the model is loaded. Raises EngineError where it ends instead, or is silent
    for `timeout` seconds.
    """

    def __init__(self, python: str, script: str, *arguments: str, timeout: float = 600) -> None:
        self.name = script
        self.timeout = timeout
        # A file and not a pipe, which would fill up while the engine works.
        self.errors = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115
        self.process = subprocess.Popen(
            [python, str(HERE / script), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env=environment(),
        )
        self._answers: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.hello = self._answer(timeout)

    def ask(self, what: str, *, timeout: float | None = None, **details: Any) -> dict[str, Any]:
        """Send a request, wait for its answer."""
        time.sleep(PAUSE)
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):  # the process has ended; _answer raises the reason
            self.process.stdin.write(json.dumps({"do": what, **details}) + "\n")
            self.process.stdin.flush()
        return self._answer(self.timeout if timeout is None else timeout)

    def close(self) -> None:
        """End the process; a second call does nothing."""
        if self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reader.join(5)
        if self.process.stdout is not None:
            self.process.stdout.close()
        self.errors.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            # An engine may write other lines to stdout.
            with contextlib.suppress(ValueError):
                if line.startswith("{"):
                    self._answers.put(json.loads(line))
        self._answers.put(None)

    def _answer(self, timeout: float) -> dict[str, Any]:
        try:
            answer = self._answers.get(timeout=timeout)
        except queue.Empty:
            self.process.kill()
            self.close()
            raise EngineError(f"{self.name} did not answer in {timeout:.0f} s") from None
        if answer is not None:
            return answer
        code = self.process.wait()
        self.errors.seek(0)
        words = self.errors.read().strip().splitlines() or ["no word"]
        # An assertion or an error says more than the trace that follows it.
        words += [w for w in words if "ASSERT" in w or "rror loading" in w or "failed to" in w][:1]
        self.close()
        raise EngineError(f"{self.name} ended with {code}: {words[-1]}")


def cold_start(
    python: str, script: str, *arguments: str, timeout: float = 600
) -> tuple[float, dict[str, Any]]:
    """Return seconds from starting a process to its first token, the model being in the page cache, and its words."""
    began = time.perf_counter()
    engine = Engine(python, script, *arguments, "--once", timeout=timeout)
    seconds = time.perf_counter() - began
    engine.close()
    return seconds, engine.hello
