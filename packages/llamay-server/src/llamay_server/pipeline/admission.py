"""Admission: how many generations may run and wait at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from llamay_server.engine.blocking import in_thread
from llamay_server.http.errors import ApiError
from llamay_server.http.refusals import from_engine

if TYPE_CHECKING:
    from llamay_server.engine.protocol import Progress
    from llamay_server.http.exchange import Exchange
    from llamay_server.observability.metrics import Metrics

T = TypeVar("T")


class AdmissionControl:
    """Counts the generations that wait for their first token and those that run, and refuses one too many."""

    def __init__(self, max_queue: int, max_streams: int, metrics: Metrics) -> None:
        """`max_queue` bounds waiting generations, `max_streams` waiting and running ones together (0: no bound)."""
        self.max_queue, self.max_streams, self.metrics = max_queue, max_streams, metrics
        self.waiting = self.running = 0

    def check(self, n: int) -> None:
        """Refuse `n` more generations where they would exceed a bound."""
        if self.waiting + n > self.max_queue:
            self.metrics.refused.labels("queue").inc()
            raise ApiError(
                "busy",
                f"The queue is full ({self.waiting} of {self.max_queue} requests wait); try again later.",
            )
        if self.max_streams and self.waiting + self.running + n > self.max_streams:
            self.metrics.refused.labels("streams").inc()
            raise ApiError("busy", f"{self.max_streams} generations run already; try again later.")

    def wait(self, n: int) -> None:
        """Count `n` more waiting generations, or fewer where `n` is negative."""
        self.waiting += n
        self.metrics.waiting.set(self.waiting)

    def run(self, n: int) -> None:
        """Count `n` more running generations, or fewer where `n` is negative."""
        self.running += n
        self.metrics.running.set(self.running)


async def run_on_texts(admission: AdmissionControl, exchange: Exchange, work: Callable[[Progress], T]) -> T:
    """Do blocking work on whole texts (embedding, scoring, ranking), admitted as one generation that runs.

    The work is cancelled when the client leaves. Exceptions of the engine become `ApiError`s.
    """
    admission.check(1)
    admission.run(1)
    exchange.phase = "prefill"
    try:
        return await in_thread(work)
    except (ApiError, OSError):
        raise
    except Exception as e:
        raise from_engine(e) from e
    finally:
        admission.run(-1)
