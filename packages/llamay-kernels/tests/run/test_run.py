"""Runs: the inputs of every step are checked, and an error leaves the pages as they were."""

import ctypes
import threading

import numpy as np
import pytest
from pages import F16, FULL, WINDOW, Context, GroupSpec, Layer, LayerSpec, ScaledLayer, View
from plans import ATTENTION, same_bits, weight

from llamay_kernels import Plan, Sampler, Threads, sample_batch

ONE = Threads(1)
RNG = np.random.default_rng(3)
TABLE = weight(RNG.standard_normal((10, 32)))
SPEC = (GroupSpec((LayerSpec(2, 2, 8, 8),)),)


def make(window: int = 0, layers: tuple[int, ...] = (2,)) -> Plan:
    to_kv = weight(np.random.default_rng(4).standard_normal((16, 32)))
    records = [("embed", (0,), (), (0,), {}), ("linear", (1,), (0,), (1,), {})]
    records += [
        (
            "attention",
            (2 + i,),
            (i + 1 if i else 0, 1, 1),
            (),
            {**ATTENTION, "layer": layer, "window": window},
        )
        for i, layer in enumerate(layers)
    ]
    return Plan(records, [32, 16] + [32] * len(layers), [TABLE, to_kv], max_rows=64)


PLAN = make()


def step(context, n=3, *, plan=PLAN, **changed):
    arguments = {
        "tokens": np.arange(n, dtype=np.int32),
        "positions": np.arange(n, dtype=np.int32),
        "leases": [context],
        "counts": [n],
        "logits": np.arange(n, dtype=np.int32),
        "out": np.full((n, 32), np.nan, np.float32),
        "threads": ONE,
        **changed,
    }
    plan.run(**arguments)
    return arguments["out"]


def i32(*values):
    return np.array(values, np.int32)


WRONG = [
    ({"tokens": i32(0, 10, 2)}, r"tokens\[1\] is 10; the vocabulary has 10"),
    ({"tokens": i32(0, 1, -1)}, r"tokens\[2\] is -1; the vocabulary has 10"),
    ({"positions": i32(0, 1)}, "there are 3 tokens but 2 positions"),
    ({"positions": i32(0, -1, 2)}, r"positions\[1\] is -1, which is out of range"),
    ({"counts": [2]}, "counts add up to 2 but there are 3 tokens"),
    ({"counts": [3, 0]}, "there are 1 leases but 2 counts"),
    ({"counts": [0]}, r"counts\[0\] is 0; leave a lease without rows out"),
    ({"leases": [], "counts": []}, "counts add up to 0 but there are 3 tokens"),
    ({"logits": i32(0, 1, 3)}, r"logits\[2\] is 3 but there are 3 rows"),
    ({"logits": i32(0, -1, 1)}, r"logits\[1\] is -1 but there are 3 rows"),
    ({"logits": i32(0)}, "out is 3 x 32; it must be len.logits. x output_width, 1 x 32"),
    ({"out": np.empty((3, 31), np.float32)}, "out is 3 x 31; it must be len.logits. x output_width, 3 x 32"),
    ({"tokens": i32(), "positions": i32()}, "a run takes 1 to 64 rows, not 0"),
    (
        {"tokens": np.zeros(65, np.int32), "positions": np.zeros(65, np.int32)},
        "a run takes 1 to 64 rows, not 65",
    ),
]


@pytest.mark.parametrize(("changed", "message"), WRONG, ids=[m for _, m in WRONG])
def test_arguments_that_do_not_fit_are_refused_and_nothing_is_written(changed, message):
    context = Context(SPEC).reserve(3)
    before = context.arenas[0].copy()
    with pytest.raises(ValueError, match=message):
        step(context, **changed)
    assert (context.arenas[0] == before).all()
    assert np.isfinite(step(context)).all()


@pytest.mark.parametrize("name", ["tokens", "positions", "logits"])
def test_arrays_of_another_type_are_refused(name):
    with pytest.raises(TypeError):
        step(Context(SPEC).reserve(3), **{name: np.zeros(3, np.int64)})


# -- rows of contexts, and tokens chosen from their outputs


