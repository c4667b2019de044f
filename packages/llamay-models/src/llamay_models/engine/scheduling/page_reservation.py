"""`PageReservation`: reserves the pages of a batch, where necessary by preempting less important sequences."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import llamay_kv as kv
from llamay_models.engine.decoding.sequence import EngineSequence
from llamay_models.engine.scheduling.admission import Admission
from llamay_models.engine.scheduling.batch_entry import BatchEntry
from llamay_models.engine.scheduling.finishing import Finisher
from llamay_models.errors import ContextError, LlamayError, OutOfMemoryError


class PageReservation:
    """Reserves pages for entries. Belongs to the engine's thread.

    `page_lenders` give back pages that are not needed; each returns whether it gave any.
    """

    def __init__(
        self, admission: Admission, finisher: Finisher, page_lenders: Iterable[Callable[[], bool]]
    ) -> None:
        self._admission = admission
        self._finisher = finisher
        self._page_lenders = page_lenders

    def reserve(self, entry: BatchEntry, batch: list[BatchEntry]) -> bool:
        """Reserve the pages of an entry beside those of `batch`. Return False if its sequence is preempted or ended."""
        sequence = entry.sequence
        while True:
            try:
                entry.reserve()
                return True
            except kv.PagesLostError as error:
                self._finisher.end(sequence, LlamayError(f"K/V of this text cannot be read back: {error}"))
                return False
            except ContextError as error:
                self._finisher.end(sequence, error)
                return False
            except kv.OutOfPagesError as error:
                if entry.drafts is not None:
                    entry.drafts = None
                elif entry.checkpoints is not None and not entry.skips_optional_states:
                    entry.skips_optional_states = True  # states that only save later computation
                elif not self._make_room(sequence, batch, error):
                    return False

    def _make_room(
        self, sequence: EngineSequence, batch: list[BatchEntry], error: kv.OutOfPagesError
    ) -> bool:
        """Preempt the least important sequence. Return False if that is this one, or if this one can never fit."""
        taken = {s.sequence for s in batch}
        others = [s for s in self._admission.running if s not in taken and not s.preempted and not s.finished]
        victim = max(others, key=lambda s: (-s.priority, s.order))
        if victim is sequence and not taken and len(others) == 1:
            if any(lend() for lend in self._page_lenders):
                return True
            self._finisher.end(sequence, OutOfMemoryError(f"no K/V memory is left for this text: {error}"))
            return False
        self._admission.preempt(victim)
        return victim is not sequence
