"""Contexts beside contexts that own a full copy of everything, under any history of operations.

`Driver.step` does one operation, drawn by a random number generator, on both sides, and checks everything that must
hold after it. The contents of a context are compared as one checksum, computed natively from the pages, by numpy from
the full copy, so that long runs are possible. Hypothesis calls it step by step; `run` for whole seeds. The long run:

    python packages/llamay-kv/tests/kv_driver.py 500 400
"""

from __future__ import annotations

import copy
import itertools
import random
import sys
import tempfile
import time
from dataclasses import dataclass, field
from fractions import Fraction
from struct import pack

import numpy as np
from kv_precision import ROUND_TRIP

from llamay_kv import UNKNOWN_TOKEN, Context, Group, Layer, Layout, OutOfPagesError, Pool, Spill
from llamay_kv._kv import crc64

MIXES = {
    "full": lambda p: [Group.full([Layer(0, 2, 4, 3), Layer(1, 1, 9, 8)], p)],
    "window": lambda p: [Group.sliding(20, [Layer(0, 1, 4, 4)], p)],
    "mixed": lambda p: [
        Group.full([Layer(1, 1, 4, 4)], p),
        Group.sliding(17, [Layer(0, 2, 3, 3), Layer(3, 1, 2, 2)], p),
        Group.sliding(1, [Layer(2, 1, 1, 1)], p),
    ],
    "latent": lambda p: [Group.latent([Layer(0, 1, 12, 0), Layer(1, 1, 8, 0)], "f16" if p == "vq8" else p)],
    "hybrid": lambda p: [
        Group.full([Layer(0, 1, 4, 4)], p),
        Group.recurrent([Layer(1, 2, 3, 5), Layer(2, 1, 0, 7)], "f32" if p == "f32" else "f16", stride=16),
        Group.sliding(20, [Layer(3, 1, 3, 3)], p),
    ],
}
# For storage in chunks of 64 positions: a window that spans chunks, and states at the ends of some chunks.
LONG_MIXES = {
    "wide": lambda p: [Group.full([Layer(0, 1, 4, 3)], p), Group.sliding(100, [Layer(1, 1, 4, 4)], p)],
    "states": lambda p: [
        Group.sliding(90, [Layer(0, 1, 4, 4)], p),
        Group.recurrent([Layer(1, 2, 3, 5)], "f32"),
        Group.recurrent([Layer(2, 1, 0, 7)], "f16"),
    ],
}
PRECISIONS = ("f32", "f16", "vq8", "q8")
MEMORIES = ("arena", "allocator", "spill")
PAGE_TOKENS = (16, 64)


@dataclass(frozen=True)
class Config:
    mix: str
    precision: str
    memory: str
    page_tokens: int
    pages: int = 0

    def layout(self) -> Layout:
        return Layout({**MIXES, **LONG_MIXES}[self.mix](self.precision))


CONFIGS = [Config(*values) for values in itertools.product(MIXES, PRECISIONS, MEMORIES, PAGE_TOKENS)]


ROWS: dict[int, tuple[bytes, int]] = {}
"""Digest and index of the drivers' rows, by id."""


def described(tokens) -> tuple[bytes, bytes]:
    """Ids as files have them, and the table of the rows among them, by docs/snapshot-format.md."""
    numbers, runs, ids = {}, [], []
    for token in tokens:
        if token < -1 and token not in numbers:
            numbers[token] = -2 - len(numbers)
            digest, index = ROWS[token]
            if runs and runs[-1][0] == digest and sum(runs[-1][1:]) == index:
                runs[-1][2] += 1
            else:
                runs.append([digest, index, 1])
        ids.append(numbers.get(token, token))
    return np.array(ids, "<i4").tobytes(), b"".join(digest + pack("<II", *run) for digest, *run in runs)


class Material:
    """Numbers to write, as given and as they read back, sliced at random, since making new ones would take time."""

    ROWS = 2048

    def __init__(self, layout: Layout) -> None:
        rng = np.random.default_rng(7)
        self.given: dict[int, tuple] = {}
        self.stored: dict[int, tuple] = {}
        self.recurrent = {
            layer.index for group in layout.groups if group.kind == "state" for layer in group.layers
        }
        for group in layout.groups:
            convert = ROUND_TRIP[group.precision]
            for layer in group.layers:
                pair = tuple(
                    rng.standard_normal((self.ROWS, layer.kv_heads, d)).astype("f4")
                    for d in (layer.k_dim, layer.v_dim)
                )
                self.given[layer.index] = pair
                self.stored[layer.index] = tuple(
                    f(x) if x.shape[2] else x for f, x in zip(convert, pair, strict=True)
                )


