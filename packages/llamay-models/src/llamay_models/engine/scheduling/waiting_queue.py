"""`WaitingQueue`: the sequences that wait for admission, and their order."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator

from llamay_models.engine.decoding.sequence import EngineSequence

AGING = 10.0
"""Seconds without a turn that count as much as one step of priority."""


class WaitingQueue:
    """Sequences that wait, in lines by tenant and priority.

    Next is the line of the highest priority; among equals the one whose tenant was given the fewest rows
    (a fair queue of virtual time: Sheng et al., "Fairness in Serving Large Language Models", 2024); within
    a line, first come. A line that is passed over gains a step of priority every `AGING` seconds, so that
    no sequence waits for ever.
    """

    def __init__(self) -> None:
        self._lines: dict[tuple[str, int], deque[EngineSequence]] = {}
        self._turn: dict[tuple[str, int], float] = {}
        self._served: Counter[str] = Counter()

    @property
    def empty(self) -> bool:
        """Whether no sequence waits."""
        return not self._lines

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def __iter__(self) -> Iterator[EngineSequence]:
        for line in self._lines.values():
            yield from line

    def push(self, sequence: EngineSequence, running: Callable[[], set[str]], *, first: bool = False) -> None:
        """Put a sequence at the end of its line, or in front.

        `running` returns the tenants of the admitted sequences. The count of a tenant that had no sequence begins at
        the smallest count of the others: the time without a sequence is no credit.
        """
        tenant = sequence.state.tenant
        if tenant not in self._served:
            others = {*running(), *(t for t, _ in self._lines)} & self._served.keys()
            self._served[tenant] = min((self._served[t] for t in others), default=0)
            for gone in self._served.keys() - others - {tenant}:
                del self._served[gone]
        line = self._lines.setdefault((tenant, sequence.priority), deque())
        if first:
            line.appendleft(sequence)
        else:
            line.append(sequence)

    def peek(self, now: float) -> EngineSequence:
        """Return the next sequence."""

        def rank(key: tuple[str, int]) -> tuple[int, int, int]:
            head = self._lines[key][0]
            since = max(self._turn.get(key, 0.0), head.channel.submitted)
            return -(key[1] + int((now - since) / AGING)), self._served[key[0]], head.order

        return self._lines[min(self._lines, key=rank)][0]

    def pop(self, sequence: EngineSequence, now: float) -> None:
        """Remove the sequence that was next, and note the time of its line."""
        self._turn[sequence.state.tenant, sequence.priority] = now
        self.remove(sequence)

    def remove(self, sequence: EngineSequence) -> None:
        """Remove a sequence that no longer waits."""
        key = (sequence.state.tenant, sequence.priority)
        line = self._lines[key]
        line.remove(sequence)
        if not line:
            del self._lines[key]
            if len(self._turn) > 4096:
                self._turn = {k: t for k, t in self._turn.items() if k in self._lines}

    def count_served(self, tenant: str, rows: int) -> None:
        """Count rows that were computed for a tenant."""
        self._served[tenant] += rows

    def served_rows(self, tenant: str) -> int:
        """Return how many rows a tenant was given."""
        return self._served[tenant]
