"""Making plans: refused records and their error messages."""

from types import SimpleNamespace

import numpy as np
import pytest
from plans import ONE, same_bits, weight

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
    (
        ("linear_act", (2,), (1,), (1,), {"act": "swish"}),
        'act must be one of "silu", "gelu_tanh", .*, not "swish"',
    ),
    (
        ("glu", (2,), (1,), (1, 1), {"act": "swish"}),
        'act must be one of "silu", "gelu_tanh", .*, not "swish"',
    ),
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
    (("unary", (-1,), (1,), (), {"kind": "silu"}), "makes value -1, but there are 4 widths"),
    (("linear", (2,), (1,), (-1,), {}), "names weight -1, but there are 4"),
    (("unary", (2,), (1,), (), {"kind": 1}), "attribute 'kind' must be a string"),
    (("columns", (2,), (1,), (), {"start": 0.5, "width": 1, "heads": 1}), "'start' must be a whole number"),
    (("rope", (2,), (1,), (), {**ROPE, "freqs": 1.0}), "attribute 'freqs' must be a list of numbers"),
    (
        ("rope", (2,), (1,), (), {**ROPE, "head_dim": 1 << 31}),
        "'head_dim' is 2147483648; it must be 1 or more",
    ),
    (("unary", (3,), (1,), (), {"kind": "silu"}), "value 3 has width 5 but its input has 8"),
    (("scale", (3,), (1,), (), {"by": 1.0}), "value 3 has width 5 but its input has 8"),
    (("embed", (3,), (), (1,), {}), "value 3 has width 5 but the table's columns are 8"),
    (("embed_types", (3,), (), (1,), {}), "value 3 has width 5 but the table's columns are 8"),
    (("embed_positions", (3,), (), (1,), {}), "value 3 has width 5 but the table's columns are 8"),
    (("given", (3,), (1,), (), {}), "value 3 has width 5 but its input has 8"),
    (("select", (3,), (1,), (), {}), "value 3 has width 5 but its input has 8"),
    (("pool", (3,), (1,), (), {"kind": "mean"}), "value 3 has width 5 but its input has 8"),
    (("pool", (2,), (1,), (), {"kind": "max"}), 'kind must be one of "mean", "cls", "last", not "max"'),
    (
        ("columns", (2,), (1,), (), {"start": 0, "width": 1, "heads": 3}),
        "value 1 has width 8, which does not divide into 3 heads",
    ),
    (
        ("columns", (2,), (1,), (), {"start": 3, "width": 2, "heads": 2}),
        "columns 3 to 5 are beyond a head of 4",
    ),
    (
        ("columns", (2,), (1,), (), {"start": 0, "width": 2, "heads": 2}),
        r"value 2 has width 8 but heads \* width is 4",
    ),
    (
        ("columns", (2,), (1,), (), {"start": -1, "width": 2, "heads": 2}),
        "attribute 'start' is -1; it must be 0 or more",
    ),
    (
        ("columns", (2,), (1,), (), {"start": 0, "width": 0, "heads": 2}),
        "attribute 'width' is 0; it must be 1 or more",
    ),
    (("concat", (2,), (0, 1), (), {"heads": 3}), "value 0 has width 4, which does not divide into 3 heads"),
    (("concat", (2,), (0, 1), (), {"heads": 8}), "value 0 has width 4, which does not divide into 8 heads"),
    (("concat", (2,), (0, 1), (), {"heads": 4}), "value 2 has width 8 but its inputs have 12"),
    (("affine", (2,), (1,), (2,), {"has": "x"}), 'has must be one of "w", "b", "wb", not "x"'),
    (("affine", (2,), (1,), (2,), {"has": "wb"}), 'takes 2 weights where has is "wb", not 1'),
    (("affine", (2,), (1,), (2, 2), {"has": "b"}), 'takes 1 weight where has is "b", not 2'),
    (("affine", (2,), (1,), (3,), {"has": "w"}), "width 8 does not divide into the 5 parts of the vector"),
    (("affine", (2,), (0,), (2,), {"has": "w"}), "width 4 does not divide into the 8 parts of the vector"),
    (("affine", (2,), (1,), (1,), {"has": "w"}), "the vector is 8 x 8 but a vector is needed"),
    (("affine", (3,), (1,), (2,), {"has": "w"}), "value 3 has width 5 but its input has 8"),
    (("mul_heads", (2,), (0, 1), (), {}), "width 4 does not divide into the 8 parts of the second input"),
    (("mul_heads", (3,), (1, 0), (), {}), "value 3 has width 5 but its input has 8"),
    (("rms_norm", (2,), (1,), (), {"eps": 0.1, "groups": 3}), "width 8 does not divide into 3 groups"),
    (
        ("rms_norm", (2,), (1,), (), {"eps": 0.1, "groups": 0}),
        "attribute 'groups' is 0; it must be 1 or more",
    ),
    (
        ("rms_norm", (2,), (1,), (3,), {"eps": 0.1, "groups": 2}),
        "width 8 is not a multiple of the weight's 5",
    ),
    (("rms_norm", (3,), (1,), (), {"eps": 0.1}), "value 3 has width 5 but its input has 8"),
    (("layer_norm", (3,), (1,), (), {"eps": 0.1}), "value 3 has width 5 but its input has 8"),
    (("rms_norm_add", (2,), (0, 1), (), {"eps": 0.1}), "value 2 has width 8 but its input has 4"),
    (("glu", (2,), (1,), (1, 0), {"act": "silu"}), "the weight is 8 x 4 but the value it meets has width 8"),
    (("rope", (3,), (1,), (), ROPE), "value 3 has width 5 but its input has 8"),
    (("rope", (2,), (1,), (), {**ROPE, "freqs": []}), "0 frequencies do not fit a head of 8 dimensions"),
    (
        ("rope", (2,), (1,), (), {**ROPE, "offset": 1}),
        "4 frequencies do not fit a head of 8 dimensions from the 1th on",
    ),
    (("rope", (2,), (1,), (), {**ROPE, "offset": -1}), "attribute 'offset' is -1; it must be 0 or more"),
    (("rope", (2,), (1,), (), {**ROPE, "axes": [0, 1, 2]}), "3 axes for 4 frequencies"),
    (("rope", (2,), (1,), (), {**ROPE, "axes": [0, 1, 2, 8]}), "an axis must be a whole number from 0 to 7"),
    (
        ("rope", (2,), (1,), (), {**ROPE, "axes": [0, 1, 2, 0.5]}),
        "an axis must be a whole number from 0 to 7",
    ),
    (
        ("rope", (2,), (1,), (), {**ROPE, "axes": [0, 1, 2, np.nan]}),
        "an axis must be a whole number from 0 to 7",
    ),
    (("rope", (2,), (1,), (), {**ROPE, "freqs": [1, 1, 1, 65537]}), "a frequency must lie in -65536..65536"),
    (("rope_norm", (2,), (1,), (3,), {**ROPE, "eps": 0.1}), "width 8 is not a multiple of the weight's 5"),
    (
        ("rope_norm", (2,), (1,), (), {**ROPE, "eps": 0.1, "head_dim": 3}),
        "width 8 is not a multiple of head_dim 3",
    ),
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