def test_rows_of_contexts_are_a_run_and_draws_are_a_batch_of_samples():
    tokens = [[1, 2, 3, 4, 5], [7], [9, 8]]
    contexts = [[Context(SPEC, seed=i).reserve(len(t)) for i, t in enumerate(tokens)] for _ in range(2)]
    out = np.full((4, 32), np.nan, np.float32)
    PLAN.run(
        i32(1, 2, 3, 4, 5, 7, 9, 8),
        i32(0, 1, 2, 3, 4, 30, 4, 5),
        contexts[0],
        [5, 1, 2],
        i32(3, 4, 5, 7),
        out,
        ONE,
    )
    again = np.full((6, 32), np.nan, np.float32)
    rows = [
        (contexts[1][0], tokens[0], 0, 2),
        (contexts[1][1], tokens[1], 30, 1),
        (contexts[1][2], tokens[2], 4, 1),
    ]
    mask = np.array([0x0F0F0000], np.uint32)
    draws = [
        (Sampler(1), 3, 6, None, mask),
        (Sampler(2, repeat_penalty=1.5), 0, 4, i32(1, 2, 3), None),
        (Sampler(3, temperature=0), 2, 31, None, None),
        (Sampler(4), 1, 5, None, np.zeros(1, np.uint32)),
    ]
    seconds, chosen, errors = PLAN.run_rows(rows, again, ONE, draws)
    assert same_bits(again[:4], out)
    assert np.isnan(again[4:]).all()
    for one, other in zip(*contexts, strict=True):
        assert (one.arenas[0] == other.arenas[0]).all()
    assert (chosen, errors) == sample_batch([(s, out[i], *rest) for s, i, *rest in draws])
    assert chosen[0] in [16, 17, 18, 19, 24, 25, 26, 27]
    assert chosen[3] == -1
    assert 0 < seconds < 10
    contexts[1][0].commit(5)
    assert PLAN.run_rows([(contexts[1][0].reserve(1), [6], 5, 0)], again[:0], ONE)[1:] == ([], {})


BAD_ROWS = [
    ({"tokens": [0, 10, 2]}, r"tokens\[1\] is 10; the vocabulary has 10"),
    ({"tokens": [0, 1 << 31, 2]}, "tokens must be 0 to 2.31 - 1, not 2147483648"),
    ({"tokens": [0, -1, 2]}, "tokens must be 0 to 2.31 - 1, not -1"),
    ({"tokens": []}, r"rows\[0\] wants the last 3 of 0 tokens"),
    ({"wanted": 4}, r"rows\[0\] wants the last 4 of 3 tokens"),
    ({"wanted": -1}, r"rows\[0\] wants the last -1 of 3 tokens"),
    ({"position": -1}, r"rows\[0\] begins at position -1"),
    ({"position": (1 << 31) - 3}, r"rows\[0\] begins at position 2147483645"),
    ({"out": np.empty((2, 32), np.float32)}, "out is 2 x 32; it must be at least 3 x 32"),
    ({"out": np.empty((3, 31), np.float32)}, "out is 3 x 31; it must be at least 3 x 32"),
    ({"draws": [(Sampler(0), 3, 0, None, None)]}, "a draw is from output 3 but there are 3"),
    ({"draws": [(None, 0, 0, None, None)]}, "a draw needs a sampler"),
]


@pytest.mark.parametrize(("changed", "message"), BAD_ROWS, ids=[m for _, m in BAD_ROWS])
def test_rows_that_do_not_fit_are_refused_and_nothing_is_written(changed, message):
    context = Context(SPEC).reserve(3)
    before = context.arenas[0].copy()
    row = {"tokens": [0, 1, 2], "position": 0, "wanted": 3, "out": np.zeros((3, 32), np.float32), "draws": ()}
    row |= changed
    with pytest.raises(ValueError, match=message):
        PLAN.run_rows(
            [(context, row["tokens"], row["position"], row["wanted"])], row["out"], ONE, row["draws"]
        )
    assert (context.arenas[0] == before).all()


# -- leases


def refuse(context, message, error=ValueError, plan=PLAN):
    before = [a.copy() for a in context.arenas]
    with pytest.raises(error, match=message):
        step(context, plan=plan)
    assert all((a == b).all() for a, b in zip(before, context.arenas, strict=True))


def test_a_lease_must_have_reserved_the_rows():
    refuse(
        Context(SPEC).reserve(2),
        "lease 0: it has 2 reserved positions for 3 rows; reserve them before the run",
    )


