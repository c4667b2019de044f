"""Making plans: what is refused and how it is said; and that the whole is its parts, whatever the schedule."""

from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import evaluate, same_bits, weight

import llamay_kernels as lk
from llamay_kernels import Plan, PlanError, Threads

W = weight(np.ones((8, 4)))  # an embedding, or a product from 4 to 8
SQUARE = weight(np.ones((8, 8)))
VECTOR = weight(np.ones((1, 8)))
LONG = weight(np.ones((1, 5)))
EMBED = ("embed", (0,), (), (0,), {})
ROPE = {"head_dim": 8, "style": "half", "freqs": np.ones(4), "factor": 1.0}
ATTENTION = {
    "layer": 0,
    "heads": 2,
    "kv_heads": 2,
    "k_dim": 2,
    "v_dim": 2,
    "scale": 1.0,
    "window": 0,
    "softcap": 0.0,
}

# Records after an embedding of width 4 (value 0) and its widening to 8 (value 1), and the error.
REFUSED = [
    (
        ("embedd", (2,), (0,), (), {}),
        r"record 2 \(embedd\): unknown operation; there are add, add_rms_norm, affine, .*unary",
    ),
    (("unary", (2,), (1, 1), (), {"kind": "silu"}), "takes 1 args, not 2"),
    (("linear", (2,), (1,), (), {}), "takes 1 to 2 weights, not 0"),
    (("linear_group", (2,), (1,), (), {"bias": ()}), "takes 1 or more weights, not 0"),
    (("add_rms_norm", (2,), (1, 1), (2,), {"eps": 0.1}), "takes 2 outs, not 1"),
    (("unary", (2,), (3,), (), {"kind": "silu"}), "reads value 3, which no record before it makes"),
    (("unary", (2,), (-1,), (), {"kind": "silu"}), "reads value -1, which no record before it makes"),
    (("unary", (1,), (1,), (), {"kind": "silu"}), "makes value 1 a second time"),
    (("unary", (9,), (1,), (), {"kind": "silu"}), "makes value 9, but there are 4 widths"),
    (("linear", (2,), (1,), (7,), {}), "names weight 7, but there are 4"),
    (("scale", (2,), (1,), (), {}), "lacks the attribute 'by'"),
    (("scale", (2,), (1,), (), {"by": 1, "bias": 2}), "unknown attribute 'bias'; it has by"),
    (("add", (2,), (1, 1), (), {"by": 1}), "unknown attribute 'by'; it has none"),
    (("unary", (2,), (1,), (), {"kind": "sin"}), 'kind must be one of "silu", "gelu_tanh", .*, not "sin"'),
    (("scale", (2,), (1,), (), {"by": "one"}), "attribute 'by' must be a number"),
    (("scale", (2,), (1,), (), {"by": float("nan")}), "attribute 'by' must be finite in float32"),
    (
        ("scale", (2,), (1,), (), {"by": {}}),
        "attribute 'by' is neither a number, a string nor a list of numbers",
    ),
    (("add", (2,), (0, 1), (), {}), "value 2 has width 8 but its input has 4"),
    (("add", (2,), (1, 0), (), {}), "value 0 has width 4 but the other input has 8"),
    (("linear", (2,), (0,), (1,), {}), "the weight is 8 x 8 but the value it meets has width 4"),
    (("linear", (3,), (1,), (1,), {}), "the weight is 8 x 8 but its output has width 5"),
    (("linear", (2,), (1,), (1, 3), {}), "the bias is 1 x 5 but a vector of 8 is needed"),
    (("linear_group", (2,), (1,), (1, 2), {"bias": (False,)}), "more weights than its outs and biases need"),
    (("linear_group", (2,), (1,), (1,), {"bias": (True,)}), "fewer weights than its outs and biases need"),
    (("linear_group", (2,), (1,), (1,), {"bias": ()}), "bias has 0 entries for 1 outs"),
    (("linear_add", (2,), (0, 1), (1,), {}), "value 0 has width 4 but the product has 8"),
    (("rms_norm", (2,), (1,), (1,), {"eps": 1e-5}), "the norm's weight is 8 x 8 but a vector is needed"),
    (("rms_norm", (2,), (1,), (3,), {"eps": 1e-5}), "width 8 is not a multiple of the weight's 5"),
    (("rms_norm", (2,), (1,), (2,), {"eps": -1.0}), "eps must not be negative"),
    (
        ("layer_norm", (2,), (1,), (0,), {"eps": 1e-5}),
        "the norm's weight is 8 x 4 but a vector of 8 is needed",
    ),
    (
        ("layer_norm", (2,), (1,), (2, 3), {"eps": 1e-5}),
        "the norm's bias is 1 x 5 but a vector of 8 is needed",
    ),
    (("layer_norm", (2,), (1,), (2,), {"eps": -1.0}), "eps must not be negative"),
    (("softcap", (2,), (1,), (), {"cap": 0.0}), "cap must be positive"),
    (("linear_act", (2,), (1,), (1,), {"act": "swish"}), 'act must be one of "silu", "gelu_tanh", .*, not "swish"'),
    (("glu", (2,), (1,), (1, 1), {"act": "swish"}), 'act must be one of "silu", "gelu_tanh", .*, not "swish"'),
    (("rope", (2,), (1,), (), {**ROPE, "style": "neox"}), 'style must be one of "half", "pairs", not "neox"'),
    (("rope", (2,), (1,), (), {**ROPE, "head_dim": 3}), "width 8 is not a multiple of head_dim 3"),
    (("rope", (2,), (1,), (), {**ROPE, "head_dim": 0}), "attribute 'head_dim' is 0; it must be 1 or more"),
    (
        ("rope", (2,), (1,), (), {**ROPE, "freqs": np.ones(5)}),
        "5 frequencies do not fit a head of 8 dimensions",
    ),
    (("rope", (2,), (1,), (), {**ROPE, "freqs": [np.inf] * 4}), "a frequency must lie in -65536..65536"),
    (("attention", (2,), (1, 1, 1), (), {**ATTENTION, "heads": 3}), "3 query heads do not divide among 2"),
    (("attention", (2,), (1, 1, 1), (), ATTENTION), r"value 1 has width 8 but heads \* k_dim is 4"),
    (
        ("attention", (2,), (1, 1, 1), (), {**ATTENTION, "window": -1}),
        "attribute 'window' is -1; it must be 0 or more",
    ),
    (
        ("attention", (2,), (1, 1, 1), (), {**ATTENTION, "scale": np.ones(2)}),
        "attribute 'scale' must be a number",
    ),
    (("attention", (2,), (1, 1, 1), (), {**ATTENTION, "layer": 1 << 20}), "layer 1048576 is beyond 65535"),
]


