"""Convolutions and scans over leases of recurrent states: the same bits however a text is cut into steps."""

import ctypes

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_sets import POOLS, everywhere, values
from pages import FULL, STATE, Context, Group, GroupSpec, LayerSpec
from plans import ATTENTION, run_rows, same_bits, weight
from test_recurrent_kernels import conv_reference, scan_reference

from llamay_kernels import Brake, Plan, PlanError, Sampler, Threads, Weight

ROWS = 220
EMBED = ("embed", (0,), (), (0,), {})


class Recurrent:
    """A convolution and a scan of one layer, of inputs that come from tables; its output is both, side by side."""

    def __init__(self, seed=0, taps=4, channels=33, heads=4, groups=2, k_dim=8, v_dim=5, mapped="grouped", by_column=True,
                 corrected=True, bias=True, layer=3):  # fmt: skip
        self.heads, self.groups, self.k_dim, self.v_dim, self.mapped = heads, groups, k_dim, v_dim, mapped
        sizes = [channels, groups * k_dim, heads * (k_dim if by_column else 1), groups * k_dim, heads * v_dim]
        sizes += [heads * k_dim] * 2 if corrected else []
        self.x = [values(seed + i, ROWS, size, 0) for i, size in enumerate(sizes)]
        self.x[2] = np.exp(-np.abs(self.x[2]))
        for i in range(5, len(self.x)):
            self.x[i] /= np.float32(k_dim)
        self.w, self.bias = values(seed + 20, channels, taps, 0), values(seed + 21, 1, channels, 0)[0] if bias else None
        weights = [*self.x, self.w] + ([self.bias] if bias else [])
        n = len(self.x)
        records = [("embed", (i,), (), (i,), {}) for i in range(n)]
        attrs = {"layer": layer, "heads": heads, "groups": groups, "k_dim": k_dim, "v_dim": v_dim, "map": mapped}
        records += [
            ("conv", (n,), (0,), tuple(range(n, len(weights))), {"layer": layer}),
            ("scan", (n + 1,), tuple(range(1, n)), (), attrs),
            ("concat", (n + 2,), (n, n + 1), (), {"heads": 1}),
        ]
        widths = [*sizes, channels, heads * v_dim, channels + heads * v_dim]
        self.plan = Plan(records, widths, [weight(w) for w in weights], max_rows=ROWS)
        self.spec = GroupSpec((LayerSpec(layer, 1, (taps - 1) * channels, heads * v_dim * k_dim),), STATE)
        self.layer = layer

    def context(self, seed=0, **options):
        return Context((self.spec,), seed=seed, **options)

    def reference(self, tokens, carried=None, state=None):
        """The outputs of a text, and the state after it."""
        x = [part[tokens] for part in self.x]
        y, carried = conv_reference(x[0], self.w, self.bias, carried)
        r, w, k, v, *ab = x[1:]
        outs, states = [], []
        for h in range(self.heads):
            g = h % self.groups if self.mapped == "tiled" else h // (self.heads // self.groups)

            def part(array, i, size):
                return array[:, i * size : (i + 1) * size]

            own = [part(r, g, self.k_dim), part(w, h, w.shape[1] // self.heads), part(k, g, self.k_dim), part(v, h, self.v_dim)]
            own += [part(array, h, self.k_dim) for array in ab]
            out, after = scan_reference(*own, state=None if state is None else state.reshape(self.heads, self.v_dim, -1)[h])
            outs.append(out)
            states.append(after)
        return np.concatenate([y, *outs], 1), carried.reshape(-1), np.stack(states).reshape(-1)


def step(plan, context, tokens, threads=POOLS[1], wanted=None, states=None):
    context.reserve(len(tokens), states)
    return run_rows(plan, [(context, tokens, context.n_tokens, len(tokens) if wanted is None else wanted)], threads)


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
                assert same_bits(step(model.plan, context, tokens[at : at + n], threads), wanted[at : at + n]), n_threads
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
        seed % 1000, taps, channels, groups * of_group, groups, k_dim, v_dim, "tiled" if tiled else "grouped", by_column, corrected
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
        other = tokens[:30] + [5, 1, 9, 200]
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
            assert same_bits(step(model.plan, context, tokens, threads, states=states), model.reference(tokens)[0])
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


def hybrid():
    """A convolution alone, a scan alone, both, and attention, with their layers in two groups of states."""
    table, to_kv = values(1, ROWS, 32, 0), values(2, 16, 32, 0)
    taps, w = values(3, 32, 3, 0), np.full((1, 32), 0.9, np.float32)
    scan = {"heads": 4, "groups": 4, "k_dim": 8, "v_dim": 8, "map": "grouped"}
    records = [
        EMBED,
        ("conv", (1,), (0,), (2,), {"layer": 0}),
        ("affine", (2,), (1,), (3,), {"has": "w"}),
        ("unary", (3,), (2,), (), {"kind": "sigmoid"}),
        ("scan", (4,), (1, 3, 2, 1), (), {**scan, "layer": 1}),
        ("linear", (5,), (4,), (1,), {}),
        ("attention", (6,), (4, 5, 5), (), {**ATTENTION, "layer": 2}),
        ("conv", (7,), (6,), (2,), {"layer": 3}),
        ("scan", (8,), (7, 3, 2, 7), (), {**scan, "layer": 3}),
        ("add", (9,), (8, 0), (), {}),
        ("select", (10,), (9,), (), {}),
        ("linear", (11,), (10,), (4,), {}),
    ]
    widths = [32, 32, 32, 32, 32, 16, 32, 32, 32, 32, 32, 40]
    plan = Plan(records, widths, [weight(x) for x in (table, to_kv, taps, w, values(4, 40, 32, 0))], max_rows=ROWS)
    groups = (
        GroupSpec((LayerSpec(3, 1, 64, 256), LayerSpec(0, 1, 64, 0), LayerSpec(7, 2, 5, 6)), STATE),
        GroupSpec((LayerSpec(2, 2, 8, 8),), FULL),
        GroupSpec((LayerSpec(1, 1, 0, 256),), STATE),
    )
    return plan, groups


HYBRID, GROUPS = hybrid()


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


# -- steps that follow by themselves

SAMPLERS = [Sampler(i, temperature=1.5) for i in range(3)]


def one_by_one(n, contexts):
    tokens, chosen, out = list(range(len(contexts))), [], np.zeros((len(contexts), 40), np.float32)
    for at in range(n):
        rows = [(c.reserve(1), [t], at, 1) for c, t in zip(contexts, tokens, strict=True)]
        draws = [(SAMPLERS[i], i, at + 1, None, None) for i in range(len(contexts))]
        _, tokens, errors = HYBRID.run_rows(rows, out, POOLS[1], draws)
        assert not errors
        chosen.append(tokens)
        for c in contexts:
            c.commit(1)
    return chosen, out


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("n_contexts", [1, 3])
def test_steps_follow_over_the_states_that_are_listed(threads, n_contexts):
    expected, last = one_by_one(9, ones := [Context(GROUPS, seed=i) for i in range(n_contexts)])
    contexts = [Context(GROUPS, seed=i) for i in range(n_contexts)]
    out, brake = np.zeros((n_contexts, 40), np.float32), Brake()
    rows = [(c.reserve(9, range(1, 10)), [i], 0, 1) for i, c in enumerate(contexts)]
    begun = HYBRID.begin_rows(rows, out, Threads(threads, grain=0))
    for at in range(9):
        draws = [(SAMPLERS[i], i, at + 1, None, None) for i in range(n_contexts)]
        _, tokens, errors, followed = begun.finish(draws, brake, [])
        assert (tokens, errors, followed) == (expected[at], {}, at < 8)
    assert same_bits(out, last)
    for one, other in zip(ones, contexts, strict=True):
        for layer in (0, 1, 3):
            assert all(map(same_bits, one.state(layer, 9), other.state(layer, 9)))


@pytest.mark.parametrize(("states", "follow"), [([1, 4], 0), ([1, 2, 4], 1), ([2, 3, 4], 0), ([4], 0), ([1, 2, 3, 4], 3)])
def test_no_step_follows_that_would_leave_no_state(states, follow):
    """Its token could not be committed; and none begins without the state that it reads."""
    context, out = Context(GROUPS), np.zeros((1, 40), np.float32)
    begun = HYBRID.begin_rows([(context.reserve(4, states), [0], 0, 1)], out, POOLS[3])
    brake, followed = Brake(), []
    for at in range(4):
        followed.append(begun.finish([(SAMPLERS[0], 0, at + 1, None, None)], brake, [])[3])
        if not followed[-1]:
            break
    assert followed == [True] * follow + [False]


@pytest.mark.parametrize("n", [1, 40])
def test_a_step_that_is_left_changes_no_state_that_was_there(n):
    tokens = list(range(50))
    context, other = Context(GROUPS), Context(GROUPS)
    for c in (context, other):
        step(HYBRID, c, tokens[:5])
        c.commit(5)
    before = [context.state(layer, 5) for layer in (0, 1, 3)]
    out = np.zeros((1, 40), np.float32)
    for _ in range(5):
        begun = HYBRID.begin_rows([(context.reserve(n, [5 + n]), tokens[5 : 5 + n], 5, 1)], out, POOLS[3])
        begun.leave()
        begun.leave()
        after = [context.state(layer, 5) for layer in (0, 1, 3)]
        assert all(same_bits(a, b) for x, y in zip(before, after, strict=True) for a, b in zip(x, y, strict=True))
        context.n_reserved = 0
    assert same_bits(step(HYBRID, context, tokens[5:9], POOLS[3]), step(HYBRID, other, tokens[5:9]))


# -- leases that do not fit

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
    LayerSpec(3, 1, 99, 161), LayerSpec(3, 1, 98, 160), LayerSpec(3, 2, 99, 160), LayerSpec(3, 1, 0, 160), LayerSpec(3, 1, 99, 0),
], ids=str)  # fmt: skip
def test_states_of_another_size_are_refused(layer):
    n = layer.kv_heads
    message = f"lease 0: layer 3: its state has {n * layer.k_dim} and {n * layer.v_dim} numbers but the plan has 99 and 160"
    refuse(Context((GroupSpec((layer,), STATE),)).reserve(3), message)


