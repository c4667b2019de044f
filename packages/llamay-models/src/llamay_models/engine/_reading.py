"""`Reader`: texts that are read for what the model makes of them, not to be continued.

Embeddings and scores take this way. Texts of all callers share steps of a plan, which run between the steps
of the streams, and are as small as those that read prompts: nobody's stream waits longer for them.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

import llamay_kv as kv
from llamay_models.engine._runner import Rows, Runner
from llamay_models.errors import EngineClosed, LlamayError, OutOfMemory
from llamay_models.plan._records import Floats

if TYPE_CHECKING:
    from llamay_models.engine._engine import Engine

Kind = Literal["hidden", "logits"]
# Bytes of outputs that one step makes: a row of a large vocabulary takes a megabyte.
_OUTPUT = 64 << 20


class Reading:
    """One text: its tokens, and who takes the outputs.

    `take(begin, rows)` gets the outputs of tokens begin, begin + 1, ... from number `first` on, in order, on
    the engine's thread. It has to copy what it keeps.
    """

    __slots__ = ("abandoned", "context", "done", "error", "first", "kind", "take", "tokens")

    def __init__(
        self, kind: Kind, tokens: Sequence[int], first: int, take: Callable[[int, Floats], None]
    ) -> None:
        self.kind = kind
        self.tokens = tokens
        self.first = first
        self.take = take
        self.context: kv.Context | None = None
        self.error: Exception | None = None
        self.done = False
        self.abandoned = False

    def end(self, error: Exception | None = None) -> None:
        """Give back what it holds."""
        if self.context is not None:
            self.context.close()
            self.context = None
        self.error, self.done = error, True


class Reader:
    """Runs readings. `read` may be called from any thread; each waits for its own."""

    def __init__(self, engine: Engine, runners: Callable[[Kind], Runner]) -> None:
        self._engine = engine
        self._runners = runners
        self._queue: deque[Reading] = deque()
        # Whoever holds it makes the steps, also those of the others: they would only wait for each other.
        self._turn = threading.Lock()

    def read(self, readings: Sequence[Reading], progress: Callable[[int], None] | None = None) -> None:
        """Read texts, and return when all are done; `progress` gets how many are.

        Raises the first error: OutOfMemory, EngineClosed, LlamayError, or what `progress` raised. The other
        texts are then given up.
        """
        self._queue.extend(readings)
        try:
            with self._turn:
                while (left := sum(not r.done for r in readings)) and not any(r.error for r in readings):
                    if progress is not None:
                        progress(len(readings) - left)
                    self._engine.call(self._step)
        finally:
            if any(not r.done for r in readings):
                for reading in readings:
                    reading.abandoned = True
                try:
                    self._engine.call(self._sweep)
                except EngineClosed:  # its thread is gone, so this one may
                    self._sweep()
        for reading in readings:
            if reading.error is not None:
                raise reading.error
        if progress is not None:
            progress(len(readings))

    # -- on the engine's thread

    def _sweep(self) -> None:
        for reading in [r for r in self._queue if r.abandoned]:
            reading.end()
            self._queue.remove(reading)

    def _step(self) -> None:
        self._sweep()
        if not self._queue:
            return
        kind = self._queue[0].kind
        runner = self._runners(kind)
        batch = self._gather(kind, runner)
        if batch:
            self._compute(runner, batch)
        self._queue = deque(r for r in self._queue if not r.done)

    def _gather(self, kind: Kind, runner: Runner) -> list[tuple[Reading, Rows]]:
        room = max(1, min(self._engine.room, runner.max_rows))
        outputs = max(1, _OUTPUT // (4 * runner.plan.output_width))
        batch: list[tuple[Reading, Rows]] = []
        for reading in self._queue:
            if reading.kind != kind:
                continue
            if not room or not outputs:
                break
            rows = self._reserve(reading, room, outputs, alone=not batch)
            if rows is None:
                if reading.done:
                    continue
                break  # its pages are in use by those before it
            room -= len(rows.tokens)
            outputs -= rows.wanted
            batch.append((reading, rows))
        return batch

    def _reserve(self, reading: Reading, room: int, outputs: int, *, alone: bool) -> Rows | None:
        try:
            if reading.context is None:
                reading.context = self._engine.pool.context()
            at, size = len(reading.context), len(reading.tokens)
            end = min(size, at + room)
            if end > reading.first:
                end = min(end, max(at, reading.first) + outputs)
            lease = reading.context.reserve(end - at)
        except kv.OutOfPages as error:
            if alone:
                reading.end(OutOfMemory(f"no K/V memory is left to read this text: {error}"))
            return None
        return Rows(lease, reading.tokens[at:end], at, max(0, end - max(at, reading.first)))

    def _compute(self, runner: Runner, batch: list[tuple[Reading, Rows]]) -> None:
        try:
            out = runner.run([rows for _, rows in batch])
        except Exception as error:  # one bad text must not take the others with it
            for reading, rows in batch:
                rows.lease.release()
                if len(batch) == 1:
                    reading.end(LlamayError(f"a step of the model failed: {error}"))
            if len(batch) > 1:
                for reading, rows in batch:
                    again = self._reserve(reading, len(rows.tokens), max(1, rows.wanted), alone=True)
                    if again is not None:
                        self._compute(runner, [(reading, again)])
            return
        done = 0
        for reading, rows in batch:
            rows.lease.commit(rows.tokens)
            end = rows.position + len(rows.tokens)
            mine = out[done : done + rows.wanted]
            done += rows.wanted
            try:
                if rows.wanted:
                    reading.take(end - rows.wanted, mine)
                if end == len(reading.tokens):
                    reading.end()
            except Exception as error:
                reading.end(error)
