"""Weights and values of a plan: which tensor is meant, whose value it is, and sizes that are whole numbers."""

import re

import numpy as np
import pytest

from llamay_models.errors import PlanError, TensorError
from llamay_models.plan import (
    ArrayTensor,
    Needs,
    Reference,
    Rope,
    Trace,
    Update,
    Weights,
    adapt,
    evaluate,
    outline,
)


def weight(name, *shape):
    return ArrayTensor(name, np.random.default_rng([*name.encode(), *shape]).normal(size=shape))


TABLE = weight("table", 8, 12)


def embedded(g):
    return g.embed(TABLE, 8, 12)


# -- one name, one tensor


@pytest.mark.parametrize("g", [Trace(), Reference([1, 2])], ids=["trace", "reference"])
def test_two_tensors_of_one_name_are_refused(g):
    x = g.linear(embedded(g), ArrayTensor("q", np.eye(12)), 12)
    for twin in (ArrayTensor("q", 2 * np.eye(12)), ArrayTensor("q", np.eye(12)), weight("q", 7, 12)):
        with pytest.raises(PlanError, match="linear: there are two tensors q; give each a name of its own"):
            g.linear(x, twin, twin.rows)
    with pytest.raises(PlanError, match="affine: there are two tensors q"):
        g.affine(x, weight("q", 12))
    with pytest.raises(PlanError, match="linear_split: there are two tensors q"):
        g.linear_split(x, weight("q", 12, 12), (6, 6))


def test_one_tensor_in_several_uses_is_one_tensor():
    g, qkv, norm = Trace(), weight("qkv", 36, 12), weight("norm", 3, 4)
    x = embedded(g)
    for _ in range(2):
        g.linear_split(x, qkv, (12, 24))
        g.linear(x, qkv, 36)
        g.affine(x, norm)
        g.linear(x, TABLE, 8)
    assert [t.name for t in g.program().tensors] == ["table", "qkv[0:12]", "qkv[12:36]", "qkv", "norm"]


def test_a_part_is_not_taken_for_a_tensor_of_the_parts_name():
    g, q = Trace(), weight("q", 4, 12)
    x = embedded(g)
    g.linear_split(x, q, (2, 2))
    g.linear(x, weight("q[0:2]", 2, 12), 2)
    first, *_, last = (r for r in g.program().records if r.op == "linear")
    assert first.weights != last.weights


def test_outlines_and_adapted_programs_share_names():
    g, q = Trace(), weight("q", 12, 12)
    g.linear(g.linear(embedded(g), q, 12), q, 12)
    update = Update(weight("a", 2, 12), weight("b", 12, 2), 0.5)
    adapted = adapt(outline(g.program()), {"q": update})
    assert [t.name for t in adapted.tensors] == ["table", "q", "a", "b"]


# -- values


@pytest.mark.parametrize("kind", [Trace, lambda: Reference([1])], ids=["trace", "reference"])
def test_values_of_another_recorder_are_refused(kind):
    one, other = kind(), kind()
    x1, x2 = embedded(one), embedded(other)
    for use in (
        lambda g: g.add(x1, x2),
        lambda g: g.linear(x2, weight("q", 12, 12), 12),
        lambda g: g.rope(x2, 2, Rope(6, 100.0)),
        lambda g: g.rope(x2, 2, None),
        lambda g: g.attention(0, x1, x1, x2, heads=1, kv_heads=1, scale=1.0),
        lambda g: g.select(x2),
    ):
        with pytest.raises(PlanError, match=r": table is a value of another (Trace|Reference); one plan has"):
            use(one)
    assert [r.op for r in one.records] == ["embed"]


def test_what_is_no_value_is_refused():
    g = Trace()
    x = embedded(g)
    for use in (
        lambda: g.rope(3, 2, None),
        lambda: g.rms_norm(np.zeros((1, 12)), None, 1e-5),
        lambda: g._record("add", [(12, "sum")], [x, "table"]),
    ):
        with pytest.raises(PlanError, match="an argument must be a value that an operation made, not "):
            use()


# -- layers


@pytest.mark.parametrize("g", [Trace(), Reference([1, 2])], ids=["trace", "reference"])
def test_two_operations_cannot_keep_one_layer(g):
    x = embedded(g)
    attention = {"heads": 2, "kv_heads": 2, "scale": 1.0}
    x = g.attention(3, x, x, x, **attention)
    x = g.conv(4, x, weight("taps", 12, 3), 3)
    x = g.scan(4, x, x, x, x, heads=4)
    x = g.attention(3, x, x, x, **attention, mask="full")  # keeps nothing
    has = r"a layer has one attention, or one convolution and one scan"
    for message, use in {
        r"record 5, attention \(blk.3.attention\): layer 3 is kept by record 1, attention \(blk.3.attention\)": (
            lambda: g.attention(3, x, x, x, **attention, window=5)
        ),
        r"record 5, conv \(blk.4.conv\): layer 4 is kept by record 2, conv": (
            lambda: g.conv(4, x, weight("more", 12, 2), 2)
        ),
        r"record 5, scan \(blk.4.scan\): layer 4 is kept by record 3, scan": (
            lambda: g.scan(4, x, x, x, x, heads=2)
        ),
        r"record 5, scan \(blk.3.scan\): layer 3 is kept by record 1, attention": (
            lambda: g.scan(3, x, x, x, x, heads=2)
        ),
    }.items():
        with pytest.raises(PlanError, match=f"{message}.* already; {has}"):
            use()