def test_heads_of_a_state_are_only_a_way_to_count():
    context = Context((GroupSpec((LayerSpec(3, 1, 99, 160),), STATE),)).reserve(3)
    y = run_rows(MODEL.plan, [(context, [0, 1, 2], 0, 3)])
    context = Context((GroupSpec((LayerSpec(3, 1, 99, 160), LayerSpec(4, 1, 1, 1)), STATE),)).reserve(3)
    assert same_bits(run_rows(MODEL.plan, [(context, [0, 1, 2], 0, 3)]), y)


def test_layers_must_be_there_once():
    spec = LayerSpec(3, 1, 99, 160)
    refuse(Context((GroupSpec((spec, spec), STATE),)).reserve(3), "lease 0: layer 3: it is there twice")
    refuse(Context((GroupSpec((spec,), STATE),) * 2).reserve(3), "lease 0: layer 3: it is there twice")
    refuse(Context((GroupSpec((LayerSpec(4, 1, 99, 160),), STATE),)).reserve(3), "lease 0: it has no recurrent layer 3")
    refuse(Context((GroupSpec((LayerSpec(3, 1, 99, 160),), FULL),)).reserve(3), "lease 0: it has no recurrent layer 3")


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
    with pytest.raises(ValueError, match=r"rows\[0\]: it has no lease, but this plan keeps something of each context"):
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