@pytest.mark.parametrize(("record", "message"), REFUSED, ids=lambda x: x if isinstance(x, str) else x[0])
def test_a_record_that_cannot_be_is_named(record, message):
    records = [EMBED, ("linear", (1,), (0,), (0,), {}), record]
    with pytest.raises(
        PlanError, match=rf"record 2 \({record[0]}\): .*{message}" if "record" not in message else message
    ):
        Plan(records, [4, 8, 8, 5], [W, SQUARE, VECTOR, LONG], max_rows=4)


def test_plans_that_cannot_be_as_a_whole():
    with pytest.raises(PlanError, match="a plan needs at least one record"):
        Plan([], [], [], max_rows=1)
    with pytest.raises(PlanError, match="value 0 has width 0; it must be 1 to"):
        Plan([EMBED], [0], [W], max_rows=1)
    for rows in (0, -1, 1 << 21):
        with pytest.raises(PlanError, match=rf"max_rows must be 1 to 1048576, not {rows}"):
            Plan([EMBED], [4], [W], max_rows=rows)
    with pytest.raises(TypeError, match=r"weights\[0\] is not a Weight"):
        Plan([EMBED], [4], [np.ones((8, 4), np.float32)], max_rows=1)
    with pytest.raises(PlanError, match="record 0 has 4 parts; it needs op, outs, args, weights, attrs"):
        Plan([EMBED[:4]], [4], [W], max_rows=1)
    with pytest.raises(PlanError, match="record 0 lacks attrs"):
        Plan([SimpleNamespace(op="embed", outs=(0,), args=(), weights=(0,))], [4], [W], max_rows=1)
    with pytest.raises(PlanError, match=r"record 0 \(embed\): outs must be a sequence of whole numbers"):
        Plan([("embed", ("x",), (), (0,), {})], [4], [W], max_rows=1)
    assert issubclass(PlanError, ValueError)


