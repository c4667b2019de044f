"""`BackgroundCall`: a function call on a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Generic, Self, TypeVar

T = TypeVar("T")


class BackgroundCall(Generic[T]):
    """Calls a function on a thread of its own; leaving the context waits for the call.

    An executor of `concurrent.futures` does the same, but takes longer to import than the thread to run.
    """

    def __init__(self, function: Callable[[], T], name: str) -> None:
        self._function = function
        self._result: list[T] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def result(self) -> T:
        """Wait for the call, and return its result. Raises what the function raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._result[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.join()

    def _run(self) -> None:
        try:
            self._result.append(self._function())
        except BaseException as error:  # `result` raises it
            self._error = error