def test_operations_on_two_values_need_the_same_rows_of_both():
    select = ("select", (1,), (0,), (), {})
    for record in (
        ("concat", (2,), (0, 1), (), {"heads": 1}),
        ("mul_heads", (2,), (1, 0), (), {}),
        ("rms_norm_add", (2,), (1, 0), (), {"eps": 0.1}),
        ("linear_add", (2,), (1, 0), (1,), {}),
    ):
        widths = [4, 4, 8 if record[0] == "concat" else 4]
        with pytest.raises(PlanError, match="one input holds selected rows only, the other all rows"):
            Plan([EMBED, select, record], widths, [W, weight(np.ones((4, 4)))], max_rows=1)


def test_what_is_given_stands_among_all_rows_and_once():
    given = ("given", (1,), (0,), (), {})
    assert Plan([EMBED, given], [4, 4], [W], max_rows=1).vector_width == 4
    with pytest.raises(
        PlanError, match=r"record 2 \(given\): vectors are taken by a record before it already"
    ):
        Plan([EMBED, given, ("given", (2,), (1,), (), {})], [4, 4, 4], [W], max_rows=1)
    with pytest.raises(PlanError, match=r"record 2 \(given\): comes after select, but it needs all rows"):
        Plan(
            [EMBED, ("select", (1,), (0,), (), {}), ("given", (2,), (1,), (), {})], [4, 4, 4], [W], max_rows=1
        )
    pool = ("pool", (2,), (1,), (), {"kind": "mean"})
    with pytest.raises(PlanError, match=r"record 2 \(pool\): its input holds selected rows only already"):
        Plan([EMBED, ("select", (1,), (0,), (), {}), pool], [4, 4, 4], [W], max_rows=1)


def test_weights_of_a_norm_are_one_a_group_or_one_a_number():
    norm = ("rms_norm", (1,), (0,), (1,), {"eps": 0.1, "groups": 2})
    with pytest.raises(PlanError, match="the norm's weight has 2 numbers for 2 groups of 4"):
        Plan([EMBED, norm], [8, 8], [SQUARE, weight(np.ones((1, 2)))], max_rows=1)


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


def test_measuring_says_where_the_time_went():
    big = weight(np.ones((64, 64)))
    plan = Plan([EMBED, ("linear", (1,), (0,), (1,), {})], [64, 64], [big, big], max_rows=8)
    rows = np.arange(8, dtype=np.int32)
    out = np.empty((8, 64), np.float32)
    plan.measure()
    for _ in range(3):
        plan.run(rows, rows, [], [], rows, out, ONE)
    profile = plan.profile()
    assert profile["runs"] == 3
    assert set(profile["operations"]) == {"embed", "linear"}
    assert len(profile["records"]) == 2
    spent = sum(profile["operations"].values()) + profile["wait"] + profile["prepare"]
    assert 0 < spent <= profile["total"]
    plan.measure(False)
    plan.run(rows, rows, [], [], rows, out, ONE)
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
            plan.run(rows, rows, [], [], rows, out, ONE)
            results.append(out)
    finally:
        lk.use_isa(before)
    assert all(same_bits(results[0], r) for r in results)


def test_rows_that_no_run_could_lay_out_are_refused():
    """Each width is allowed, but their sum times the rows must not wrap around."""
    records = [("embed", (0,), (), (0,), {})]
    widths = [1]
    for i in range(31):
        records.append(("concat", (i + 1,), (i, i), (), {"heads": 1}))
        widths.append(2 * widths[-1])
    for _ in range(40):
        n = len(widths)
        records.append(("scale", (n,), (n - 1,), (), {"by": 2.0}))
        widths.append(widths[-1])
    with pytest.raises(PlanError, match="more than a run can lay out"):
        Plan(records, widths, [weight(np.ones((1, 1)))], max_rows=1 << 20)
    assert Plan(records[:3], widths[:3], [weight(np.ones((1, 1)))], max_rows=1 << 20).output_width == 4