def test_selected_rows_and_all_rows_do_not_mix():
    select = ("select", (1,), (0,), (), {})
    with pytest.raises(
        PlanError, match=r"record 2 \(add\): one input holds selected rows only, the other all rows"
    ):
        Plan([EMBED, select, ("add", (2,), (0, 1), (), {})], [4, 4, 4], [W], max_rows=1)
    with pytest.raises(PlanError, match=r"record 2 \(select\): its input holds selected rows only already"):
        Plan([EMBED, select, ("select", (2,), (1,), (), {})], [4, 4, 4], [W], max_rows=1)
    attention = ("attention", (2,), (1, 1, 1), (), ATTENTION)
    with pytest.raises(PlanError, match=r"record 2 \(attention\): comes after select, but it needs all rows"):
        Plan([EMBED, select, attention], [4, 4, 4], [W], max_rows=1)


def test_a_layer_has_one_attention():
    attention = ("attention", (1,), (0, 0, 0), (), ATTENTION)
    again = ("attention", (2,), (1, 1, 1), (), ATTENTION)
    with pytest.raises(PlanError, match=r"record 2 \(attention\): layer 0 has an attention already"):
        Plan([EMBED, attention, again], [4, 4, 4], [W], max_rows=1)


def test_records_may_be_objects_and_attributes_numpy_scalars():
    record = SimpleNamespace(op="scale", outs=(1,), args=[0], weights=(), attrs={"by": np.float32(2)})
    plan = Plan([EMBED, record], np.array([4, 4]).tolist(), [W], max_rows=3)
    assert (plan.output_width, plan.max_rows) == (4, 3)
    assert plan.describe().startswith("0: embed[0]; scale[1]; shared scale[1]")


def test_a_plan_keeps_its_weights():
    plan = Plan([EMBED], [4], [weight(np.arange(32).reshape(8, 4))], max_rows=1)
    out = np.empty((1, 4), np.float32)
    plan.run(np.array([7], np.int32), np.zeros(1, np.int32), [], [], np.zeros(1, np.int32), out, Threads(1))
    assert out.tolist() == [[28.0, 29.0, 30.0, 31.0]]


# -- the whole is its parts


