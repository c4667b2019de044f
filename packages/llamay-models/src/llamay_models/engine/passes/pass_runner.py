"""`PassRunner`: computes the text passes of all callers in common steps."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import llamay_kv as kv
from llamay_models.engine.passes.text_pass import PassKind, TextPass
from llamay_models.engine.runner import Runner, StepRows
from llamay_models.engine.state.prefix_cache import PrefixCache
from llamay_models.errors import EngineClosedError, LlamayError, OutOfMemoryError

T = TypeVar("T")
# The most bytes of outputs of one step: a row of a large vocabulary takes a megabyte.
_OUTPUT_BYTES = 64 << 20
_RETRY_SECONDS = 0.005  # between two attempts to find memory


class PassEngine(Protocol):
    """The engine between whose steps passes are computed."""

    pool: kv.Pool
    prefixes: PrefixCache | None
    ctx_size: int
    page_lenders: list[Callable[[], bool]]

    @property
    def spare_rows(self) -> int:
        """Rows that a step of other work may have now."""

    @property
    def active(self) -> int:
        """Sequences that the engine computes now."""

    def check_thread(self) -> None:
        """Raise ContextError on the engine's own thread."""

    def call(self, function: Callable[[], T]) -> T:
        """Run a function between two steps, and return its result."""


