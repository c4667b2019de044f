"""Measuring a loaded model, each figure beside the limit that this machine shows in the same moment.

Other work on the machine makes everything slower, limits included, so each figure is the best of a few
repetitions and its limit is probed before and after it.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llamay_kernels import Limits
    from llamay_models import Model

    from ..console.progress import Report

__all__ = ["Measurement", "decode_bytes", "matrix_parameters", "measure"]

PREFILL = 512
DECODE = 128
FORK_PAGES = (32, 512)
FORKS = 256
FORK_PAGE_TOKENS = 16


@dataclass(frozen=True)
class Measurement:
    """One figure.

    `rate` is in `unit`; `limit` names what bounds it and `fraction` says how much of that was reached, both
    None where only the code itself is the bound. `more` holds further figures.
    """

    name: str
    rate: float
    unit: str
    seconds: float
    limit: str | None
    limit_rate: float | None
    fraction: float | None
    more: Mapping[str, float]

    def to_json(self) -> dict[str, Any]:
        """Return all figures in one flat mapping."""
        fields = {k: v for k, v in vars(self).items() if k != "more"}
        return {**fields, **self.more}


def measure(model: Model, tokens: Sequence[int], repeat: int, report: Report) -> Iterator[Measurement]:
    """Measure prefill, decode, fork, snapshot and restore; `tokens` are the prompt."""
    probe = _Probe(model.threads)
    steps: list[tuple[str, Callable[[], list[Measurement]]]] = [
        ("prefill", lambda: [_prefill(model, tokens, repeat, probe)]),
        ("decode", lambda: [_decode(model, tokens, repeat, probe)]),
        ("fork", lambda: [_fork(model, pages, repeat) for pages in FORK_PAGES]),
        ("snapshot", lambda: _files(model, tokens, repeat)),
    ]
    for i, (name, step) in enumerate(steps):
        report(name, i, len(steps))
        yield from step()
    report("done", len(steps), len(steps))


class _Probe:
    """Probes of this machine's limits. Of the probes before and after a measurement, the better counts."""

    def __init__(self, threads: int) -> None:
        import llamay_kernels

        self.threads = llamay_kernels.Threads(threads)
        self.last = self._limits()

    def _limits(self) -> Limits:
        import llamay_kernels

        return llamay_kernels.limits(self.threads)

    def around(self, work: Callable[[], float], name: str, repeat: int) -> tuple[float, float, float]:
        """Return seconds and limit of the repetition nearest to its limit, and the best seconds of all."""
        pairs = []
        for _ in range(repeat):
            before = getattr(self.last, name)
            seconds = work()
            self.last = self._limits()
            pairs.append((seconds, max(before, getattr(self.last, name))))
        best = min(pairs, key=lambda pair: pair[0] * pair[1])
        return best[0], best[1], min(seconds for seconds, _ in pairs)


def matrix_parameters(model: Model) -> int:
    """Return how many weights each token is multiplied with: all matrices but the embedding and the output."""
    matrices = [t for t in model.program.tensors if t.rows > 1 and not t.name.startswith(_ENDS)]
    return sum(t.rows * t.cols for t in matrices)


def decode_bytes(model: Model) -> int:
    """Return the bytes of weights that decoding one token reads; of an embedding table that is only one row."""
    tied = not any(t.name.startswith("output.") for t in model.program.tensors)
    tables = ("position_embd",) if tied else ("position_embd", "token_embd")
    return sum(t.nbytes for t in model.program.tensors if not t.name.startswith(tables))


_ENDS = ("token_embd", "position_embd", "output.")


def _prefill(model: Model, tokens: Sequence[int], repeat: int, probe: _Probe) -> Measurement:
    count = len(tokens)

    def read() -> float:
        began = time.perf_counter()
        model.context(tokens).close()
        return time.perf_counter() - began

    read()
    seconds, limit, best = probe.around(read, "int8_ops", repeat)
    operations = 2 * matrix_parameters(model)
    fraction = count / seconds * operations / limit
    more = {"tokens": count, "operations_per_token": operations, "best_rate": count / best}
    return Measurement("prefill", count / seconds, "tokens/s", seconds, "int8_ops", limit, fraction, more)


