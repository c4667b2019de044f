"""Random programs: the whole is its parts, whatever shares memory, stages, activations and threads."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from format_helpers import random_data
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_sets import values
from plans import ONE, evaluate, run_rows, same_bits, weight

from llamay_kernels import Plan, Threads, Weight

POOLS = {n: Threads(n, grain=0) for n in (1, 2, 3)}
ACTS = ["silu", "gelu_tanh", "sigmoid", "tanh", "relu", "relu2", "gelu_erf", "gelu_quick", "softplus"]
ROW_OPERATIONS = [
    "linear", "linear_group", "glu", "linear_act", "linear_add", "unary", "add", "mul", "scale", "softcap", "rms_norm",
    "rms_norm_add", "add_rms_norm", "layer_norm", "columns", "concat", "affine", "mul_heads", "rope", "rope_norm",
    "given", "route", "experts",
]  # fmt: skip


def mixture(x, logits, route, weights, attrs):
    """A plan of its own: ids come from a router only."""
    k = route["k"]
    records = [
        ("embed", (0,), (), (0,), {}),
        ("embed", (1,), (), (1,), {}),
        ("route", (2, 3), (1,), (), route),
        ("experts", (4,), (0, 2, 3), tuple(range(2, 2 + len(weights))), attrs),
    ]
    width = x.shape[1]
    plan = Plan(
        records, [width, logits.shape[1], k, k, width], [weight(x), weight(logits), *weights], max_rows=len(x)
    )
    return run_rows(plan, [(None, range(len(x)), 0, len(x))])


@dataclass
class Program:
    """A random straight-line program: its records, and its values computed one plan a record."""

    rng: np.random.Generator
    rows: int
    wanted: np.ndarray
    records: list = field(default_factory=list)
    widths: list[int] = field(default_factory=list)
    weights: list[Weight] = field(default_factory=list)
    values: list[np.ndarray] = field(default_factory=list)
    selected: list[bool] = field(default_factory=list)
    routes: dict = field(default_factory=dict)  # of ids, the logits and the router
    takes_vectors: bool = False

    def pick(self, *of):
        return of[int(self.rng.integers(len(of)))]

    def vector(self, n: int) -> Weight:
        return weight(self.rng.standard_normal((1, n)))

    def matrix(self, rows: int, cols: int) -> Weight:
        fits = ["F32", *(["Q8_0", "Q4_0"] if cols % 32 == 0 else []), *(["F16"] if cols % 16 else [])]
        fmt = self.pick(*fits)
        data = np.frombuffer(random_data(self.rng, fmt, rows, cols), np.uint8)
        return Weight(data, fmt, rows, cols)

    def divisor(self, width: int) -> int:
        return self.pick(*(d for d in range(1, width + 1) if width % d == 0))

    def emit(self, op, args, weights, attrs, widths, values, selected) -> int:
        first = len(self.widths)
        self.widths += widths
        self.values += values
        self.selected += [selected] * len(widths)
        numbers = tuple(range(len(self.weights), len(self.weights) + len(weights)))
        self.weights += weights
        self.records.append((op, tuple(range(first, first + len(widths))), tuple(args), numbers, attrs))
        return first

    def grow(self) -> None:
        op = self.pick("embed", "select", "pool", *ROW_OPERATIONS, *ROW_OPERATIONS)
        if not self.widths or op == "embed":
            table = self.rng.standard_normal((self.rows, self.pick(1, 7, 16, 32, 40, 64))).astype(np.float32)
            self.emit("embed", [], [weight(table)], {}, [table.shape[1]], [table], False)
            return
        n = len(self.widths)
        a = int(self.rng.integers(max(0, n - 6), n))
        if op in ("select", "pool"):
            self.choose_rows(op, a)
        elif op == "experts":
            self.mix(a)
        else:
            self.compute(op, a)

    def choose_rows(self, op: str, a: int) -> None:
        x = self.values[a]
        if self.selected[a]:
            return
        if op == "pool":
            kind = self.pick("mean", "cls", "last")
            total = x[0].copy()
            for row in x[1:]:
                total += row
            text = {"cls": x[0], "last": x[-1], "mean": total * (np.float32(1) / np.float32(len(x)))}[kind]
            self.emit(
                op, [a], [], {"kind": kind}, [self.widths[a]], [np.tile(text, (len(self.wanted), 1))], True
            )
            return
        out = self.emit(op, [a], [], {}, [self.widths[a]], [x[self.wanted]], True)
        if a in self.routes:
            logits, route = self.routes[a]
            self.routes[out] = logits[self.wanted], route

    def mix(self, a: int) -> None:
        width, chosen = self.widths[a], self.selected[a]
        routers = [ids for ids in self.routes if self.selected[ids] == chosen]
        if width % 16 or not routers:
            return
        ids = self.pick(*routers)
        logits, route = self.routes[ids]
        shares = [
            v for v in range(len(self.widths)) if self.widths[v] == route["k"] and self.selected[v] == chosen
        ]
        share = ids + 1 if ids + 1 in shares and same_bits(self.values[ids + 1], self.share(ids)) else None
        if share is None:
            return
        experts, hidden = logits.shape[1], self.pick(16, 32, 64)
        weights = [self.matrix(experts * hidden, width) for _ in range(self.pick(1, 2))]
        weights.append(self.matrix(experts * width, hidden))
        attrs = {"act": self.pick(*ACTS), "experts": experts}
        y = mixture(self.values[a], logits, route, weights, attrs)
        self.emit("experts", [a, ids, share], weights, attrs, [width], [y], chosen)

    def share(self, ids: int) -> np.ndarray:
        logits, route = self.routes[ids]
        return evaluate("route", [logits], route, (), [route["k"]] * 2, out=1)

    def compute(self, op: str, a: int) -> None:
        rng, x, width, chosen = self.rng, self.values[a], self.widths[a], self.selected[a]
        alike = [b for b in range(len(self.widths)) if self.selected[b] == chosen]
        same = [b for b in alike if self.widths[b] == width]
        args, weights, attrs, widths = [a], [], {}, [width]
        wide = self.pick(1, 16, 33, 64, 80)
        if op in ("linear", "linear_act", "linear_group", "glu"):
            weights = [self.matrix(wide, width) for _ in range(1 if op in ("linear", "linear_act") else 2)]
            widths = [wide] * (2 if op == "linear_group" else 1)
            act = {"act": self.pick(*ACTS)}
            attrs = {"linear_group": {"bias": (False, False)}, "linear_act": act, "glu": act}.get(op, {})
        elif op == "linear_add":
            args, weights = [self.pick(*same), a], [self.matrix(width, width)]
        elif op in ("add", "mul"):
            args = [a, self.pick(*same)]
        elif op in ("rms_norm", "rms_norm_add", "add_rms_norm"):
            attrs = {"eps": 1e-3, "groups": self.divisor(width)}
            parts = self.pick(0, width, width // attrs["groups"])
            weights = [self.vector(parts)] if parts else []
            if op != "rms_norm":
                args = [a, self.pick(*same)]
            widths = [width] * (2 if op == "add_rms_norm" else 1)
        elif op == "layer_norm":
            attrs = {"eps": 1e-3}
            weights = [self.vector(width) for _ in range(self.pick(0, 1, 2))]
        elif op == "columns":
            heads = self.divisor(width)
            start = int(rng.integers(width // heads))
            attrs = {
                "heads": heads,
                "start": start,
                "width": int(rng.integers(1, width // heads - start + 1)),
            }
            widths = [heads * attrs["width"]]
        elif op == "concat":
            b = self.pick(*alike)
            heads = np.gcd(width, self.widths[b])
            args, attrs, widths = [a, b], {"heads": int(heads)}, [width + self.widths[b]]
        elif op == "affine":
            has = self.pick("w", "b", "wb")
            weights, attrs = [self.vector(self.divisor(width)) for _ in has], {"has": has}
        elif op == "mul_heads":
            args = [a, self.pick(*(b for b in alike if width % self.widths[b] == 0))]
        elif op in ("rope", "rope_norm"):
            head = self.divisor(width)
            if head < 2:
                return
            pairs = int(rng.integers(1, head // 2 + 1))
            attrs = {
                "head_dim": head,
                "style": self.pick("half", "pairs"),
                "freqs": rng.random(pairs),
                "factor": 1.0,
            }
            attrs["offset"] = int(rng.integers(0, head - 2 * pairs + 1))
            if op == "rope_norm":
                attrs["eps"] = 1e-3
        elif op == "route":
            k = int(rng.integers(1, min(width, 6) + 1))
            attrs, widths = (
                {"kind": self.pick("softmax", "sigmoid", "softmax_chosen"), "k": k, "norm": 1, "scale": 1.0},
                [k, k],
            )
        elif op == "given":
            if chosen or self.takes_vectors:
                return
            self.takes_vectors = True
        else:
            attrs = {"unary": {"kind": self.pick(*ACTS)}, "scale": {"by": 0.5}, "softcap": {"cap": 3.0}}[op]
        inputs = [self.values[v] for v in args]
        if max(widths) > 200:
            return
        results = [np.empty((0, w), np.float32) for w in widths]
        if len(x):
            positions = self.wanted if chosen else None
            results = [
                evaluate(op, inputs, attrs, weights, widths, out=i, positions=positions)
                for i in range(len(widths))
            ]
        first = self.emit(op, args, weights, attrs, widths, results, chosen)
        if op == "route":
            self.routes[first] = x, attrs


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    rows=st.sampled_from([1, 2, 5, 20, 70]),
    length=st.integers(1, 25),
    threads=st.sampled_from([1, 2, 3]),
)
def test_a_program_is_its_records_one_by_one(seed, rows, length, threads):
    """Values share memory, stages, activations and threads; none of it may show."""
    rng = np.random.default_rng(seed)
    wanted = rng.integers(0, rows, rng.integers(1, rows + 3)).astype(np.int32)
    program = Program(rng, rows, wanted)
    with np.errstate(all="ignore"):
        while len(program.records) < length:
            program.grow()
    plan = Plan(program.records, program.widths, program.weights, max_rows=rows)
    out = np.full((len(wanted), program.widths[-1]), np.nan, np.float32)
    numbers = np.arange(rows, dtype=np.int32)
    plan.run(numbers, numbers, [], [], wanted, out, POOLS[threads])
    value = program.values[-1]
    assert same_bits(out, value if program.selected[-1] else value[wanted])


@pytest.mark.parametrize(
    "formats", [("F32", "Q8_0"), ("Q8_0", "F32"), ("F32", "Q8_0", "F32", "Q4_0")], ids=str
)
@pytest.mark.parametrize("threads", [1, 3])
def test_products_of_one_value_in_several_forms_stay_together(formats, threads):
    """Where another stage has to begin between the forms that the value takes: rows of the other kind wait."""
    x, other, rng = values(1, 9, 64, 0), values(2, 9, 64, 0), np.random.default_rng(3)
    matrices = [
        Weight(np.frombuffer(random_data(rng, fmt, 48, 64), np.uint8), fmt, 48, 64) for fmt in formats
    ]
    n = len(formats)
    outs = tuple(range(3, 3 + n))
    records = [
        ("embed", (0,), (), (0,), {}),
        ("select", (1,), (0,), (), {}),
        ("embed", (2,), (), (1,), {}),
        ("linear_group", outs, (1,), tuple(range(2, 2 + n)), {"bias": [0] * n}),
        ("select", (3 + n,), (2,), (), {}),
        *(("concat", (4 + n + i,), (3 + n + i, outs[i]), (), {"heads": 1}) for i in range(n)),
    ]
    widths = [64, 64, 64, *[48] * n, 64, *(64 + 48 * (i + 1) for i in range(n))]
    plan = Plan(records, widths, [weight(x), weight(other), *matrices], max_rows=9)
    y = run_rows(plan, [(None, range(9), 0, 4)], POOLS[threads])
    parts = [evaluate("linear", [x[5:]], {}, [m], [48]) for m in matrices]
    assert same_bits(y, np.concatenate([other[5:], *parts], 1))


def test_measured_runs_name_every_record():
    rng = np.random.default_rng(4)
    program = Program(rng, 5, np.array([4, 4, 0], np.int32))
    while len(program.records) < 40:
        program.grow()
    plan = Plan(program.records, program.widths, program.weights, max_rows=5)
    plan.measure()
    out, numbers = np.zeros((3, plan.output_width), np.float32), np.arange(5, dtype=np.int32)
    plan.run(numbers, numbers, [], [], program.wanted, out, ONE)
    assert set(plan.profile()["operations"]) == {r[0] for r in program.records}
    assert all(f"[{i}]" in plan.describe() for i in range(40))
