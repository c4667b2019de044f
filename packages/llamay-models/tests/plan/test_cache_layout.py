"""What contexts keep follows from what the operations of a plan say that they keep."""

import pytest

from llamay_kv import Group, Layer, Layout
from llamay_models.errors import PlanError
from llamay_models.kv_cache.layout import PRECISIONS, cache_layout
from llamay_models.plan import Trace, fuse
from llamay_models.plan.records import Outline


def weight(name, rows, cols):
    return Outline(name, "F32", rows, cols, 4 * rows * cols)


def traced(*layers):
    g = Trace()
    x = g.embed(weight("table", 8, 12), 8, 12)
    for build in layers:
        build(g, x)
    return g.program()


@pytest.mark.parametrize("precision", PRECISIONS)
def test_attention_keeps_keys_and_values(small_model, precision):
    program = small_model("llama").trace()
    expected = Layout.uniform(3, 2, 16, precision=precision)
    assert cache_layout(program, precision) == cache_layout(fuse(program), precision) == expected


def test_layers_that_look_back_equally_far_are_a_group(small_model):
    keys = {"block_count": 4, "attention.sliding_window_pattern": [True, False, True, False]}
    program = small_model("gemma3", **keys).trace()
    full, local = ([Layer(i, 2, 16, 16) for i in layers] for layers in ((1, 3), (0, 2)))
    assert cache_layout(program, "q8") == Layout([Group.full(full, "q8"), Group.sliding(9, local, "q8")])


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_mixer_keeps_a_state_in_full_precision(small_model, precision):
    # 48 channels and two groups' projections of 6 numbers, of which the last three rows count; 8 heads of 6 x 6.
    layers = [Layer(i, 1, 3 * (48 + 2 * 2 * 6), 48 * 6) for i in range(3)]
    assert cache_layout(small_model("mamba2").trace(), precision) == Layout([Group.recurrent(layers, "f32")])


def test_a_hybrid_keeps_both(small_model):
    program = small_model("lfm2").trace()
    attention, states = [Layer(1, 2, 16, 16)], [Layer(i, 1, 2 * 32, 0) for i in (0, 2)]
    assert cache_layout(program, "q8") == Layout(
        [Group.full(attention, "q8"), Group.recurrent(states, "f32")]
    )


def test_an_encoder_keeps_nothing(small_model):
    assert cache_layout(small_model("bert").trace(), "f16") == Layout([])


def test_kinds_stand_side_by_side():
    program = traced(
        lambda g, x: g.conv(5, x, weight("c", 12, 4), 4),
        lambda g, x: g.attention(4, x, g.columns(x, 0, 6), None, heads=2, kv_heads=1, scale=1.0, v_from_k=4),
        lambda g, x: g.attention(3, x, x, x, heads=2, kv_heads=2, scale=1.0, window=9),
        lambda g, x: g.attention(2, x, x, x, heads=2, kv_heads=2, scale=1.0, window=5),
        lambda g, x: g.attention(1, x, x, x, heads=2, kv_heads=2, scale=1.0),
        lambda g, x: g.scan(0, x, x, x, x, heads=4),
    )
    assert cache_layout(program, "vq8") == Layout(
        [
            Group.full([Layer(1, 2, 6, 6)], "vq8"),
            Group.sliding(5, [Layer(2, 2, 6, 6)], "vq8"),
            Group.sliding(9, [Layer(3, 2, 6, 6)], "vq8"),
            Group.latent([Layer(4, 1, 6, 0)], "f16"),
            Group.recurrent([Layer(5, 1, 36, 0), Layer(0, 1, 0, 36)], "f32"),
        ]
    )


def test_a_layer_has_one_convolution_and_one_scan():
    def conv(g, x):
        return g.conv(0, x, weight("c", 12, 4), 4)

    with pytest.raises(PlanError, match=r"record 2, conv .*: layer 0 is kept by record 1, conv "):
        cache_layout(traced(conv, conv), "f16")

    def scan(g, x):
        return g.scan(0, x, x, x, x, heads=4)

    with pytest.raises(PlanError, match=r"record 3, scan .*: layer 0 is kept by record 1, scan "):
        cache_layout(traced(scan, conv, scan), "f16")
