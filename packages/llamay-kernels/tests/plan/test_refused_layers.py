"""Records of recurrent layers and of mixtures that cannot be."""

import numpy as np
import pytest
from plans import weight

from llamay_kernels import Plan, PlanError

# -- convolutions and scans

SCAN = {"layer": 0, "heads": 2, "groups": 1, "k_dim": 4, "v_dim": 4, "map": "grouped"}
# Values: 0 of 4, 1 of 8, 2 of 2.
REFUSED = [
    ("conv", (1,), (3,), {"layer": 0}, "the weight is 4 x 3 for 8 channels"),
    ("conv", (1,), (5, 3), {"layer": 0}, "the bias is 4 x 3 but a vector of 8 is needed"),
    ("conv", (0,), (3,), {"layer": 0}, "value 3 has width 8 but its input has 4"),
    ("conv", (1,), (5,), {"layer": 1 << 16}, "layer 65536 is beyond 65535"),
    ("conv", (1,), (5,), {"layer": -1}, "attribute 'layer' is -1; it must be 0 or more"),
    ("scan", (0, 2, 0, 1), (), {**SCAN, "groups": 3}, "2 heads do not divide among 3 groups"),
    (
        "scan",
        (0, 2, 0, 1),
        (),
        {**SCAN, "map": "mixed"},
        'map must be one of "grouped", "tiled", not "mixed"',
    ),
    ("scan", (0, 2, 0, 1), (), {**SCAN, "heads": 0}, "attribute 'heads' is 0; it must be 1 or more"),
    ("scan", (0, 2, 0, 1, 1), (), SCAN, "takes r, w, k and v, or these with a and b"),
    ("scan", (0, 2, 0), (), SCAN, "takes 4 to 6 args, not 3"),
    ("scan", (1, 2, 0, 1), (), SCAN, r"value 1 has width 8 but groups \* k_dim is 4"),
    (
        "scan",
        (0, 0, 0, 1),
        (),
        SCAN,
        "value 0 has width 4 but one decay a head, or one a column of its state, is 2",
    ),
    ("scan", (0, 2, 1, 1), (), SCAN, r"value 1 has width 8 but groups \* k_dim is 4"),
    ("scan", (0, 2, 0, 0), (), SCAN, r"value 0 has width 4 but heads \* v_dim is 8"),
    ("scan", (0, 2, 0, 1, 0, 1), (), SCAN, r"value 0 has width 4 but heads \* k_dim is 8"),
    ("scan", (0, 2, 0, 1, 1, 2), (), SCAN, r"value 2 has width 2 but heads \* k_dim is 8"),
]
INPUTS = [weight(np.ones((5, n))) for n in (4, 8, 2)] + [
    weight(np.ones((4, 3))),
    weight(np.ones((1, 8))),
    weight(np.ones((8, 3))),
]


@pytest.mark.parametrize(("op", "args", "weights", "attrs", "message"), REFUSED, ids=[x[4] for x in REFUSED])
def test_recurrent_records_that_cannot_be(op, args, weights, attrs, message):
    records = [("embed", (i,), (), (i,), {}) for i in range(3)] + [(op, (3,), args, weights, attrs)]
    with pytest.raises(PlanError, match=rf"record 3 \({op}\): .*{message}"):
        Plan(records, [4, 8, 2, 8], INPUTS, max_rows=4)


def test_the_output_of_a_scan_has_a_width():
    records = [("embed", (i,), (), (i,), {}) for i in range(3)] + [("scan", (3,), (0, 2, 0, 1), (), SCAN)]
    with pytest.raises(PlanError, match=r"value 3 has width 7 but heads \* v_dim is 8"):
        Plan(records, [4, 8, 2, 7], INPUTS, max_rows=4)


def test_recurrent_layers_need_all_rows():
    records = [
        ("embed", (0,), (), (0,), {}),
        ("embed", (1,), (), (1,), {}),
        ("embed", (2,), (), (2,), {}),
        ("select", (3,), (1,), (), {}),
    ]
    for record in (("conv", (4,), (3,), (5,), {"layer": 0}), ("scan", (4,), (0, 2, 0, 3), (), SCAN)):
        with pytest.raises(PlanError, match="comes after select, but it needs all rows"):
            Plan([*records, record], [4, 8, 2, 8, 8], INPUTS, max_rows=4)