# -- plans that cannot be

SCAN = {"layer": 0, "heads": 2, "groups": 1, "k_dim": 4, "v_dim": 4, "map": "grouped"}
# Values: 0 of 4, 1 of 8, 2 of 2.
REFUSED = [
    ("conv", (1,), (3,), {"layer": 0}, "the weight is 4 x 3 for 8 channels"),
    ("conv", (1,), (5, 3), {"layer": 0}, "the bias is 4 x 3 but a vector of 8 is needed"),
    ("conv", (0,), (3,), {"layer": 0}, "value 3 has width 8 but its input has 4"),
    ("conv", (1,), (5,), {"layer": 1 << 16}, "layer 65536 is beyond 65535"),
    ("conv", (1,), (5,), {"layer": -1}, "attribute 'layer' is -1; it must be 0 or more"),
    ("scan", (0, 2, 0, 1), (), {**SCAN, "groups": 3}, "2 heads do not divide among 3 groups"),
    ("scan", (0, 2, 0, 1), (), {**SCAN, "map": "mixed"}, 'map must be one of "grouped", "tiled", not "mixed"'),
    ("scan", (0, 2, 0, 1), (), {**SCAN, "heads": 0}, "attribute 'heads' is 0; it must be 1 or more"),
    ("scan", (0, 2, 0, 1, 1), (), SCAN, "takes r, w, k and v, or these with a and b"),
    ("scan", (0, 2, 0), (), SCAN, "takes 4 to 6 args, not 3"),
    ("scan", (1, 2, 0, 1), (), SCAN, r"value 1 has width 8 but groups \* k_dim is 4"),
    ("scan", (0, 0, 0, 1), (), SCAN, "value 0 has width 4 but one decay a head, or one a column of its state, is 2"),
    ("scan", (0, 2, 1, 1), (), SCAN, r"value 1 has width 8 but groups \* k_dim is 4"),
    ("scan", (0, 2, 0, 0), (), SCAN, r"value 0 has width 4 but heads \* v_dim is 8"),
    ("scan", (0, 2, 0, 1, 0, 1), (), SCAN, r"value 0 has width 4 but heads \* k_dim is 8"),
    ("scan", (0, 2, 0, 1, 1, 2), (), SCAN, r"value 2 has width 2 but heads \* k_dim is 8"),
]
TABLES = [weight(np.ones((5, n))) for n in (4, 8, 2)] + [weight(np.ones((4, 3))), weight(np.ones((1, 8))), weight(np.ones((8, 3)))]