def test_a_lease_must_have_every_layer_in_the_plans_shape():
    refuse(Context((GroupSpec((LayerSpec(1, 2, 8, 8),)),)).reserve(3), "lease 0: it has no layer 2")
    wrong = Context((GroupSpec((LayerSpec(2, 2, 8, 4),)),)).reserve(3)
    refuse(wrong, "layer 2: it holds 2 heads of 8 and 4 but the plan has 2 heads of 8 and 8")
    twice = Context((GroupSpec((LayerSpec(2, 2, 8, 8), LayerSpec(2, 2, 8, 8))),)).reserve(3)
    refuse(twice, "layer 2: it is there twice")


def test_layers_that_the_plan_does_not_know_are_left_alone():
    more = Context(
        (GroupSpec((LayerSpec(0, 1, 3, 3), LayerSpec(2, 2, 8, 8), LayerSpec(9, 1, 1, 1))),)
    ).reserve(3)
    assert same_bits(step(more), step(Context(SPEC).reserve(3)))


def test_a_window_must_be_kept_whole():
    short = Context((GroupSpec((LayerSpec(2, 2, 8, 8),), WINDOW, 9),)).reserve(3)
    refuse(short, "layer 2: it keeps 9 positions but the plan looks back 10", plan=make(window=10))
    refuse(short, "layer 2: it keeps 9 positions but the plan looks back at all of them")
    assert np.isfinite(step(short, plan=make(window=9))).all()


def test_a_dropped_page_that_is_needed_is_an_error():
    context = Context(SPEC, page_tokens=16)
    for _ in range(11):
        step(context.reserve(3))
        context.commit(3)
    context.tables[0][0] = -1
    refuse(context.reserve(3), "lease 0: page 0 was dropped, but a row of this step looks back at it")
    assert np.isfinite(step(context, plan=make(window=8))).all()


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("page_tokens", 48, "its pages have 48 positions in blocks of 4 pages; both must be powers of two"),
        ("page_tokens", 8, "its pages have 8 positions in blocks of 4 pages"),
        ("block_pages", 3, "in blocks of 3 pages; both must be powers of two"),
        (
            "dtype",
            7,
            r"its precision has the number 7; this version knows f32 \(0\), f16 \(1\), vq8 \(2\) and q8 \(3\)",
        ),
        ("kind", 2, r"layer 2: the plan keeps keys and values, but its group is latent \(2\)"),
        ("kind", 4, r"a group's kind has the number 4; this version knows full \(0\), window \(1\), latent"),
        ("page_bytes", 100, "layer 2: it does not fit into its page of 100 bytes"),
        ("layer_stride", 8, "its layers are shorter than kv_view says"),
        ("arena", None, "layer 2: its group has no pages"),
    ],
)
def test_a_view_that_makes_no_sense_is_refused(field, value, message):
    context = Context(SPEC).reserve(3)
    setattr(context._groups[0], field, value)
    refuse(context, message)


def test_one_context_given_twice_is_refused():
    context = Context(SPEC).reserve(3)
    with pytest.raises(ValueError, match="leases 0 and 1 write the same page; give each context once"):
        step(context, 6, leases=[context, context], counts=[3, 3])


# -- versions of the view


def test_an_object_without_a_view_is_a_type_error():
    with pytest.raises(
        TypeError, match=r"leases\[0\]: expected an object with __llamay_kv_view__\(\), .* not a dict"
    ):
        step({})


def test_another_major_version_is_refused_by_its_owner():
    context = Context(SPEC, major=2).reserve(3)
    refuse(context, "this context speaks kv_view 2, not 1", BufferError)


def test_a_capsule_of_another_version_is_refused_naming_it():
    context = Context(SPEC, name=b"llamay.kv_view.v2").reserve(3)
    message = r"leases\[0\]: expected a capsule named llamay.kv_view.v1, got one named llamay.kv_view.v2"
    refuse(context, message, BufferError)


def test_something_else_than_a_capsule_is_refused():
    class Strange:
        def __llamay_kv_view__(self, major):
            return major

    with pytest.raises(BufferError, match=r"expected a capsule named llamay.kv_view.v1, got something else"):
        step(Strange())