@dataclass
class FullCopy:
    """The contents of a context in arrays of its own: for each layer all positions, and all states by length."""

    layout: Layout
    tokens: list[int] = field(default_factory=list)
    rows: dict[int, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    first: list[int] = field(default_factory=list)  # of each group; earlier ones are dropped
    present: dict[int, tuple[np.ndarray, np.ndarray]] | None = None
    kept: dict[int, dict[int, tuple[np.ndarray, np.ndarray]]] = field(default_factory=dict)
    most_kept: int | None = None
    side: dict = field(default_factory=dict)
    owners: int = 1
    known: int | None = None

    def __post_init__(self) -> None:
        self.first = self.first or [0] * len(self.layout.groups)

    def fork(self) -> FullCopy:
        twin = copy.copy(self)
        twin.tokens, twin.first, twin.owners = list(self.tokens), list(self.first), 1
        twin.rows = {i: (k.copy(), v.copy()) for i, (k, v) in self.rows.items()}
        twin.present, twin.kept, twin.side = copy.deepcopy((self.present, self.kept, self.side))
        return twin

    def append(self, tokens, rows, states, page_tokens, checkpoints=False):
        """rows by layer; states by new length, then by layer; `checkpoints`: keep the states before the end."""
        if not tokens:
            return
        before = len(self.tokens)
        self.tokens += tokens
        for layer, pair in rows.items():
            had = self.rows.get(layer)
            mine = tuple(x[: len(tokens)] for x in pair)
            self.rows[layer] = (
                tuple(np.concatenate(two) for two in zip(had, mine, strict=True))
                if had
                else tuple(x.copy() for x in mine)
            )
        stride = max(g.stride for g in self.layout.groups)
        for at, state in states.items():
            if not before < at <= len(self.tokens):
                continue
            if (stride and at % stride == 0) or (checkpoints and at < len(self.tokens)):
                self.kept[at] = state
        self.thin()
        self.present = states.get(len(self.tokens))
        for g, group in enumerate(self.layout.groups):
            if group.kind == "window":
                gone = max(0, len(self.tokens) + 1 - group.window) // page_tokens * page_tokens
                self.first[g] = max(self.first[g], gone)
        self.side, self.known = {}, None

    def checkpoint(self):
        if self.present is not None:
            self.kept[len(self.tokens)] = self.present
            self.thin()
            self.known = None

    def thin(self):
        """While there are too many, drop the one with the smallest gap relative to its distance from the last."""
        while self.most_kept is not None and len(self.kept) > self.most_kept:
            at = sorted(self.kept)
            gone = min(
                zip([0, *at], at, at[1:], strict=False), key=lambda x: Fraction(x[2] - x[0], at[-1] - x[1])
            )
            del self.kept[gone[1]]

    def nearest(self, n):
        return max(m for m in range(n + 1) if m <= len(self.tokens) and self.may_truncate(m))

    def may_truncate(self, n):
        if n == 0 or n == len(self.tokens):
            return True
        if any(group.kind == "state" for group in self.layout.groups) and n not in self.kept:
            return False
        return all(
            group.kind != "window" or max(0, n + 1 - group.window) >= first
            for group, first in zip(self.layout.groups, self.first, strict=True)
        )

    def truncate(self, n, page_tokens):
        if n == len(self.tokens):
            return
        del self.tokens[n:]
        self.rows = {i: (k[:n], v[:n]) for i, (k, v) in self.rows.items()}
        self.kept = {at: s for at, s in self.kept.items() if at <= n}
        self.present = self.kept.get(n)
        pages = -(-n // page_tokens) * page_tokens
        self.first = [min(first, pages) for first in self.first]
        self.side, self.known = {}, None

    def checksum(self):
        if self.known is None:
            ids, table = described(self.tokens)
            crc = crc64(table, crc64(ids))
            for group, first in zip(self.layout.groups, self.first, strict=True):
                for layer in group.layers:
                    if group.kind == "state":
                        now = {} if self.present is None else {len(self.tokens): self.present}
                        for at, state in [*sorted(self.kept.items()), *now.items()]:
                            crc = crc64(np.uint32(at).tobytes(), crc)
                            for part in state[layer.index]:
                                crc = crc64(part.tobytes(), crc)
                    elif layer.index in self.rows:
                        for part in self.rows[layer.index]:
                            crc = crc64(part[first:].tobytes(), crc)
            self.known = crc
        return self.known


class Driver:
    def __init__(self, config: Config, folder: str, pages: int, seed: int = 0) -> None:
        self.config, self.layout = config, config.layout()
        self.P = config.page_tokens
        one = sum(Pool(self.layout, self.P, pages=1).page_bytes)
        self.material = material(self.layout)
        more = {
            "arena": {},
            "allocator": {"allocator": bytearray},
            "spill": {"spill": Spill(folder, 40 * one, 0)},
        }[config.memory]
        self.rng = random.Random(seed)
        self.most_kept, more["checkpoint_bytes"] = self._checkpoints()
        self.pool = Pool(self.layout, self.P, budget_bytes=pages * one, **more)
        self.rows = [self.pool.rows(bytes([i]) * 32, 50) for i in range(3)]
        for rows in self.rows:
            ROWS.update({row: (rows.digest, i) for i, row in enumerate(rows)})
        self.pairs: dict[Context, FullCopy] = {}
        self.frozen: list = []
        self.steps = 0
        self._track(self.pool.context(), self._empty())

    def _checkpoints(self):
        """How many a context may keep, and the budget that says so."""
        one = sum(
            size
            for size, group in zip(
                Pool(self.layout, self.P, pages=1).page_bytes, self.layout.groups, strict=True
            )
            if group.kind == "state"
        )
        most = self.rng.choice((None, None, 1, 2, 5)) if one else None
        return most, None if most is None else most * one + self.rng.randrange(one)

    def _empty(self):
        return FullCopy(self.layout, most_kept=self.most_kept)

    def _track(self, context, full):
        self.pairs[context] = full
        return context

    def _rows(self, n):
        """Values to write, and the values as they read back."""
        at = self.rng.randrange(Material.ROWS - n)
        part = slice(at, at + n)
        pick = lambda of: {  # noqa: E731
            i: (k[part], v[part]) for i, (k, v) in of.items() if i not in self.material.recurrent
        }
        return pick(self.material.given), pick(self.material.stored)

    def _tokens(self, n):
        """Ids to commit: tokens, now and then a picture, seldom an unknown token."""
        draw = self.rng
        tokens = [draw.randrange(1 << 20) for _ in range(n)]
        if n and draw.random() < 0.25:
            begin, first = draw.randrange(n), draw.randrange(50)
            part = draw.choice(self.rows)[first : first + draw.randint(1, 50)][: n - begin]
            tokens[begin : begin + len(part)] = part
        if n and draw.random() < 0.02:
            tokens[draw.randrange(n)] = UNKNOWN_TOKEN
        return tokens

    def _states(self, at):
        i = self.rng.randrange(Material.ROWS)
        pick = lambda of: {j: (of[j][0][i], of[j][1][i]) for j in self.material.recurrent}  # noqa: E731
        return pick(self.material.given), pick(self.material.stored)

    OPERATIONS = (
        ["append"] * 8
        + ["fork", "truncate", "overwrite", "checkpoint"] * 2
        + ["close", "retain", "side", "freeze", "thaw", "spill", "forget", "misuse"]
    )

    def step(self) -> None:
        context = self.rng.choice(list(self.pairs))
        getattr(self, self.rng.choice(self.OPERATIONS))(context, self.pairs[context])
        while len(self.pairs) > 7:
            gone = self.rng.choice(list(self.pairs))
            for _ in range(self.pairs.pop(gone).owners):
                gone.close()
            assert gone.closed
        if not self.pairs:
            self._track(self.pool.context(), self._empty())
        self.steps += 1
        self.check()

    # The operations

    def fork(self, context, full):
        before = self.pool.live_pages
        for fork in context.fork(self.rng.randint(1, 2)):
            self._track(fork, full.fork())
        assert self.pool.live_pages == before, "a fork took a page"

    def _asked(self, before, n):
        """After which of n tokens a recurrent state is to be kept, or None."""
        draw = self.rng
        return (
            sorted(draw.sample(range(1, n + 1), min(n, draw.randint(0, 3)))) if draw.random() < 0.5 else None
        )

    LENGTHS = (0, 1, 1, 2, 15, 16, 17, 40)

    def append(self, context, full):
        n, draw = self.rng.choice((*self.LENGTHS, self.rng.randint(0, 70))), self.rng
        asked = self._asked(len(full.tokens), n)
        if not self.material.recurrent:
            asked = None
        used = self.pool.used_bytes
        try:
            lease = context.reserve(n, states=asked)
        except OutOfPagesError:
            # Making room may have spilled pages; the count is never more than before.
            assert self.pool.used_bytes <= max(used, self.pool.budget_bytes)
            assert not context.leased
            return
        before = len(full.tokens)
        given, stored = self._rows(n)
        ends = []
        if self.material.recurrent and n:
            stride = max(group.stride for group in self.layout.groups)
            ends = (
                [*asked]
                if asked is not None
                else [i for i in range(1, n) if stride and (before + i) % stride == 0]
            )
            ends = sorted({*ends, n})
        keep = draw.choice([0, *ends, *ends]) if ends else draw.randint(0, n)
        fork = None
        states = {}
        order = draw.random()
        with lease:
            assert lease.states == ends
            view = lease.__llamay_kv_view__() if draw.random() < 0.3 else None
            if order < 0.3:
                fork = context.fork()
            for layer, (k, v) in given.items():
                lease.write(layer, k, v)
            for end in ends:
                state, reads = self._states(end)
                states[before + end] = reads
                for layer, (k, v) in state.items():
                    lease.write_state(layer, k, v, after=end)
            self._look_into(lease, full, stored, states)
            if 0.3 <= order < 0.5:
                fork = context.fork()
            if fork is not None:
                self._track(fork, full.fork())
            if draw.random() < 0.85:
                tokens = self._tokens(keep)
                lease.commit(tokens)
                full.append(tokens, stored, states, self.P)
        del view

    def _look_into(self, lease, full, stored, states):
        """A lease reads committed positions and positions written since."""
        before = len(full.tokens)
        for g, group in enumerate(self.layout.groups):
            layer = group.layers[0]
            if group.kind == "state":
                zeros = tuple(np.zeros((layer.kv_heads, dim), "f4") for dim in (layer.k_dim, layer.v_dim))
                wanted = {before: (full.present or {}).get(layer.index, zeros)}
                wanted |= {at: of[layer.index] for at, of in states.items()}
                for at, pair in wanted.items():
                    for got, want in zip(lease.read_state(layer.index, after=at - before), pair, strict=True):
                        assert (got == want).all()
                continue
            begin = full.first[g] if before else 0
            had = full.rows.get(layer.index)
            for i, got in enumerate(lease.read(layer.index, begin)):
                assert len(got) == before + len(lease) - begin
                assert (got[before - begin :] == stored[layer.index][i]).all()
                assert had is None or (got[: before - begin] == had[i][begin:]).all()

    def truncate(self, context, full):
        n = self.rng.choice([*full.kept, 0, len(full.tokens), self.rng.randint(0, len(full.tokens))])
        if full.may_truncate(n):
            context.truncate(n)
            full.truncate(n, self.P)
            return
        try:
            context.truncate(n)
        except ValueError as error:
            message = str(error)
            if not any(said in message for said in ("window of group", "the nearest", "no checkpoints")):
                raise
        else:
            raise AssertionError("a truncation that cannot be was done")

    def overwrite(self, context, full):
        layers = [
            (g, x)
            for g, group in enumerate(self.layout.groups)
            for x in group.layers
            if group.kind != "state"
        ]
        g, layer = self.rng.choice(layers)
        first, n = full.first[g], len(full.tokens)
        if first >= n:
            return
        begin = self.rng.randrange(first, n)
        count = min(n - begin, self.rng.randint(1, 20))
        given, stored = self._rows(count)
        try:
            context.overwrite(layer.index, begin, *given[layer.index])
        except OutOfPagesError:
            return
        for mine, new in zip(full.rows[layer.index], stored[layer.index], strict=True):
            mine[begin : begin + count] = new
        full.side, full.known = {}, None

    def checkpoint(self, context, full):
        context.checkpoint()
        full.checkpoint()

    def forget(self, context, full):
        n = self.rng.randint(0, len(full.tokens))
        context.forget_checkpoints(n)
        full.kept = {at: s for at, s in full.kept.items() if at >= n}
        full.known = None

    def close(self, context, full):
        context.close()
        full.owners -= 1
        if not full.owners:
            assert context.closed
            del self.pairs[context]

    def retain(self, context, full):
        context.retain()
        full.owners += 1

    def side(self, context, full):
        context.side = full.side = {"sampler": (3, self.rng.randbytes(4))}

    def freeze(self, context, full):
        """A view of a page stays as it is, whatever happens to the context."""
        for g, group in enumerate(self.layout.groups):
            index = -(-full.first[g] // self.P)  # a page with a gap before its first position is not shown
            if group.kind != "state" and index * self.P < len(full.tokens) and len(self.frozen) < 4:
                try:
                    k, v = context.page(group.layers[0].index, index)
                except OutOfPagesError:
                    return
                self.frozen.append((k, v, k.copy(), v.copy()))
                return

    def thaw(self, context, full):
        self.frozen.clear()

    def spill(self, context, full):
        self.pool.spill_out(self.rng.choice((1, self.pool.budget_bytes // 3, 1 << 40)))

    def misuse(self, context, full):
        """An error changes nothing."""
        try:
            lease = context.reserve(0)
        except OutOfPagesError:
            return
        with lease:
            for wrong in (
                lambda: context.truncate(0),
                lambda: lease.commit([1]),
                lambda: lease.commit([-(1 << 31)]),
                lambda: lease.write(99, np.zeros((1, 1, 1), "f4"), np.zeros((1, 1, 1), "f4")),
                lambda: context.reserve(1),
            ):
                try:
                    wrong()
                except (ValueError, IndexError, RuntimeError):
                    continue
                raise AssertionError("something wrong was done")

    # Invariants

    def check(self) -> None:
        self.pool.audit()
        assert self.pool.used_bytes <= self.pool.peak_bytes <= self.pool.budget_bytes
        for context, full in self.pairs.items():
            assert len(context) == len(full.tokens)
            assert context.side == full.side
            assert context.first_positions() == full.first
            assert context.checkpoints == sorted(full.kept)
            n = self.rng.randint(0, len(full.tokens))
            assert context.nearest(n) == full.nearest(n)
            # Reading brings pages back: some contexts are left where they are for a while.
            if self.config.memory == "spill" and self.steps % 8 and self.rng.random() < 0.7:
                continue
            try:
                assert context.checksum() == full.checksum(), "a value is not what was written"
            except OutOfPagesError:
                assert self.config.memory == "spill"
        for k, v, k_then, v_then in self.frozen:
            assert (k == k_then).all()
            assert (v == v_then).all()

    def finish(self) -> None:
        self.frozen.clear()
        for context, full in self.pairs.items():
            try:
                assert context.checksum() == full.checksum()
                assert context.tokens == full.tokens
            except OutOfPagesError:
                assert self.config.memory == "spill"
            for _ in range(full.owners):
                context.close()
            assert context.closed
        self.pool.audit()
        assert self.pool.used_bytes == 0
        assert self.pool.spill_counters().get("spilled_bytes", 0) == 0


_MATERIALS: dict = {}


def material(layout: Layout) -> Material:
    name = repr(layout)
    if name not in _MATERIALS:
        _MATERIALS[name] = Material(layout)
    return _MATERIALS[name]


def run(config: Config, seed: int, steps: int, folder: str) -> None:
    rng = random.Random(f"{config} {seed}")
    driver = Driver(config, folder, rng.randint(2, 20), rng.getrandbits(32))
    try:
        for _ in range(steps):
            driver.step()
        driver.finish()
    except BaseException as error:
        error.add_note(f"{config}, seed {seed}, step {driver.steps}")
        raise


def main() -> None:
    """The long run: so many seeds, operations, and the first seed; all configurations seed by seed."""
    seeds, steps, first = (int(n) for n in [*sys.argv[1:], 0][:3])
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(seeds):
            for config in CONFIGS:
                run(config, first + seed, steps, folder)
            print(
                f"{seed + 1} seeds x {steps} operations x {len(CONFIGS)} configurations held,",
                f"{time.process_time():.0f} s of one core",
                flush=True,
            )


if __name__ == "__main__":
    main()
