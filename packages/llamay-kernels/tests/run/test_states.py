"""Convolutions and scans over leases of recurrent states: the same bits however a text is cut into steps."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_sets import POOLS, everywhere, values
from pages import STATE, Context, GroupSpec, LayerSpec
from plans import run_rows, same_bits, weight
from recurrent import EMBED, GROUPS, HYBRID, ROWS, Recurrent, step
from recurrent_reference import conv_reference

from llamay_kernels import Plan, Weight

SHAPES = [
    {},
    {"mapped": "tiled"},
    {"by_column": False, "corrected": False},
    {"by_column": False, "bias": False, "groups": 1, "v_dim": 70},
    {"corrected": False, "k_dim": 1, "heads": 6, "groups": 3, "mapped": "tiled"},
    {"k_dim": 64, "v_dim": 130, "heads": 2, "groups": 2, "channels": 600, "taps": 2},
    {"taps": 9, "channels": 1, "heads": 1, "groups": 1, "k_dim": 17, "v_dim": 1},
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_text_is_the_same_in_one_step_row_by_row_and_in_any_split(shape):
    model, tokens = Recurrent(**shape), list(range(70))
    wanted, carried, state = model.reference(tokens)
    whole = model.context()

    def prefill(threads):
        nonlocal whole
        whole = model.context()
        return step(model.plan, whole, tokens, threads)

    assert same_bits(everywhere(prefill), wanted)
    assert same_bits(whole.state(model.layer, 70)[0], carried)
    assert same_bits(whole.state(model.layer, 70)[1], state)
    rng = np.random.default_rng(3)
    for n_threads, threads in POOLS.items():
        for most in (1, 2, 5, 40):
            context, at = model.context(seed=most), 0
            while at < 70:
                n = min(70 - at, int(rng.integers(1, most + 1)))
                assert same_bits(
                    step(model.plan, context, tokens[at : at + n], threads), wanted[at : at + n]
                ), n_threads
                context.commit(n)
                at += n
            assert same_bits(context.state(model.layer, 70)[0], carried)
            assert same_bits(context.state(model.layer, 70)[1], state)


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    taps=st.integers(1, 6),
    channels=st.sampled_from([1, 16, 40]),
    groups=st.integers(1, 3),
    of_group=st.integers(1, 3),
    k_dim=st.integers(1, 20),
    v_dim=st.sampled_from([1, 7, 65]),
    tiled=st.booleans(),
    by_column=st.booleans(),
    corrected=st.booleans(),
    data=st.data(),
)
def test_several_texts_of_one_step_go_on_from_their_own_states(
    seed, taps, channels, groups, of_group, k_dim, v_dim, tiled, by_column, corrected, data
):
    model = Recurrent(
        seed % 1000,
        taps,
        channels,
        groups * of_group,
        groups,
        k_dim,
        v_dim,
        "tiled" if tiled else "grouped",
        by_column,
        corrected,
    )
    n = data.draw(st.integers(1, 4))
    tokens = [np.random.default_rng([seed, i]).integers(0, ROWS, 30).tolist() for i in range(n)]
    contexts, wanted = [model.context(seed=i) for i in range(n)], [model.reference(t)[0] for t in tokens]
    for _ in range(3):
        texts, rows = [], []
        for context, of_text, of_wanted in zip(contexts, tokens, wanted, strict=True):
            count, at = data.draw(st.integers(0, 8)), context.n_tokens
            if not count:
                continue
            texts.append((context.reserve(count), of_text[at : at + count], at, count))
            rows.append(of_wanted[at : at + count])
        if not texts:
            continue
        out = run_rows(model.plan, texts, POOLS[data.draw(st.sampled_from([1, 3]))])
        assert same_bits(out, np.concatenate(rows))
        for context, *_, count in texts:
            context.commit(count)


def test_states_on_the_way_are_what_shorter_steps_leave():
    model, tokens = Recurrent(), list(range(60))
    for threads in POOLS.values():
        context = model.context()
        step(model.plan, context, tokens[:7], threads)
        context.commit(7)
        y = step(model.plan, context, tokens[7:], threads, states=[8, 9, 30, 59, 60])
        wanted = model.reference(tokens)[0]
        assert same_bits(y, wanted[7:])
        for at in (8, 9, 30, 59, 60):
            _, carried, state = model.reference(tokens[:at])
            assert same_bits(context.state(model.layer, at)[0], carried)
            assert same_bits(context.state(model.layer, at)[1], state)
        # Only a part is kept, and the text goes on from there with others.
        context.commit(23)
        other = [*tokens[:30], 5, 1, 9, 200]
        assert same_bits(step(model.plan, context, other[30:], threads), model.reference(other)[0][30:])


def test_what_a_convolution_carries_over_from_before_a_short_step():
    """Of fewer rows than it has taps, and states between them."""
    model, tokens = Recurrent(taps=9), list(range(12))
    context = model.context()
    step(model.plan, context, tokens[:3])
    context.commit(3)
    step(model.plan, context, tokens[3:6], states=[4, 5, 6])
    for at in (4, 5, 6):
        assert same_bits(context.state(model.layer, at)[0], model.reference(tokens[:at])[1])


def test_a_state_after_the_last_row_need_not_be_asked_for():
    model, tokens = Recurrent(), list(range(20))
    for states in ([], [5]):
        for threads in POOLS.values():
            context = model.context()
            assert same_bits(
                step(model.plan, context, tokens, threads, states=states), model.reference(tokens)[0]
            )
        if states:
            assert same_bits(context.state(model.layer, 5)[1], model.reference(tokens[:5])[2])


def test_a_step_writes_only_the_states_that_it_reaches():
    model, tokens = Recurrent(), list(range(20))
    context = model.context().reserve(20, [4, 10, 20])
    untouched = [context.state(model.layer, at) for at in (10, 20)]
    run_rows(model.plan, [(context, tokens[:6], 0, 6)])
    assert same_bits(context.state(model.layer, 4)[1], model.reference(tokens[:4])[2])
    for before, at in zip(untouched, (10, 20), strict=True):
        assert all(same_bits(a, b) for a, b in zip(before, context.state(model.layer, at), strict=True))


def test_states_are_kept_where_nobody_wants_an_output():
    model, tokens = Recurrent(), list(range(30))
    for threads in POOLS.values():
        for n in (1, 30):
            context = model.context()
            step(model.plan, context, tokens[:n], threads, wanted=0)
            _, carried, state = model.reference(tokens[:n])
            assert same_bits(context.state(model.layer, n)[0], carried)
            assert same_bits(context.state(model.layer, n)[1], state)


def test_forks_go_their_own_ways():
    model, tokens = Recurrent(), list(range(20))
    parent = model.context()
    step(model.plan, parent, tokens[:10])
    parent.commit(10)
    child = parent.fork()
    others = [*tokens[:10], 99, 98, 97]
    texts = [(parent.reserve(4), tokens[10:14], 10, 4), (child.reserve(3), others[10:], 10, 3)]
    y = run_rows(model.plan, texts, POOLS[3])
    assert same_bits(y[:4], model.reference(tokens[:14])[0][10:])
    assert same_bits(y[4:], model.reference(others)[0][10:])


# -- layers of several kinds


@pytest.mark.parametrize("page_tokens", [16, 64])
def test_layers_of_all_kinds_in_one_plan(page_tokens):
    tokens = np.random.default_rng(5).integers(0, ROWS, 90).tolist()
    whole = Context(GROUPS, page_tokens=page_tokens)
    expected = step(HYBRID, whole, tokens)
    assert np.isfinite(expected).all()
    whole.commit(90)
    rng = np.random.default_rng(6)
    for isa_threads in (1, 3):
        for most in (1, 4, 30):
            context, at = Context(GROUPS, page_tokens=page_tokens, seed=most), 0
            while at < 90:
                n = min(90 - at, int(rng.integers(1, most + 1)))
                y = step(HYBRID, context, tokens[at : at + n], POOLS[isa_threads])
                assert same_bits(y, expected[at : at + n])
                context.commit(n)
                at += n
            for layer in (0, 1, 3):
                assert all(map(same_bits, context.state(layer, 90), whole.state(layer, 90)))
            assert all(map(same_bits, context.stored(2), whole.stored(2)))
    assert same_bits(everywhere(lambda threads: step(HYBRID, Context(GROUPS), tokens, threads)), expected)


def test_a_convolution_by_one_tap_keeps_nothing():
    x, w, b = values(1, 9, 20, 0), values(2, 20, 1, 0), values(3, 1, 20, 0)
    plan = Plan(
        [EMBED, ("conv", (1,), (0,), (1, 2), {"layer": 0})],
        [20, 20],
        [weight(v) for v in (x, w, b)],
        max_rows=9,
    )
    y = everywhere(lambda threads: run_rows(plan, [(None, range(9), 0, 9)], threads))
    assert same_bits(y, conv_reference(x, w, b[0])[0])


def test_weights_of_a_convolution_may_be_quantized():
    model, rng = values(1, 30, 64, 0), np.random.default_rng(1)
    half = rng.standard_normal((64, 4)).astype(np.float16)
    plan = Plan(
        [EMBED, ("conv", (1,), (0,), (1,), {"layer": 0})],
        [64, 64],
        [weight(model), Weight(half, "F16", 64, 4)],
        max_rows=30,
    )
    context = Context((GroupSpec((LayerSpec(0, 1, 192, 0),), STATE),))
    assert same_bits(step(plan, context, list(range(30))), conv_reference(model, half.astype(np.float32))[0])