# -- what a tensor may be


@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.int64, np.uint8])
def test_values_of_an_array_tensor_become_float32(dtype):
    tensor = ArrayTensor("w", np.arange(6, dtype=dtype).reshape(2, 3))
    assert tensor.values.dtype == np.float32
    assert tensor.dequantize().tolist() == [[0, 1, 2], [3, 4, 5]]
    assert tensor.nbytes == 24


def test_an_array_tensor_takes_lists_and_leaves_float32_where_it_is():
    assert ArrayTensor("w", [[1, 2.5], [3, 4]]).values.dtype == np.float32
    assert ArrayTensor("w", [1, 2, 3]).rows == 1
    values = np.zeros((2, 2), np.float32)
    assert ArrayTensor("w", values).values is values


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("w", np.zeros(2, complex)), "the values of w must be real numbers, not complex128"),
        (("w", ["a", "b"]), "the values of w must be real numbers, not <U1"),
        (("w", [True, False]), "the values of w must be real numbers, not bool"),
        (("w", None), "the values of w must be real numbers, not object"),
        (("w", [[1, 2], [3]]), "the values of w make no array: the lengths of its rows differ"),
        (("w", 1.0), "the values of w must have one dimension or more"),
        (("w", [1e300]), "the values of w have a number that is too large for float32"),
        ((b"w", [1.0]), "the name of an ArrayTensor must be a string, not b'w'"),
        (("w", [1.0], 3), "the format of w must be a string, not 3"),
    ],
)
def test_other_values_of_an_array_tensor_are_refused(arguments, message):
    with pytest.raises(PlanError, match=re.escape(message)):
        ArrayTensor(*arguments)


class Wrong:
    """A tensor whose sizes are not whole numbers."""

    name, format, rows, cols, nbytes = "w", "F32", 12.0, 12, 0

    def dequantize(self):
        return np.eye(12, dtype=np.float32)


@pytest.mark.parametrize("g", [Trace(), Needs(), Reference([1])], ids=["trace", "needs", "reference"])
def test_what_is_no_tensor_is_refused_wherever_a_weight_stands(g):
    x = embedded(g)
    array = np.eye(12, dtype=np.float32)
    for op, use in {
        "embed": lambda w: g.embed(w, 12, 12),
        "embed_positions": lambda w: g.embed_positions(w, 12, 12),
        "embed_types": lambda w: g.embed_types(w, 12, 12),
        "linear": lambda w: g.linear(x, w, 12),
        "linear_split": lambda w: g.linear_split(x, w, (6, 6)),
        "affine": lambda w: g.affine(x, w),
        "rms_norm": lambda w: g.rms_norm(x, w, 1e-5),
        "layer_norm": lambda w: g.layer_norm(x, w, None, 1e-5),
        "conv": lambda w: g.conv(0, x, w, 12),
        "route": lambda w: g.route(x, 2, w),
        "experts": lambda w: g.experts(x, x, x, None, w, w, experts=1, hidden=12),
        "rope": lambda w: g.rope(x, 1, Rope(4, 100.0), w),
    }.items():
        with pytest.raises(
            PlanError, match=f"{op}: a weight must be a Tensor, such as .* ndarray has no name"
        ):
            use(array)
        with pytest.raises(PlanError, match=f"{op}: rows of w must be a whole number from 0 on, not 12.0"):
            use(Wrong())


def test_weights_take_tensors_only():
    with pytest.raises(
        TensorError, match=re.escape("weights['a.weight']: a weight must be a Tensor, such as")
    ):
        Weights({"a.weight": np.zeros((2, 2), np.float32)})
    with pytest.raises(TensorError, match="weights must be a mapping of names to tensors, not list"):
        Weights([weight("a", 2)])


# -- sizes and numbers


