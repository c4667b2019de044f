"""Ctrl-C that cannot be lost.

Python raises KeyboardInterrupt wherever it happens to be. Inside a destructor or the callback of a weak reference
the exception is printed and dropped, and the key did nothing. `Interrupts` also remembers the key, and code that is
about to wait calls `check`.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Self


class Interrupts:
    """While it is entered, every SIGINT raises KeyboardInterrupt, at the latest in the next `check`."""

    def __init__(self) -> None:
        self._pending = False
        self._before: signal.Handlers | object = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._remember)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)  # type: ignore[arg-type]
            self._before = None

    def check(self) -> None:
        """Raise KeyboardInterrupt if the key was pressed and not yet acknowledged."""
        if self._pending:
            self._pending = False
            raise KeyboardInterrupt

    def acknowledge(self) -> None:
        """Acknowledge the key: the exception was caught."""
        self._pending = False

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self._pending = True
        raise KeyboardInterrupt
