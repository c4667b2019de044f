"""Plans of the stand-in, and steps of them."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

import llamay_kernels as kernels
from llamay_models.plan import Program, Rows, call_of, operation, validate, whole_text

from .kept import Kept


@dataclass(frozen=True, slots=True)
class Stage:
    """A record with what the table knows of it."""

    kind: object
    outs: tuple
    args: tuple
    weights: list
    attrs: dict
    memory: object


class Plan:
    """A program whose records are computed one after the other, for one row at a time."""

    def __init__(self, records, widths, weights, *, max_rows):
        names = tuple(f"%{number}" for number in range(len(widths)))
        self.program = Program(tuple(records), tuple(widths), tuple(weights), names)
        validate(self.program)
        self.max_rows, self.output_width = max_rows, self.program.output_width
        self._whole = whole_text(self.program)
        self._stages = []
        for record in self.program.records:
            call, kind = call_of(self.program, record), operation(record.op)
            tensors = [weights[i] for i in record.weights]
            self._stages.append(Stage(kind, record.outs, record.args, tensors, call.attrs, kind.memory(call)))
        if self._whole and any(stage.memory for stage in self._stages):
            raise ValueError("a text that must be one step keeps nothing, but this plan does both")

    def describe(self):
        return "\n".join(stage.kind.name for stage in self._stages)

    def run_rows(self, rows, out, threads, draws=()):
        texts = self._texts(rows, out)
        began = time.perf_counter()
        compute(texts, out)
        tokens, errors = draw(draws, out)
        return time.perf_counter() - began, tokens, errors

    def begin_rows(self, rows, out, threads):
        return Begun(self._texts(rows, out), out)

    def _texts(self, rows, out):
        texts = [Text(self, *row) for row in rows]
        if not 0 < sum(len(t.tokens) for t in texts) <= self.max_rows:
            raise ValueError(f"a step has 1 to {self.max_rows} rows")
        wanted = sum(t.wanted for t in texts)
        if out.dtype != np.float32 or len(out) < wanted or out.shape[1] != self.output_width:
            raise ValueError(f"out must be float32 of at least ({wanted}, {self.output_width})")
        return texts


class Text:
    """The rows of one text in a step."""

    def __init__(self, plan, lease, tokens, position, wanted, inputs=None):
        self.plan, self.tokens, self.position, self.wanted = plan, list(tokens), position, wanted
        if not self.tokens or not 0 <= wanted <= len(self.tokens):
            raise ValueError(f"{wanted} outputs of {len(self.tokens)} rows")
        keeps = any(stage.memory for stage in plan._stages)
        if keeps and lease is None:
            raise ValueError("this plan keeps something of each text, and needs a lease for it")
        self.kept = Kept(lease, len(self.tokens)) if keeps else None
        inputs = dict(inputs or {})
        self.types = inputs.pop("types", None)
        self.positions = inputs.pop("positions", None)
        numbers, vectors = inputs.pop("vectors", ((), ()))
        self.vectors = dict(zip((int(n) for n in numbers), vectors, strict=True))
        if inputs:
            raise ValueError(f"inputs must be vectors, types or positions, not {min(inputs)}")
        if any(not 0 <= n < len(self.tokens) for n in self.vectors):
            raise ValueError("vectors name a row that is not there")

    @property
    def may_go_on(self):
        """Whether the lease has another position, and a state to be written after it where there are states."""
        return len(self.tokens) == 1 == self.wanted and self.kept is not None and self.kept.may_go_on

    def go_on(self, token):
        """Be the row after this one, in the same lease."""
        self.tokens, self.position, self.vectors = [token], self.position + 1, {}
        self.types = None
        self.positions = None if self.positions is None else self.positions[-1:] + 1
        self.kept.go_on()

    def compute(self):
        """Return the outputs that are wanted, float64, in order."""
        if self.plan._whole:
            return self._compute_whole()
        first = len(self.tokens) - self.wanted
        return [
            y for row in range(len(self.tokens)) if (y := self._compute_row(row, row >= first)) is not None
        ]

    def _compute_whole(self):
        n = len(self.tokens)
        rows = Rows(
            self.tokens, range(n - self.wanted, n), None, self._positions(0, n), self.types, self.vectors
        )
        values = {}
        for stage in self.plan._stages:
            outs = stage.kind.meaning(rows, [values[i] for i in stage.args], stage.weights, stage.attrs)
            values.update(zip(stage.outs, outs, strict=True))
        return list(values[self.plan._stages[-1].outs[-1]])

    def _compute_row(self, row, wanted):
        vectors = {0: self.vectors[row]} if row in self.vectors else {}
        types = None if self.types is None else self.types[row : row + 1]
        rows = Rows(self.tokens[row : row + 1], None, None, self._positions(row, row + 1), types, vectors)
        values = {}
        for stage in self.plan._stages:
            args = [values[i] for i in stage.args]
            if any(x is None for x in args) or (stage.kind.rows == "wanted" and not wanted):
                outs = [None] * len(stage.outs)  # nobody wants it of this row
            elif stage.memory is None:
                outs = stage.kind.meaning(rows, args, stage.weights, stage.attrs)
            else:
                outs = self.kept.step(stage, args)
            values.update(zip(stage.outs, outs, strict=True))
        self.kept.end_of_row()
        output = values[self.plan._stages[-1].outs[-1]]
        return None if output is None else output[0]

    def _positions(self, begin, end):
        if self.positions is not None:
            return self.positions[begin:end]
        return [self.position + row for row in range(begin, end)]


class Begun:
    """A step that has begun: it is computed when it is finished, but its outputs are gone from now on."""

    def __init__(self, texts, out):
        self._texts, self._out, self._began = texts, out, time.perf_counter()
        self._open = True
        self._spoil()

    def finish(self, draws=(), flag=None, ends=()):
        if not self._open:
            raise RuntimeError("the step has ended")
        compute(self._texts, self._out)
        tokens, errors = draw(draws, self._out)
        seconds, self._began = time.perf_counter() - self._began, time.perf_counter()
        follows = (
            flag is not None
            and not flag.on
            and [output for _, output, *_ in draws] == list(range(len(self._texts)))
            and not errors
            and not any(token in ends for token in tokens)
            and all(text.may_go_on for text in self._texts)
        )
        self._open = follows
        if follows:
            for text, token in zip(self._texts, tokens, strict=True):
                text.go_on(token)
            self._spoil()
        return seconds, tokens, errors, follows

    def leave(self):
        self._open = False

    def _spoil(self):
        self._out[: sum(text.wanted for text in self._texts)] = np.nan


def compute(texts, out):
    at = 0
    for text in texts:
        for y in text.compute():
            out[at] = y
            at += 1


def draw(draws, out):
    return kernels.sample_batch([(s, out[output], p, past, mask) for s, output, p, past, mask in draws])
