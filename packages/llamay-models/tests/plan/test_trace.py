"""A mistake in an architecture is an error when it is traced, naming the operation and both sizes."""

import re

import numpy as np
import pytest

from llamay_models.architectures import ARCHITECTURES
from llamay_models.errors import PlanError
from llamay_models.plan import Rope, Trace
from llamay_models.plan.hidden_states import hidden

NAMES = sorted(ARCHITECTURES)


class Matrix:
    format, nbytes = "F32", 0

    def __init__(self, name, rows, cols):
        self.name, self.rows, self.cols = name, rows, cols

    def dequantize(self):
        return np.ones((self.rows, self.cols), np.float32)


def embedded(g, width=24):
    return g.embed(Matrix("token_embd.weight", 50, width), 50, width)


def check_error(text, build):
    with pytest.raises(PlanError, match=re.escape(text)):
        build(Trace())


def test_a_matrix_of_other_inputs_is_refused():
    check_error(
        "linear: up.weight is 40 x 25 but 40 x 24 is needed here",
        lambda g: g.linear(embedded(g), Matrix("up.weight", 40, 25), 40),
    )


def test_a_matrix_of_other_outputs_is_refused():
    check_error(
        "linear: up.weight is 41 x 24 but 40 x 24 is needed here",
        lambda g: g.linear(embedded(g), Matrix("up.weight", 41, 24), 40),
    )


def test_a_bias_of_another_length_is_refused():
    check_error(
        "linear: q.bias is a vector of 39 but a vector of 40 is needed here",
        lambda g: g.linear(embedded(g), Matrix("q.weight", 40, 24), 40, Matrix("q.bias", 1, 39)),
    )


def test_a_norm_of_another_length_is_refused():
    check_error(
        "rms_norm: n.weight is a vector of 8 but a vector of 24 is needed here",
        lambda g: g.rms_norm(embedded(g), Matrix("n.weight", 1, 8), 1e-5),
    )
    check_error(
        "rms_norm: token_embd has 24 values, which do not divide into 5 heads",
        lambda g: g.rms_norm(embedded(g), Matrix("n.weight", 1, 8), 1e-5, 5),
    )


def test_parts_of_one_matrix_must_fill_it():
    check_error(
        "linear_split: qkv.weight is 71 x 24 but 72 x 24 is needed here",
        lambda g: g.linear_split(embedded(g), Matrix("qkv.weight", 71, 24), (24, 24, 24)),
    )
    check_error(
        "linear_split: qkv.bias is a vector of 70 but a vector of 72 is needed here",
        lambda g: g.linear_split(
            embedded(g), Matrix("qkv.weight", 72, 24), (24, 24, 24), Matrix("qkv.bias", 1, 70)
        ),
    )


def test_a_layer_norm_of_another_length_is_refused():
    check_error(
        "layer_norm: n.bias is a vector of 8 but a vector of 24 is needed here",
        lambda g: g.layer_norm(embedded(g), Matrix("n.weight", 1, 24), Matrix("n.bias", 1, 8), 1e-5),
    )


def test_a_sum_of_two_widths_is_refused():
    def build(g):
        x = embedded(g)
        g.add(x, g.linear(x, Matrix("up.weight", 40, 24), 40))

    check_error("add: token_embd has 24 values but up has 40", build)


def test_a_rotation_larger_than_the_head_is_refused():
    check_error(
        "rope: rotates 16 dimensions but a head of token_embd has 8",
        lambda g: g.rope(embedded(g), 3, Rope(16, 10000.0)),
    )


def test_heads_that_do_not_match_are_refused():
    def build(g):
        q = embedded(g, 24)
        k = g.linear(q, Matrix("k.weight", 10, 24), 10)
        g.attention(0, q, k, k, heads=4, kv_heads=2, scale=1.0)

    check_error("attention: a query head has 6 values but a key head has 5", build)
    check_error(
        "attention: 4 query heads do not divide among 3 key/value heads",
        lambda g: g.attention(0, *[embedded(g)] * 3, heads=4, kv_heads=3, scale=1.0),
    )


def test_an_empty_plan_is_refused():
    check_error("a plan needs at least one operation", lambda g: g.program())


@pytest.mark.parametrize("name", NAMES)
def test_tracing_twice_records_the_same(small_model, name):
    model = small_model(name)
    first, second = model.trace(), model.trace()
    assert first.widths == second.widths
    assert [(r.op, r.outs, r.args, r.weights) for r in first.records] == [
        (r.op, r.outs, r.args, r.weights) for r in second.records
    ]


def test_a_tied_table_is_one_tensor(small_model):
    tied, untied = small_model("llama").trace(), small_model("llama", untied=True).trace()
    assert len(untied.tensors) == len(tied.tensors) + 1
    assert tied.records[-1].weights == tied.records[0].weights
    assert untied.records[-1].weights != untied.records[0].weights


def test_the_part_before_the_output_matrix_is_found_only_where_it_says_all():
    g = Trace()
    x = embedded(g)
    h = g.rms_norm(x, Matrix("output_norm.weight", 1, 24), 1e-5)
    y = g.linear(h, Matrix("output.weight", 24, 24), 24)
    assert hidden(g.program()).records == g.program().records[:2]

    g.add(y, x)  # the output needs more than the normed state
    with pytest.raises(PlanError, match="does not end with an output matrix"):
        hidden(g.program())
    plain = Trace()
    plain.linear(embedded(plain), Matrix("output.weight", 24, 24), 24)
    with pytest.raises(PlanError, match="does not end with an output matrix"):
        hidden(plain.program())
