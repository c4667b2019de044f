"""`PendingCall`: a function that another thread runs, and whose caller waits for the result."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class PendingCall(Generic[T]):
    """A call of a function: one thread calls `run`, the other one `result`."""

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self._done = threading.Event()
        self._result: list[T] = []
        self._error: BaseException | None = None

    def run(self) -> None:
        """Call the function. Raises nothing: `result` raises the error."""
        try:
            self._result.append(self._function())
        except BaseException as error:
            self._error = error
        finally:
            self._done.set()

    def result(self) -> T:
        """Wait for the call, and return its result. Raises what the function raised."""
        self._done.wait()
        if self._error is not None:
            raise self._error
        return self._result[0]