@dataclass
class Program:
    """A random straight-line program: its records, and its value computed one plan a record."""

    rng: np.random.Generator
    rows: int
    wanted: np.ndarray
    records: list = field(default_factory=list)
    widths: list[int] = field(default_factory=list)
    weights: list = field(default_factory=list)
    values: list[np.ndarray] = field(default_factory=list)
    selected: list[bool] = field(default_factory=list)

    def add_weight(self, rows: int, cols: int) -> tuple[int, np.ndarray]:
        array = self.rng.standard_normal((rows, cols)).astype(np.float32)
        self.weights.append(weight(array))
        return len(self.weights) - 1, array

    def emit(self, op, args, weights, attrs, widths, values, selected) -> None:
        first = len(self.widths)
        self.widths += widths
        self.values += values
        self.selected += [selected] * len(widths)
        outs = tuple(range(first, first + len(widths)))
        self.records.append((op, outs, tuple(args), tuple(w for w, _ in weights), attrs))

    def grow(self) -> None:
        rng, n = self.rng, len(self.widths)
        op = rng.choice(
            [
                "embed",
                "linear",
                "linear_group",
                "glu",
                "linear_act",
                "linear_add",
                "unary",
                "add",
                "add_rms_norm",
                "rms_norm",
                "rms_norm_add",
                "select",
                "mul",
            ]
        )
        if n == 0 or op == "embed":
            table = self.add_weight(self.rows, int(rng.choice([1, 7, 16, 40])))
            self.emit("embed", [], [table], {}, [table[1].shape[1]], [table[1]], False)
            return
        a = int(rng.integers(max(0, n - 6), n))
        x, width, chosen = self.values[a], self.widths[a], self.selected[a]
        if op == "select":
            if not chosen:
                self.emit(op, [a], [], {}, [width], [x[self.wanted]], True)
            return
        alike = [b for b in range(n) if self.widths[b] == width and self.selected[b] == chosen]
        b = int(rng.choice(alike))
        attrs, weights, inputs, args, widths = {}, [], [x], [a], [width]
        wide = int(rng.choice([1, 16, 33, 80]))
        if op in ("linear", "linear_act", "linear_group", "glu"):
            count = 1 if op in ("linear", "linear_act") else 2
            weights = [self.add_weight(wide, width) for _ in range(count)]
            widths = [wide] * (2 if op == "linear_group" else 1)
            act = {"act": "gelu_tanh"}
            attrs = {"linear_group": {"bias": (False, False)}, "linear_act": act, "glu": act}.get(op, {})
        elif op == "linear_add":
            inputs, args = [self.values[b], x], [b, a]
            weights = [self.add_weight(width, width)]
        elif op in ("add", "mul"):
            inputs, args = [x, self.values[b]], [a, b]
        elif op == "unary":
            attrs = {"kind": "silu"}
        else:
            weights, attrs = [self.add_weight(1, width)], {"eps": 1e-3}
            if op != "rms_norm":
                inputs, args = [x, self.values[b]], [a, b]
            widths = [width] * (2 if op == "add_rms_norm" else 1)
        arrays = [w for _, w in weights]
        if len(x) == 0:
            results = [np.empty((0, w), np.float32) for w in widths]
        else:
            results = [evaluate(op, inputs, attrs, arrays, widths, out=i) for i in range(len(widths))]
        self.emit(op, args, weights, attrs, widths, results, chosen)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    rows=st.sampled_from([1, 2, 5, 20, 70]),
    length=st.integers(1, 25),
    threads=st.sampled_from([1, 2, 3]),
)
def test_a_program_is_its_records_one_by_one(seed, rows, length, threads):
    """Values share memory, stages, activations and threads; none of it may show."""
    rng = np.random.default_rng(seed)
    wanted = rng.integers(0, rows, rng.integers(1, rows + 1)).astype(np.int32)
    program = Program(rng, rows, wanted)
    while len(program.records) < length:
        program.grow()
    plan = Plan(program.records, program.widths, program.weights, max_rows=rows)
    out = np.full((len(wanted), program.widths[-1]), np.nan, np.float32)
    numbers = np.arange(rows, dtype=np.int32)
    plan.run(numbers, numbers, [], [], wanted, out, POOLS[threads])
    value = program.values[-1]
    assert same_bits(out, value if program.selected[-1] else value[wanted])


POOLS = {n: Threads(n, grain=0) for n in (1, 2, 3)}


def test_measuring_says_where_the_time_went():
    big = weight(np.ones((64, 64)))
    plan = Plan([EMBED, ("linear", (1,), (0,), (1,), {})], [64, 64], [big, big], max_rows=8)
    rows = np.arange(8, dtype=np.int32)
    out = np.empty((8, 64), np.float32)
    plan.measure()
    for _ in range(3):
        plan.run(rows, rows, [], [], rows, out, POOLS[1])
    profile = plan.profile()
    assert profile["runs"] == 3
    assert set(profile["operations"]) == {"embed", "linear"}
    assert len(profile["records"]) == 2
    spent = sum(profile["operations"].values()) + profile["wait"] + profile["prepare"]
    assert 0 < spent <= profile["total"]
    plan.measure(False)
    plan.run(rows, rows, [], [], rows, out, POOLS[1])
    assert plan.profile()["runs"] == 0


def test_an_isa_can_be_switched_between_runs_of_one_plan():
    before, rng = lk.isa(), np.random.default_rng(0)
    table = weight(rng.standard_normal((4, 33)))
    plan = Plan([EMBED, ("unary", (1,), (0,), (), {"kind": "silu"})], [33, 33], [table], max_rows=4)
    rows, results = np.arange(4, dtype=np.int32), []
    try:
        for isa in lk.runnable_isas():
            lk.use_isa(isa)
            out = np.empty((4, 33), np.float32)
            plan.run(rows, rows, [], [], rows, out, POOLS[1])
            results.append(out)
    finally:
        lk.use_isa(before)
    assert all(same_bits(results[0], r) for r in results)