def test_a_truncated_view_is_refused():
    size = View.n_tokens.offset
    context = Context(SPEC, size=size).reserve(3)
    refuse(context, f"its view has {size} bytes, fewer than kv_view 1.0 begins with", BufferError)


def test_a_longer_view_of_a_later_minor_version_is_read():
    context = Context(SPEC, size=ctypes.sizeof(View) + 8).reserve(3)
    assert same_bits(step(context), step(Context(SPEC).reserve(3)))


def test_structs_are_walked_by_the_size_their_owner_states():
    """Two layers, each followed by a field that this version does not know."""

    class LongLayer(ctypes.Structure):
        _fields_ = [("known", Layer), ("later", ctypes.c_uint64)]

    plan = make(layers=(2, 5))
    spec = (GroupSpec((LayerSpec(2, 2, 8, 8), LayerSpec(5, 2, 8, 8)), FULL),)
    context, plain = Context(spec).reserve(3), Context(spec).reserve(3)
    group = context._groups[0]
    known = ctypes.cast(group.layers, ctypes.POINTER(ScaledLayer))
    longer = (LongLayer * 2)(*((known[i].layer, 0xFFFFFFFFFFFFFFFF) for i in range(2)))
    group.layers = ctypes.cast(longer, ctypes.POINTER(Layer))
    group.layer_stride = ctypes.sizeof(LongLayer)
    assert same_bits(step(context, plan=plan), step(plain, plan=plan))


def test_a_group_without_a_layer_of_the_plan_may_be_of_any_kind():
    """Such as the states of recurrent layers, which have no positions."""
    context = Context((*SPEC, GroupSpec((LayerSpec(9, 1, 8, 8),)))).reserve(3)
    context._groups[1].kind, context._groups[1].page_tokens, context._groups[1].dtype = 3, 1, 9
    assert same_bits(step(context), step(Context(SPEC).reserve(3)))
    context = Context(SPEC).reserve(3)
    context._groups[0].kind = 3
    refuse(context, "lease 0: it has no layer 2")


# -- runs at the same time


@pytest.mark.parametrize("shared_pool", [False, True])
def test_runs_of_one_plan_may_overlap(shared_pool):
    expected = [step(Context(SPEC, dtype=F16, seed=s).reserve(3), tokens=i32(s, 1, 2)) for s in range(4)]
    pool, failures = Threads(2, grain=0), []

    def work(s):
        threads = pool if shared_pool else Threads(2, grain=0)
        for _ in range(60):
            y = step(Context(SPEC, dtype=F16, seed=s).reserve(3), tokens=i32(s, 1, 2), threads=threads)
            if not same_bits(y, expected[s]):
                failures.append(s)

    workers = [threading.Thread(target=work, args=(s,)) for s in range(4)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert not failures


@pytest.mark.parametrize("n_threads", [2, 3, 5, 15])
def test_a_prompt_is_the_same_whoever_takes_which_rows(n_threads):
    """Threads begin with rows of their own and then take rows that others have left."""
    rng = np.random.default_rng(8)
    two = (GroupSpec((LayerSpec(2, 2, 8, 8), LayerSpec(3, 2, 8, 8))),)
    weights = [TABLE] + [
        weight(rng.standard_normal(shape)) for shape in ((16, 32), (1, 32), (64, 32), (64, 32), (32, 64))
    ]
    records = [
        ("embed", (0,), (), (0,), {}),
        ("linear", (1,), (0,), (1,), {}),
        ("attention", (2,), (0, 1, 1), (), {**ATTENTION, "layer": 2}),
        ("rms_norm", (3,), (2,), (2,), {"eps": 1e-5}),
        ("glu", (4,), (3,), (3, 4), {"act": "silu"}),
        ("linear_add", (5,), (2, 4), (5,), {}),
        ("attention", (6,), (5, 1, 1), (), {**ATTENTION, "layer": 3, "window": 100}),
    ]
    plan = Plan(records, [32, 16, 32, 32, 64, 32, 32], weights, max_rows=400)
    n = 333
    tokens = rng.integers(0, 10, n).astype(np.int32)
    expected = step(Context(two).reserve(n), n, plan=plan, tokens=tokens)
    threads = Threads(n_threads, grain=0)
    for _ in range(5):
        assert same_bits(
            step(Context(two).reserve(n), n, plan=plan, tokens=tokens, threads=threads), expected
        )