@pytest.mark.parametrize(("op", "args", "weights", "attrs", "message"), REFUSED, ids=[x[4] for x in REFUSED])
def test_recurrent_records_that_cannot_be(op, args, weights, attrs, message):
    records = [("embed", (i,), (), (i,), {}) for i in range(3)] + [(op, (3,), args, weights, attrs)]
    with pytest.raises(PlanError, match=rf"record 3 \({op}\): .*{message}"):
        Plan(records, [4, 8, 2, 8], TABLES, max_rows=4)


def test_the_output_of_a_scan_has_a_width():
    records = [("embed", (i,), (), (i,), {}) for i in range(3)] + [("scan", (3,), (0, 2, 0, 1), (), SCAN)]
    with pytest.raises(PlanError, match=r"value 3 has width 7 but heads \* v_dim is 8"):
        Plan(records, [4, 8, 2, 7], TABLES, max_rows=4)


def test_recurrent_layers_need_all_rows():
    records = [("embed", (0,), (), (0,), {}), ("embed", (1,), (), (1,), {}), ("embed", (2,), (), (2,), {}), ("select", (3,), (1,), (), {})]
    for record in (("conv", (4,), (3,), (5,), {"layer": 0}), ("scan", (4,), (0, 2, 0, 3), (), SCAN)):
        with pytest.raises(PlanError, match="comes after select, but it needs all rows"):
            Plan([*records, record], [4, 8, 2, 8, 8], TABLES, max_rows=4)


def test_states_have_a_limit():
    wide = weight(np.ones((1, 50_000)))
    records = [("embed", (0,), (), (0,), {}), ("embed", (1,), (), (1,), {})]
    records.append(("scan", (2,), (0, 1, 0, 0), (), {"layer": 0, "heads": 1, "groups": 1, "k_dim": 50_000, "v_dim": 50_000, "map": "tiled"}))
    with pytest.raises(PlanError, match=r"record 2 \(scan\): its state has more than 2\^31 numbers"):
        Plan(records, [50_000, 1, 50_000], [wide, weight(np.ones((1, 1)))], max_rows=1)


def test_a_layer_keeps_one_convolution_and_one_scan():
    records = [("embed", (i,), (), (i,), {}) for i in range(3)]
    conv, scan = ("conv", (3,), (1,), (5,), {"layer": 0}), ("scan", (4,), (0, 2, 0, 3), (), SCAN)
    small = {"layer": 0, "heads": 2, "kv_heads": 2, "k_dim": 4, "v_dim": 4, "scale": 1.0, "window": 0, "softcap": 0.0}
    widths = [4, 8, 2, 8, 8, 8]
    Plan([*records, conv, scan], widths, TABLES, max_rows=4)
    for again, message in (
        (("conv", (5,), (4,), (5,), {"layer": 0}), "layer 0 keeps a state already"),
        (("scan", (5,), (0, 2, 0, 4), (), SCAN), "layer 0 keeps a state already"),
        (("attention", (5,), (4, 4, 4), (), small), "layer 0 keeps a state already"),
    ):
        with pytest.raises(PlanError, match=rf"record 5 \({again[0]}\): {message}"):
            Plan([*records, conv, scan, again], widths, TABLES, max_rows=4)
    attention = ("attention", (3,), (1, 1, 1), (), small)
    with pytest.raises(PlanError, match=r"record 4 \(scan\): layer 0 has an attention already"):
        Plan([*records, attention, scan], widths, TABLES, max_rows=4)


def test_a_convolution_by_one_tap_keeps_nothing():
    x, w, b = values(1, 9, 20, 0), values(2, 20, 1, 0), values(3, 1, 20, 0)
    plan = Plan([EMBED, ("conv", (1,), (0,), (1, 2), {"layer": 0})], [20, 20], [weight(v) for v in (x, w, b)], max_rows=9)
    y = everywhere(lambda threads: run_rows(plan, [(None, range(9), 0, 9)], threads))
    assert same_bits(y, conv_reference(x, w, b[0])[0])


def test_weights_of_a_convolution_may_be_quantized():
    model, rng = values(1, 30, 64, 0), np.random.default_rng(1)
    half = rng.standard_normal((64, 4)).astype(np.float16)
    plan = Plan(
        [EMBED, ("conv", (1,), (0,), (1,), {"layer": 0})], [64, 64], [weight(model), Weight(half, "F16", 64, 4)], max_rows=30
    )
    context = Context((GroupSpec((LayerSpec(0, 1, 192, 0),), STATE),))
    assert same_bits(step(plan, context, list(range(30))), conv_reference(model, half.astype(np.float32))[0])