class PassRunner:
    """Computes passes. Any thread may call `run`; each call waits for its own passes."""

    def __init__(self, engine: PassEngine, runners: Callable[[PassKind], Runner]) -> None:
        self._engine = engine
        self._runners = runners
        self._queue: deque[TextPass] = deque()
        # The thread that holds the lock computes the steps for all callers, which would otherwise wait for each other.
        self._step_lock = threading.Lock()
        engine.page_lenders.append(self._release_pages)

    def run(self, passes: Sequence[TextPass], progress: Callable[[int], None] | None = None) -> None:
        """Compute passes, and return when all are done; `progress` is called with the number of those that are.

        Raises the first error: OutOfMemoryError, EngineClosedError, LlamayError, or the exception that `progress`
        raised. The other passes are then abandoned.
        """
        self._engine.check_thread()
        self._queue.extend(passes)
        try:
            while (left := sum(not r.done for r in passes)) and not any(r.error for r in passes):
                if progress is not None:
                    progress(len(passes) - left)  # without the lock: it may take long, and run passes itself
                with self._step_lock:
                    if all(r.done for r in passes):
                        break  # another thread has computed them
                    computed = self._engine.call(self._step)
                if not computed:  # generations hold all the memory: one of them has to end first
                    time.sleep(_RETRY_SECONDS)
        finally:
            if any(not r.done for r in passes):
                for text_pass in passes:
                    text_pass.abandoned = True
                try:
                    self._engine.call(self._remove_abandoned)
                except EngineClosedError:  # the engine's thread is gone, so this thread may
                    self._remove_abandoned()
        for text_pass in passes:
            if text_pass.error is not None:
                raise text_pass.error
        if progress is not None:
            progress(len(passes))

    # -- on the engine's thread

    def _remove_abandoned(self) -> None:
        for text_pass in [r for r in self._queue if r.abandoned]:
            text_pass.end()
            self._queue.remove(text_pass)

    def _release_pages(self) -> bool:
        """Give back the pages of all passes, and return whether there were any.

        The prefix cache keeps the computed prefixes for as long as their pages are not needed.
        """
        holding = [r for r in self._queue if r.context is not None]
        for text_pass in holding:
            self._keep(text_pass)
            text_pass.release_pages()
        return bool(holding)

    def _step(self) -> bool:
        """Compute one step of passes. Return False if there is no memory for it yet."""
        self._remove_abandoned()
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

    def _gather(self, kind: PassKind, runner: Runner) -> list[tuple[TextPass, StepRows]]:
        room = max(1, min(self._engine.spare_rows, runner.max_rows))
        outputs = max(1, _OUTPUT_BYTES // (4 * runner.plan.output_width))
        batch: list[tuple[TextPass, StepRows]] = []
        for text_pass in self._queue:
            if text_pass.kind != kind:
                continue
            if not room or not outputs:
                break
            rows = self._reserve(text_pass, room, outputs, alone=not batch)
            if rows is None and not batch and not text_pass.done and self._release_pages():
                rows = self._reserve(text_pass, room, outputs, alone=True)
            if rows is None:
                if text_pass.done:
                    continue
                break  # earlier passes or generations use the pages
            room -= len(rows.tokens)
            outputs -= rows.wanted
            batch.append((text_pass, rows))
        return batch

    def _reserve(self, text_pass: TextPass, room: int, outputs: int, *, alone: bool) -> StepRows | None:
        if text_pass.single_step:
            n = len(text_pass.tokens)
            wanted = n - text_pass.first
            fits = alone or (n <= room and wanted <= outputs)
            return StepRows(None, text_pass.tokens, 0, wanted, text_pass.inputs) if fits else None
        try:
            if text_pass.context is None:
                text_pass.context = self._matched_context(text_pass)
            at, size = len(text_pass.context), len(text_pass.tokens)
            end = min(size, at + min(room, self._chunk))
            if end > text_pass.first:
                end = min(end, max(at, text_pass.first) + outputs)
            lease = text_pass.context.reserve(end - at, states=self._states(text_pass, at, end))
        except kv.OutOfPagesError as error:
            if alone and not self._engine.active and not self._held_by_others(text_pass):
                text_pass.end(OutOfMemoryError(f"no K/V memory is left to compute this text: {error}"))
            return None
        return StepRows(lease, text_pass.tokens[at:end], at, max(0, end - max(at, text_pass.first)))

    def _states(self, text_pass: TextPass, at: int, end: int) -> list[int] | None:
        """Return where recurrent layers keep a state: where outputs begin, so that the same text can go on there."""
        prefixes = self._engine.prefixes
        if prefixes is None or not prefixes.recurrent or text_pass.tenant is None:
            return None
        return [text_pass.first - at] if at < text_pass.first < end else []

    def _held_by_others(self, text_pass: TextPass) -> bool:
        return any(r.context is not None for r in self._queue if r is not text_pass)

    def _matched_context(self, text_pass: TextPass) -> kv.Context:
        """Return a context with the longest known prefix of a text, up to where outputs are wanted."""
        prefixes = self._engine.prefixes
        if prefixes is None or text_pass.tenant is None or not text_pass.first:
            return self._engine.pool.context()
        return prefixes.match(text_pass.tokens[: text_pass.first], text_pass.tenant)

    @property
    def _chunk(self) -> int:
        prefixes = self._engine.prefixes
        return (prefixes and prefixes.chunk) or self._engine.ctx_size

    def _keep(self, text_pass: TextPass) -> None:
        """Add the computed prefix of a text to the prefix cache."""
        prefixes = self._engine.prefixes
        if prefixes is not None and text_pass.tenant is not None and text_pass.context is not None:
            prefixes.keep(text_pass.context, text_pass.tenant)

    def _compute(self, runner: Runner, batch: list[tuple[TextPass, StepRows]]) -> None:
        try:
            out = runner.run([rows for _, rows in batch])
        except Exception as error:  # one bad text must not take the others with it
            for text_pass, rows in batch:
                rows.release()
                if len(batch) == 1:
                    text_pass.end(LlamayError(f"a step of the model failed: {error}"))
            if len(batch) > 1:
                for text_pass, rows in batch:
                    retried = self._reserve(text_pass, len(rows.tokens), max(1, rows.wanted), alone=True)
                    if retried is not None:
                        self._compute(runner, [(text_pass, retried)])
            return
        done = 0
        windowed = self._engine.prefixes is not None and self._engine.prefixes.windowed
        for text_pass, rows in batch:
            rows.commit_all()
            end = rows.position + len(rows.tokens)
            outputs = out[done : done + rows.wanted]
            done += rows.wanted
            try:
                if rows.wanted:
                    text_pass.on_outputs(end - rows.wanted, outputs)
                    text_pass.first = end
                if end == len(text_pass.tokens):
                    self._keep(text_pass)
                    text_pass.end()
                elif windowed:
                    self._keep(text_pass)
            except Exception as error:
                text_pass.end(error)