def test_states_have_a_limit():
    wide = weight(np.ones((1, 50_000)))
    records = [("embed", (0,), (), (0,), {}), ("embed", (1,), (), (1,), {})]
    records.append(
        (
            "scan",
            (2,),
            (0, 1, 0, 0),
            (),
            {"layer": 0, "heads": 1, "groups": 1, "k_dim": 50_000, "v_dim": 50_000, "map": "tiled"},
        )
    )
    with pytest.raises(PlanError, match=r"record 2 \(scan\): its state has more than 2\^31 numbers"):
        Plan(records, [50_000, 1, 50_000], [wide, weight(np.ones((1, 1)))], max_rows=1)


def test_a_layer_keeps_one_convolution_and_one_scan():
    records = [("embed", (i,), (), (i,), {}) for i in range(3)]
    conv, scan = ("conv", (3,), (1,), (5,), {"layer": 0}), ("scan", (4,), (0, 2, 0, 3), (), SCAN)
    small = {
        "layer": 0,
        "heads": 2,
        "kv_heads": 2,
        "k_dim": 4,
        "v_dim": 4,
        "scale": 1.0,
        "window": 0,
        "softcap": 0.0,
    }
    widths = [4, 8, 2, 8, 8, 8]
    Plan([*records, conv, scan], widths, INPUTS, max_rows=4)
    for again, message in (
        (("conv", (5,), (4,), (5,), {"layer": 0}), "layer 0 keeps a state already"),
        (("scan", (5,), (0, 2, 0, 4), (), SCAN), "layer 0 keeps a state already"),
        (("attention", (5,), (4, 4, 4), (), small), "layer 0 keeps a state already"),
    ):
        with pytest.raises(PlanError, match=rf"record 5 \({again[0]}\): {message}"):
            Plan([*records, conv, scan, again], widths, INPUTS, max_rows=4)
    attention = ("attention", (3,), (1, 1, 1), (), small)
    with pytest.raises(PlanError, match=r"record 4 \(scan\): layer 0 has an attention already"):
        Plan([*records, attention, scan], widths, INPUTS, max_rows=4)


# -- routers and experts

TABLES = [weight(np.ones((8, n))) for n in (16, 8)]
UP, DOWN = weight(np.ones((8 * 32, 16))), weight(np.ones((8 * 16, 32)))
ODD, WIDE = weight(np.ones((8 * 24, 16))), weight(np.ones((8 * 32, 32)))
VECTOR, SEVEN = weight(np.ones((1, 8))), weight(np.ones((1, 7)))
WEIGHTS = [*TABLES, UP, DOWN, ODD, WIDE, VECTOR, SEVEN]
# Values: x of 16, logits of 8, ids and weights of 3, the output of 16, one of 5.
WIDTHS = [16, 8, 3, 3, 16, 5, 8, 8]
ROUTE = {"kind": "softmax", "k": 3, "norm": 1, "scale": 1.0}
EXPERTS = {"act": "silu", "experts": 8}

REFUSED_ROUTES = [
    ({"k": 9}, (6, 7), (), r"k is 9 of 8 experts"),
    ({"k": 0}, (2, 3), (), r"attribute 'k' is 0; it must be 1 or more"),
    ({"k": 5}, (5, 3), (), r"value 3 has width 3 but k is 5"),
    ({}, (4, 3), (), r"value 4 has width 16 but k is 3"),
    ({"groups": 3}, (2, 3), (), "3 groups, of which 1 are used, do not fit 8 experts of which 3 are chosen"),
    ({"groups": 2, "groups_used": 3}, (2, 3), (), "2 groups, of which 3 are used, do not fit"),
    ({"groups": 4}, (2, 3), (), "4 groups, of which 1 are used, do not fit 8 experts of which 3 are chosen"),
    ({"groups": 8, "groups_used": 2}, (2, 3), (), "8 groups, of which 2 are used, do not fit"),
    ({"norm": 2}, (2, 3), (), "norm must be 0 or 1"),
    ({"scale": float("inf")}, (2, 3), (), "attribute 'scale' must be finite in float32"),
    (
        {"kind": "top"},
        (2, 3),
        (),
        'kind must be one of "softmax", "sigmoid", "softmax_chosen", "sqrt_softplus", not "top"',
    ),
    ({}, (2, 3), (7,), "the bias is 1 x 7 but a vector of 8 is needed"),
    ({}, (2, 3), (2,), "the bias is 256 x 16 but a vector of 8 is needed"),
]


@pytest.mark.parametrize(
    ("changed", "outs", "weights", "message"), REFUSED_ROUTES, ids=[x[3] for x in REFUSED_ROUTES]
)
def test_routers_that_cannot_be(changed, outs, weights, message):
    records = [
        ("embed", (0,), (), (0,), {}),
        ("embed", (1,), (), (1,), {}),
        ("route", outs, (1,), weights, ROUTE | changed),
    ]
    with pytest.raises(PlanError, match=rf"record 2 \(route\): .*{message}"):
        Plan(records, WIDTHS, WEIGHTS, max_rows=4)


