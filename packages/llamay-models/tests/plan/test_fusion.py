"""A fusion computes what it replaces, whatever rows are wanted."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llamay_models.architectures import ARCHITECTURES
from llamay_models.plan import REWRITES, Trace, evaluate, fuse
from llamay_models.plan.records import Record

NAMES = sorted(ARCHITECTURES)
TOKENS = st.lists(st.integers(0, 60), min_size=1, max_size=12)


@pytest.mark.parametrize("biases", [False, True])
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_every_rewrite_leaves_the_output_alone(small_model, name, biases, data):
    model = small_model(name, biases=biases and name == "llama", block_count=2)
    tokens = data.draw(TOKENS)
    wanted = data.draw(st.lists(st.sampled_from(range(len(tokens))), unique=True, max_size=4))
    program = model.trace()
    expected = evaluate(program, tokens, wanted)
    assert np.array_equal(expected, model.reference(tokens, wanted))
    for rewrite in REWRITES:
        program = rewrite(program)
        # Not exactly equal: numpy multiplies matrices of few rows in another order than matrices of many.
        np.testing.assert_allclose(evaluate(program, tokens, wanted), expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("name", NAMES)
def test_records_read_only_what_earlier_records_made(small_model, name):
    program, made = fuse(small_model(name).trace()), set()
    for record in program.records:
        assert set(record.args) <= made
        assert not set(record.outs) & made
        made |= set(record.outs)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "llama",
            {
                "rope": 6,
                "glu": 3,
                "linear_add": 6,
                "linear_group": 3,
                "rms_norm": 7,
                "select": 2,
                "linear": 1,
            },
        ),
        (
            "gpt2",
            {
                "embed_positions": 1,
                "layer_norm": 7,
                "linear_group": 3,
                "linear_add": 6,
                "linear": 1,
                "linear_act": 3,
                "add": 1,
                "select": 2,
            },
        ),
        (
            "qwen2",
            {
                "rope": 6,
                "glu": 3,
                "linear_add": 6,
                "linear_group": 3,
                "rms_norm": 7,
                "select": 2,
                "linear": 1,
            },
        ),
        (
            "qwen3",
            {
                "rope_norm": 6,
                "glu": 3,
                "linear_add": 6,
                "linear_group": 3,
                "rms_norm": 7,
                "select": 2,
                "linear": 1,
            },
        ),
        (
            "gemma3",
            {
                "rope_norm": 14,
                "glu": 7,
                "rms_norm_add": 14,
                "linear_group": 7,
                "rms_norm": 15,
                "select": 2,
                "linear": 15,
                "scale": 1,
            },
        ),
    ],
)
def test_what_each_architecture_becomes(small_model, name, expected):
    program = fuse(small_model(name).trace())
    ops = Counter(r.op for r in program.records)
    layers = 7 if name == "gemma3" else 3
    assert ops == {**expected, "embed": 1, "given": 1, "attention": layers}


def test_products_with_biases_stay_outside_what_has_none(small_model):
    program = fuse(small_model("llama", biases=True).trace())
    ops = Counter(r.op for r in program.records)
    assert ops["glu"] == 0
    assert ops["linear_add"] == 6
    assert all(len(r.weights) == 2 for r in program.records if r.op == "linear_add")
    assert ops["linear_act"] == 3
    assert all(len(r.weights) == 2 for r in program.records if r.op == "linear_act")


def test_the_last_layer_skips_rows_that_nobody_wants(small_model):
    program = fuse(small_model("qwen3").trace())
    last = max(i for i, r in enumerate(program.records) if r.op == "attention")
    assert [r.op for r in program.records[last + 1 :]][:2] == ["select", "select"]


class _Numbers:
    """Weights of any shape that is asked for."""

    def __init__(self, name, rows, cols):
        self.name, self.rows, self.cols, self.format, self.nbytes = name, rows, cols, "F32", 4 * rows * cols

    def dequantize(self):
        seed = [self.rows, self.cols, *self.name.encode()]
        return np.random.default_rng(seed).normal(size=(self.rows, self.cols)).astype(np.float32)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_wiring_of_operations_keeps_its_output(data):
    g, values = Trace(), []
    values.append(g.embed(_Numbers("embed", 7, 8), 7, 8))
    for i in range(data.draw(st.integers(1, 25))):
        x, y = (values[data.draw(st.integers(0, len(values) - 1))] for _ in range(2))
        op = data.draw(
            st.sampled_from(["linear", "bias", "norm", "add", "mul", "silu", "relu2", "mlp", "plain", "own"])
        )
        w = _Numbers(f"w{i}", 8, 8)
        if op == "linear":
            values.append(g.linear(x, w, 8))
        elif op == "bias":
            values.append(g.linear(x, w, 8, _Numbers(f"b{i}", 1, 8)))
        elif op == "norm":
            values.append(g.rms_norm(x, _Numbers(f"n{i}", 1, 4), 1e-5, 2))
        elif op == "plain":
            values.append(g.rms_norm(x, None, 1e-5, 2))
        elif op == "own":
            values.append(g.rms_norm(x, _Numbers(f"n{i}", 1, 8), 1e-5, 2, own=True))
        elif op == "relu2":
            values.append(g.unary(x, "relu2"))
        elif op == "mlp":
            gate, up = g.linear(x, w, 8), g.linear(y, _Numbers(f"u{i}", 8, 8), 8)
            values.append(g.mul(g.unary(gate, data.draw(st.sampled_from(["silu", "gelu_erf"]))), up))
        elif op in ("add", "mul"):
            values.append(getattr(g, op)(x, y))
        else:
            values.append(getattr(g, op)(x))
    g.rms_norm(g.select(values[-1]), _Numbers("last", 1, 8), 1e-5)
    program = g.program()
    expected = evaluate(program, [3, 0, 6, 1], [2, 0])
    actual = evaluate(fuse(program), [3, 0, 6, 1], [2, 0])
    np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-9)


def test_a_value_that_others_read_is_not_absorbed():
    g = Trace()
    x = g.embed(_Numbers("embed", 7, 8), 7, 8)
    product = g.linear(x, _Numbers("w", 8, 8), 8)
    g.mul(g.add(x, product), product)
    records = fuse(g.program()).records
    assert [r.op for r in records] == ["embed", "linear", "add", "mul"]
    assert isinstance(records[0], Record)