@pytest.mark.parametrize("wrong", ["2", 2.0, 2.5, True, None, [2]])
def test_sizes_are_whole_numbers(wrong):
    q = weight("q", 12, 12)
    attention = {"heads": 2, "kv_heads": 2, "scale": 1.0}
    for op, use in {
        "embed": lambda g, x: g.embed(TABLE, wrong, 12),
        "linear": lambda g, x: g.linear(x, q, wrong),
        "linear_split": lambda g, x: g.linear_split(x, q, (6, wrong)),
        "rms_norm": lambda g, x: g.rms_norm(x, None, 1e-5, wrong),
        "attention": lambda g, x: g.attention(0, x, x, x, **{**attention, "heads": wrong}),
        "attention ": lambda g, x: g.attention(0, x, x, x, **{**attention, "kv_heads": wrong}),
        "attention  ": lambda g, x: g.attention(wrong, x, x, x, **attention),
        "attention   ": lambda g, x: g.attention(0, x, x, x, **attention, window=wrong),
        "attention    ": lambda g, x: g.attention(0, x, x, None, **attention, v_from_k=wrong),
        "rope": lambda g, x: g.rope(x, wrong, Rope(2, 100.0)),
        "rope ": lambda g, x: g.rope(x, 2, Rope(2, 100.0), offset=wrong),
        "rope  ": lambda g, x: g.rope(x, 2, Rope(4, 100.0), axes=[0, wrong]),
        "conv": lambda g, x: g.conv(0, x, q, wrong),
        "scan": lambda g, x: g.scan(0, x, x, x, x, heads=wrong),
        "route": lambda g, x: g.route(x, wrong),
        "experts": lambda g, x: g.experts(x, *g.route(x, 2), None, q, q, experts=wrong, hidden=1),
        "experts ": lambda g, x: g.experts(x, *g.route(x, 2), None, q, q, experts=12, hidden=wrong),
        "columns": lambda g, x: g.columns(x, 0, wrong),
        "columns ": lambda g, x: g.columns(x, wrong, 1),
        "columns  ": lambda g, x: g.columns(x, 0, 1, heads=wrong),
        "concat": lambda g, x: g.concat(x, x, wrong),
    }.items():
        g = Trace()
        x = embedded(g)
        with pytest.raises(PlanError, match=f"^{op.strip()}: .*must be (at least )?a whole number"):
            use(g, x)


@pytest.mark.parametrize("wrong", ["2", True, None, float("nan"), [2.0]])
def test_factors_are_numbers(wrong):
    for name, use in {
        "scale: by": lambda g, x: g.scale(x, wrong),
        "softcap: cap": lambda g, x: g.softcap(x, wrong),
        "rms_norm: eps": lambda g, x: g.rms_norm(x, None, wrong),
        "layer_norm: eps": lambda g, x: g.layer_norm(x, None, None, wrong),
        "route: scale": lambda g, x: g.route(x, 1, scale=wrong),
        "attention: scale": lambda g, x: g.attention(0, x, x, x, heads=1, kv_heads=1, scale=wrong),
        "attention: softcap": lambda g, x: g.attention(
            0, x, x, x, heads=1, kv_heads=1, scale=1.0, softcap=wrong
        ),
    }.items():
        g = Trace()
        x = embedded(g)
        with pytest.raises(PlanError, match=f"{name} must be a finite number"):
            use(g, x)


def test_numbers_of_numpy_are_recorded_as_plain_ones():
    g = Trace()
    x = g.linear(embedded(g), weight("q", 12, 12), np.int64(12))
    x = g.rope(g.scale(x, np.float32(0.5)), np.int32(2), Rope(4, 100.0), axes=np.array([0, 1]))
    g.attention(np.int64(0), x, x, x, heads=np.int8(2), kv_heads=2, scale=1)
    numbers = [value for r in g.records for value in r.attrs.values() if isinstance(value, int | float)]
    assert {type(value) for value in numbers} == {int, float}
    assert g.records[-2].attrs["axes"] == (0, 1)
    assert type(g.records[-1].attrs["scale"]) is float


def test_the_length_of_axes_counts_even_where_all_are_0():
    g = Trace()
    x = embedded(g)
    for axes in ([0], [0, 0, 0], [], np.zeros(3, int)):
        with pytest.raises(PlanError, match=f"rope: axes has {len(axes)} entries for 2 pairs"):
            g.rope(x, 2, Rope(4, 100.0), axes=axes)
    with pytest.raises(PlanError, match="rope: axes must be a sequence of whole numbers, not 0"):
        g.rope(x, 2, Rope(4, 100.0), axes=0)
    assert "axes" not in g.records[g.rope(x, 2, Rope(4, 100.0), axes=[0, 0]).id].attrs
    with pytest.raises(PlanError, match="rope: the rotation must be a Rope or None, not 100"):
        g.rope(x, 2, 100.0)


def test_two_uses_of_one_matrix_compute_with_that_matrix():
    g, double = Trace(), ArrayTensor("q", 2 * np.eye(12))
    g.linear(g.linear(embedded(g), double, 12), double, 12)
    np.testing.assert_allclose(evaluate(g.program(), [3])[0], 4 * TABLE.values[3], rtol=1e-6)