def test_a_router_has_a_limit():
    with pytest.raises(PlanError, match=r"record 1 \(route\): there are 4097 experts; at most 4096 can be"):
        Plan(
            [("embed", (0,), (), (0,), {}), ("route", (1, 2), (0,), (), {**ROUTE, "k": 1})],
            [4097, 1, 1],
            [weight(np.ones((1, 4097)))],
            max_rows=1,
        )


REFUSED_EXPERTS = [
    ((0, 2, 3), (2, 3), {"experts": 0}, "attribute 'experts' is 0; it must be 1 or more"),
    (
        (0, 2, 3),
        (2, 3),
        {"experts": 2},
        "3 of 2 experts are chosen; at most 4096 can be, and no more chosen than",
    ),
    ((0, 2, 3), (2, 3), {"experts": 4097}, "3 of 4097 experts are chosen; at most 4096 can be"),
    ((0, 2, 3), (2, 3), {"experts": 4}, "value 2 is not the ids of a route among 4 experts"),
    ((0, 3, 2), (2, 3), {}, "value 3 is not the ids of a route among 8 experts"),
    ((0, 1, 1), (2, 3), {}, "value 1 is not the ids of a route among 8 experts"),
    ((0, 2, 1), (2, 3), {}, "value 1 has width 8 but the experts of a row are 3"),
    ((1, 2, 3), (2, 3), {}, "the weight is 256 x 16 but the value it meets has width 8"),
    ((0, 2, 3), (2, 2), {}, "the weight is 256 x 16 but the value it meets has width 32"),
    ((0, 2, 3), (4, 3), {}, "an expert's matrix has 24 rows; it must be a multiple of 16"),
    ((0, 2, 3), (7, 3), {}, "the weight is 1 x 7 but the value it meets has width 16"),
    ((0, 2, 3), (2, 2, 2), {}, "the weight is 256 x 16 but the value it meets has width 32"),
    ((0, 2, 3), (2, 5), {}, "the last weight makes 32 numbers but the output has width 16"),
    ((0, 2, 3), (2, 3), {"act": "swish"}, 'act must be one of "silu", "gelu_tanh", .*, not "swish"'),
    ((0, 2, 3), (2, 3), {"weigh_input": 1}, "weigh_input must be 0: inputs are not weighed"),
    ((0, 2, 3), (2,), {}, "takes 2 to 3 weights, not 1"),
]


@pytest.mark.parametrize(
    ("args", "weights", "changed", "message"), REFUSED_EXPERTS, ids=[x[3] for x in REFUSED_EXPERTS]
)
def test_experts_that_cannot_be(args, weights, changed, message):
    records = [
        ("embed", (0,), (), (0,), {}),
        ("embed", (1,), (), (1,), {}),
        ("route", (2, 3), (1,), (), ROUTE),
        ("experts", (4,), args, weights, EXPERTS | changed),
    ]
    with pytest.raises(PlanError, match=rf"record 3 \(experts\): .*{message}"):
        Plan(records, WIDTHS, WEIGHTS, max_rows=4)


def test_experts_whose_rows_do_not_go_together():
    records = [
        ("embed", (0,), (), (0,), {}),
        ("embed", (1,), (), (1,), {}),
        ("route", (2, 3), (1,), (), ROUTE),
        ("select", (5,), (0,), (), {}),
        ("experts", (4,), (5, 2, 3), (2, 3), EXPERTS),
    ]
    with pytest.raises(
        PlanError, match=r"\(experts\): one input holds selected rows only, the other all rows"
    ):
        Plan(records, [16, 8, 3, 3, 16, 16], WEIGHTS, max_rows=4)
    gate = weight(np.ones((8 * 16, 16)))
    records[3:] = [("experts", (4,), (0, 2, 3), (7, 2, 3), EXPERTS)]
    with pytest.raises(
        PlanError, match=r"\(experts\): the gate and what it lets through have different widths"
    ):
        Plan(records, [16, 8, 3, 3, 16], [*WEIGHTS[:7], gate], max_rows=4)
    rows = weight(np.ones((8 * 32 + 1, 16)))
    records[3:] = [("experts", (4,), (0, 2, 3), (7, 3), EXPERTS)]
    with pytest.raises(PlanError, match="the weight is 257 x 16, whose rows do not divide among 8 experts"):
        Plan(records, [16, 8, 3, 3, 16], [*WEIGHTS[:7], rows], max_rows=4)
