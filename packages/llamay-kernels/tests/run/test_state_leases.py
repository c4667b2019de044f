"""Leases of recurrent states that do not fit a step, and states that a lease may leave out."""

import ctypes

import pytest
from pages import FULL, STATE, Context, Group, GroupSpec, LayerSpec
from plans import run_rows, same_bits
from recurrent import GROUPS, HYBRID, Recurrent, step

MODEL = Recurrent()


def refuse(context, message, tokens=(0, 1, 2), plan=MODEL.plan):
    before = [a.copy() for a in context.arenas]
    with pytest.raises(ValueError, match=message):
        run_rows(plan, [(context, list(tokens), context.n_tokens, len(tokens))])
    assert all((a == b).all() for a, b in zip(before, context.arenas, strict=True))


def begun_context(n=3):
    context = MODEL.context()
    step(MODEL.plan, context, list(range(n)))
    context.commit(n)
    return context.reserve(3)


def test_a_lease_must_have_the_state_that_a_step_reads():
    context = begun_context()
    del context.states[3]
    context._list_states()
    refuse(context, "lease 0: it has no recurrent state after its 3 tokens")
    context = begun_context()
    context.n_tokens = 2
    refuse(context, "lease 0: it has no recurrent state after its 2 tokens")


def test_states_that_are_needed_must_not_be_dropped():
    for at in (3, 6):
        context = begun_context()
        context.states[at] = [-1]
        context._list_states()
        refuse(context, f"lease 0: the recurrent state after {at} tokens was dropped")
    context = begun_context()
    context.states |= {2: [-1], 7: [-1]}
    context._list_states()
    y = run_rows(MODEL.plan, [(context, [3, 4, 5], 3, 3)])
    assert same_bits(y, MODEL.reference(list(range(6)))[0][3:])


def test_states_must_be_in_order():
    context = MODEL.context().reserve(3, [1, 3])
    wrong = (ctypes.c_uint32 * 2)(3, 3)
    context._groups[0].state_at = ctypes.cast(wrong, ctypes.POINTER(ctypes.c_uint32))
    refuse(context, "lease 0: its recurrent states are not in order")


@pytest.mark.parametrize("layer", [
    LayerSpec(3, 1, 99, 161), LayerSpec(3, 1, 98, 160), LayerSpec(3, 2, 99, 160), LayerSpec(3, 1, 0, 160),
    LayerSpec(3, 1, 99, 0),
], ids=str)  # fmt: skip
def test_states_of_another_size_are_refused(layer):
    n = layer.kv_heads
    message = f"its state has {n * layer.k_dim} and {n * layer.v_dim} numbers but the plan has 99 and 160"
    refuse(Context((GroupSpec((layer,), STATE),)).reserve(3), f"lease 0: layer 3: {message}")


def test_heads_of_a_state_are_only_a_way_to_count():
    context = Context((GroupSpec((LayerSpec(3, 1, 99, 160),), STATE),)).reserve(3)
    y = run_rows(MODEL.plan, [(context, [0, 1, 2], 0, 3)])
    context = Context((GroupSpec((LayerSpec(3, 1, 99, 160), LayerSpec(4, 1, 1, 1)), STATE),)).reserve(3)
    assert same_bits(run_rows(MODEL.plan, [(context, [0, 1, 2], 0, 3)]), y)


def test_layers_must_be_there_once():
    spec = LayerSpec(3, 1, 99, 160)
    refuse(Context((GroupSpec((spec, spec), STATE),)).reserve(3), "lease 0: layer 3: it is there twice")
    refuse(Context((GroupSpec((spec,), STATE),) * 2).reserve(3), "lease 0: layer 3: it is there twice")
    refuse(
        Context((GroupSpec((LayerSpec(4, 1, 99, 160),), STATE),)).reserve(3),
        "lease 0: it has no recurrent layer 3",
    )
    refuse(
        Context((GroupSpec((LayerSpec(3, 1, 99, 160),), FULL),)).reserve(3),
        "lease 0: it has no recurrent layer 3",
    )


@pytest.mark.parametrize(("field", "value", "message"), [
    ("dtype", 1, r"its recurrent states have the precision 1; this version computes with f32 \(0\)"),
    ("arena", None, "its group of recurrent states has no pages"),
    ("block_pages", 3, "its group of recurrent states has no pages"),
    ("n_states", 2, "its group of recurrent states has no pages"),
    ("page_bytes", 1000, "layer 3: its state does not fit into its page of 1000 bytes"),
    ("layer_stride", 8, "its layers are shorter than kv_view says"),
])  # fmt: skip
def test_views_of_states_that_make_no_sense_are_refused(field, value, message):
    context = MODEL.context().reserve(3)
    setattr(context._groups[0], field, value)
    refuse(context, f"lease 0: .*{message}" if "layer" not in message else message)


def test_a_view_from_before_states_is_refused():
    context = MODEL.context().reserve(3)
    context._view.group_stride = Group.state_at.offset
    refuse(context, "lease 0: its groups are shorter than kv_view 1.2 says")


def test_a_lease_is_needed():
    with pytest.raises(
        ValueError, match=r"rows\[0\]: it has no lease, but this plan keeps something of each context"
    ):
        run_rows(MODEL.plan, [(None, [0], 0, 1)])


def test_leases_that_write_the_same_state_are_refused():
    context = MODEL.context().reserve(3)
    twice = [(context, [0, 1, 2], 0, 3)] * 2
    with pytest.raises(ValueError, match="leases 0 and 1 write the same page; give each context once"):
        run_rows(MODEL.plan, twice)
    # Not the first state of both, either.
    context.reserve(3, [1, 3])
    other = context.fork()
    other.reserve(3, [2, 3])
    other.states[3] = context.states[3]
    other._list_states()
    with pytest.raises(ValueError, match="leases 0 and 1 write the same page"):
        run_rows(MODEL.plan, [(context, [0, 1, 2], 0, 3), (other, [0, 1, 2], 0, 3)])
    # Of a page that neither reaches nothing is written.
    run_rows(MODEL.plan, [(context, [0, 1], 0, 1), (other, [0, 1], 0, 1)])


def test_leases_that_write_the_same_state_beside_keys_and_values_are_refused():
    context = Context(GROUPS, capacity=64)
    step(HYBRID, context, [1, 2, 3])
    context.commit(3)
    child = context.fork().reserve(2)
    child.states[5] = context.reserve(2).states[5]
    child._list_states()
    with pytest.raises(ValueError, match="leases 0 and 1 write the same page; give each context once"):
        run_rows(HYBRID, [(context, [4, 5], 3, 1), (child, [4, 5], 3, 1)])