def _decode(model: Model, tokens: Sequence[int], repeat: int, probe: _Probe) -> Measurement:
    from llamay_models import Sampling

    greedy = Sampling(temperature=0.0, seed=0)
    prompt = tokens[: max(1, min(len(tokens) // 4, model.context_size - DECODE))]
    count = min(DECODE, model.context_size - len(prompt)) - 1
    with model.context(prompt) as base:

        def write() -> float:
            with base.fork() as context:
                generation = context.generate(greedy, max_tokens=count + 1, ignore_eos=True)
                generation.wait()
                seconds: float = generation.timings.decode
                return seconds

        write()
        seconds, limit, best = probe.around(write, "read_bandwidth", repeat)
        position = model.pool.layout.position_bytes
    weights, state = decode_bytes(model), position * (len(prompt) + count // 2)
    fraction = count / seconds * (weights + state) / limit
    more = {"tokens": count, "weight_bytes": weights, "state_bytes": state, "best_rate": count / best}
    return Measurement(
        "decode", count / seconds, "tokens/s", seconds, "read_bandwidth", limit, fraction, more
    )


def _fork(model: Model, pages: int, repeat: int) -> Measurement:
    """Fork a context of so many pages in the state engine; their content does not matter."""
    import llamay_kv

    layout = model.pool.layout
    pool = llamay_kv.Pool(layout, FORK_PAGE_TOKENS, pages=pages + 2)
    best, allocated = float("inf"), 0
    with pool.context() as base:
        count = pages * FORK_PAGE_TOKENS
        with base.reserve(count) as lease:
            lease.commit([0] * count)
        for _ in range(max(repeat, 5)):
            before = sum(pool.live_pages)
            began = time.perf_counter()
            branches = [base.fork() for _ in range(FORKS)]
            best = min(best, (time.perf_counter() - began) / FORKS)
            allocated = max(allocated, sum(pool.live_pages) - before)
            for branch in branches:
                branch.close()
    more = {
        "pages": pages,
        "branches": FORKS,
        "pages_allocated": allocated,
        "nanoseconds_per_branch": best * 1e9,
    }
    return Measurement(f"fork at {pages} pages", 1 / best, "branches/s", best, None, None, None, more)


def _files(model: Model, tokens: Sequence[int], repeat: int) -> list[Measurement]:
    """Save and restore, against writing (with fsync) and reading the same bytes in the same folder."""
    saved, written, restored, read = [], [], [], []
    with tempfile.TemporaryDirectory(prefix="llamay-bench-") as name, model.context(tokens) as context:
        path, plain = Path(name) / "context.llamay", Path(name) / "plain"
        for _ in range(max(10, repeat)):
            saved.append(_timed(partial(context.save, path)))
            data = path.read_bytes()
            written.append(_timed(partial(_write, plain, data)))
            restored.append(_timed(lambda: model.restore(path).close()))
            read.append(_timed(partial(_read, path, memoryview(bytearray(len(data))))))
        size = path.stat().st_size
    return [
        _against("snapshot", size, min(saved), "file_write", min(written), len(tokens)),
        _against("restore", size, min(restored), "file_read", min(read), len(tokens)),
    ]


def _against(name: str, size: int, seconds: float, limit: str, bound: float, tokens: int) -> Measurement:
    more = {"bytes": size, "tokens": tokens}
    return Measurement(name, size / seconds, "bytes/s", seconds, limit, size / bound, bound / seconds, more)


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _read(path: Path, buffer: memoryview) -> None:
    with path.open("rb", buffering=0) as file:
        while buffer and (count := file.readinto(buffer)):
            buffer = buffer[count:]


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())
