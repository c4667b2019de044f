"""`Reader`: texts that are read for what the model makes of them, not to be continued.

Embeddings and scores take this way. Texts of all callers share steps of a plan, which run between the steps
of the streams, and are as small as those that read prompts: nobody's stream waits longer for them.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Literal, Protocol, TypeVar

import llamay_kv as kv
from llamay_models.backend import Inputs
from llamay_models.engine.runner import Rows, Runner
from llamay_models.engine.state.prefix_cache import Prefixes
from llamay_models.errors import EngineClosed, LlamayError, OutOfMemory
from llamay_models.plan import Floats

T = TypeVar("T")
Kind = Literal["hidden", "logits", "rows", "pooled"]
"""What comes out: of a decoder the hidden state or the logits of each row; of an encoder, whose texts are one step
each, the hidden state of each row, or one for the text."""
# Bytes of outputs that one step makes: a row of a large vocabulary takes a megabyte.
_OUTPUT = 64 << 20
_PATIENCE = 0.005  # seconds, between looks whether there is memory


class Steps(Protocol):
    """What is asked of the engine, between the steps of which texts are read."""

    pool: kv.Pool
    prefixes: Prefixes | None
    ctx_size: int
    lenders: list[Callable[[], bool]]

    @property
    def room(self) -> int:
        """Rows that a step of other work may have now."""

    @property
    def active(self) -> int:
        """Sequences that the engine computes now."""

    def call(self, function: Callable[[], T]) -> T:
        """Run a function between two steps, and return its result."""


class Reading:
    """One text: its tokens, and who takes the outputs.

    `take(begin, rows)` gets the outputs of tokens begin, begin + 1, ... from number `first` on, in order, on
    the engine's thread. It has to copy what it keeps. `first` moves on with what was taken. What is before it need
    not be computed where it is known: of what belongs to the `tenant`, or to everybody; None reuses and keeps nothing.
    `inputs` is what the rows are beside tokens, of a text that is one step.
    """

    __slots__ = (
        "abandoned",
        "context",
        "done",
        "error",
        "first",
        "inputs",
        "kind",
        "take",
        "tenant",
        "tokens",
    )

    def __init__(
        self,
        kind: Kind,
        tokens: list[int],
        first: int,
        take: Callable[[int, Floats], None],
        tenant: str | None = "",
        inputs: Inputs | None = None,
    ) -> None:
        self.kind = kind
        self.inputs = inputs
        self.tokens = tokens
        self.first = first
        self.take = take
        self.tenant = tenant
        self.context: kv.Context | None = None
        self.error: Exception | None = None
        self.done = False
        self.abandoned = False

    @property
    def whole(self) -> bool:
        """Whether it must be one step, and nothing is kept of it."""
        return self.kind in ("rows", "pooled")

    def end(self, error: Exception | None = None) -> None:
        """Be done, and give back what it holds."""
        self.drop()
        self.error, self.done = error, True

    def drop(self) -> None:
        """Give back what it holds. It can go on from what is known then."""
        if self.context is not None:
            self.context.close()
            self.context = None


class Reader:
    """Runs readings. `read` may be called from any thread; each waits for its own."""

    def __init__(self, engine: Steps, runners: Callable[[Kind], Runner]) -> None:
        self._engine = engine
        self._runners = runners
        self._queue: deque[Reading] = deque()
        # Whoever holds it makes the steps, also those of the others: they would only wait for each other.
        self._turn = threading.Lock()
        engine.lenders.append(self._give_back)

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
                    if not self._engine.call(self._step):
                        time.sleep(_PATIENCE)  # the streams have all the memory; some of them ends first
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

    def _give_back(self) -> bool:
        """Let go of all pages; what was read stays known for as long as nobody needs them. Whether there were any."""
        holding = [r for r in self._queue if r.context is not None]
        for reading in holding:
            self._keep(reading)
            reading.drop()
        return bool(holding)

    def _step(self) -> bool:
        """Read on. False if that has to wait for memory."""
        self._sweep()
        if not self._queue:
            return True
        kind = self._queue[0].kind
        runner = self._runners(kind)
        batch = self._gather(kind, runner)
        if batch:
            self._compute(runner, batch)
        ended = any(r.done for r in self._queue)
        self._queue = deque(r for r in self._queue if not r.done)
        return bool(batch) or ended

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
            if rows is None and not batch and not reading.done and self._give_back():
                rows = self._reserve(reading, room, outputs, alone=True)
            if rows is None:
                if reading.done:
                    continue
                break  # its pages are in use by those before it, or by streams
            room -= len(rows.tokens)
            outputs -= rows.wanted
            batch.append((reading, rows))
        return batch

    def _reserve(self, reading: Reading, room: int, outputs: int, *, alone: bool) -> Rows | None:
        if reading.whole:
            n = len(reading.tokens)
            wanted = n - reading.first
            fits = alone or (n <= room and wanted <= outputs)
            return Rows(None, reading.tokens, 0, wanted, reading.inputs) if fits else None
        try:
            if reading.context is None:
                reading.context = self._begin(reading)
            at, size = len(reading.context), len(reading.tokens)
            end = min(size, at + min(room, self._chunk))
            if end > reading.first:
                end = min(end, max(at, reading.first) + outputs)
            lease = reading.context.reserve(end - at, states=self._states(reading, at, end))
        except kv.OutOfPages as error:
            if alone and not self._engine.active and not self._held_by_others(reading):
                reading.end(OutOfMemory(f"no K/V memory is left to read this text: {error}"))
            return None
        return Rows(lease, reading.tokens[at:end], at, max(0, end - max(at, reading.first)))

    def _states(self, reading: Reading, at: int, end: int) -> list[int] | None:
        """Recurrent layers keep a state where outputs begin: there the same text can go on."""
        prefixes = self._engine.prefixes
        if prefixes is None or not prefixes.recurrent or reading.tenant is None:
            return None
        return [reading.first - at] if at < reading.first < end else []

    def _held_by_others(self, reading: Reading) -> bool:
        return any(r.context is not None for r in self._queue if r is not reading)

    def _begin(self, reading: Reading) -> kv.Context:
        """Return a context with what is known of a text, up to where outputs are wanted."""
        prefixes = self._engine.prefixes
        if prefixes is None or reading.tenant is None or not reading.first:
            return self._engine.pool.context()
        return prefixes.match(reading.tokens[: reading.first], reading.tenant)

    @property
    def _chunk(self) -> int:
        prefixes = self._engine.prefixes
        return (prefixes and prefixes.chunk) or self._engine.ctx_size

    def _keep(self, reading: Reading) -> None:
        """Let others find what was read."""
        prefixes = self._engine.prefixes
        if prefixes is not None and reading.tenant is not None and reading.context is not None:
            prefixes.keep(reading.context, reading.tenant)

    def _compute(self, runner: Runner, batch: list[tuple[Reading, Rows]]) -> None:
        try:
            out = runner.run([rows for _, rows in batch])
        except Exception as error:  # one bad text must not take the others with it
            for reading, rows in batch:
                rows.release()
                if len(batch) == 1:
                    reading.end(LlamayError(f"a step of the model failed: {error}"))
            if len(batch) > 1:
                for reading, rows in batch:
                    again = self._reserve(reading, len(rows.tokens), max(1, rows.wanted), alone=True)
                    if again is not None:
                        self._compute(runner, [(reading, again)])
            return
        done = 0
        windowed = self._engine.prefixes is not None and self._engine.prefixes.windowed
        for reading, rows in batch:
            rows.keep()
            end = rows.position + len(rows.tokens)
            mine = out[done : done + rows.wanted]
            done += rows.wanted
            try:
                if rows.wanted:
                    reading.take(end - rows.wanted, mine)
                    reading.first = end
                if end == len(reading.tokens):
                    self._keep(reading)
                    reading.end()
                elif windowed:
                    self._keep(reading)
            except Exception as error:
                reading.end(error)
