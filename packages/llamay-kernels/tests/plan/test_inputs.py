"""The inputs of a step's rows besides their tokens: vectors, types, positions of several axes."""

import numpy as np
import pytest
from kernel_sets import POOLS, everywhere, values
from plans import ONE, run_rows, same_bits, weight

from llamay_kernels import Plan

WIDTH = 24
TABLE, TYPES, LEARNED = values(1, 100, WIDTH, 0), values(2, 3, WIDTH, 0), values(3, 90, WIDTH, 0)
EMBED = ("embed", (0,), (), (0,), {})
GIVEN = Plan(
    [
        EMBED,
        ("scale", (1,), (0,), (), {"by": 2.0}),
        ("given", (2,), (1,), (), {}),
        ("unary", (3,), (2,), (), {"kind": "silu"}),
    ],
    [WIDTH] * 4,
    [weight(TABLE)],
    max_rows=128,
)
TYPED = Plan(
    [
        EMBED,
        ("embed_types", (1,), (), (1,), {}),
        ("embed_positions", (2,), (), (2,), {}),
        ("add", (3,), (0, 1), (), {}),
        ("add", (4,), (3, 2), (), {}),
    ],
    [WIDTH] * 5,
    [weight(x) for x in (TABLE, TYPES, LEARNED)],
    max_rows=128,
)
PLAIN = Plan([EMBED], [WIDTH], [weight(TABLE)], max_rows=8)


def i32(*x):
    return np.array(x, np.int32)


def silu(x):
    return run_rows(
        Plan([EMBED, ("unary", (1,), (0,), (), {"kind": "silu"})], [WIDTH] * 2, [weight(x)], max_rows=len(x)),
        [(None, range(len(x)), 0, len(x))],
    )


@pytest.mark.parametrize("counts", [[1], [3], [70], [1, 5, 64]], ids=str)
def test_vectors_stand_among_tokens(counts):
    rng = np.random.default_rng(len(counts))
    texts, wanted = [], []
    for i, n in enumerate(counts):
        tokens = rng.integers(0, 100, n)
        rows = TABLE[tokens] * np.float32(2)
        given = np.sort(rng.choice(n, rng.integers(0, n + 1), replace=False)).astype(np.int32)
        vectors = values(i + 9, len(given), WIDTH, 0)
        rows[given], tokens[given] = vectors, 0
        wanted.append(rows)
        inputs = {"vectors": (given, vectors)} if len(given) else None
        texts.append((None, tokens.tolist(), 0, n, inputs))
    y = everywhere(lambda threads: run_rows(GIVEN, texts, threads))
    assert same_bits(y, silu(np.concatenate(wanted)))


def test_vectors_stay_until_a_step_has_ended():
    vectors = values(4, 2, WIDTH, 0)
    expected = silu(vectors)
    out = np.zeros((2, WIDTH), np.float32)
    begun = GIVEN.begin_rows([(None, [0, 0], 0, 2, {"vectors": (i32(0, 1), vectors.copy())})], out, POOLS[3])
    begun.finish()
    assert same_bits(out, expected)


def test_types_and_positions_choose_rows_of_tables():
    texts = [
        (None, [5, 6, 7], 10, 3),
        (None, [8, 9], 0, 2, {"types": i32(2, 1)}),
        (None, [1], 3, 1, {}),
        (None, [2, 3], 4, 2, {"types": i32(0, 2), "positions": np.array([[50, 1], [7, 1]], np.int32)}),
    ]
    y = everywhere(lambda threads: run_rows(TYPED, texts, threads))
    types, positions = [0, 0, 0, 2, 1, 0, 0, 2], [10, 11, 12, 0, 1, 3, 50, 7]
    assert same_bits(y, TABLE[[5, 6, 7, 8, 9, 1, 2, 3]] + TYPES[types] + LEARNED[positions])
    plain = np.full((2, WIDTH), np.nan, np.float32)
    everywhere(lambda threads: TYPED.run(i32(5, 6), i32(1, 2), [], [], i32(0, 1), plain, threads) or plain)
    assert same_bits(plain, TABLE[[5, 6]] + TYPES[0] + LEARNED[[1, 2]])


def vectors(rows, width=WIDTH, dtype=np.float32):
    return {"vectors": (np.array(rows, np.int32), np.zeros((len(rows), width), dtype))}


SHAPE = r"rows\[0\]: vectors must be a pair of int32 \(m,\) and float32 \(m, width\), both contiguous"
ORDER = r"rows\[0\]: vectors: rows must increase and be below 3, and one is "
WRONG = [
    (
        GIVEN,
        vectors([0], 23),
        r"there are 1 rows for vectors of shape \(1, 23\); this plan takes vectors of 24",
    ),
    (
        GIVEN,
        {"vectors": (i32(0, 1), np.zeros((1, WIDTH), np.float32))},
        r"2 rows for vectors of shape \(1, 24\)",
    ),
    (GIVEN, vectors([1, 0]), ORDER + "0 after 1"),
    (GIVEN, vectors([1, 1]), ORDER + "1 after 1"),
    (GIVEN, vectors([-1]), ORDER + "-1"),
    (GIVEN, vectors([0, 3]), ORDER + "3 after 0"),
    (GIVEN, vectors([0], dtype=np.float64), SHAPE),
    (GIVEN, {"vectors": (np.zeros(1, np.int64), np.zeros((1, WIDTH), np.float32))}, SHAPE),
    (GIVEN, {"vectors": (i32(0), np.zeros(WIDTH, np.float32))}, SHAPE),
    (GIVEN, {"vectors": (i32(0), np.zeros((1, 2 * WIDTH), np.float32)[:, ::2])}, SHAPE),
    (GIVEN, {"vectors": i32(0)}, SHAPE),
    (GIVEN, {"vectors": None}, SHAPE),
    (PLAIN, vectors([0]), r"rows\[0\]: it has vectors, but this plan takes tokens only"),
    (GIVEN, {"images": 1}, "there is no input 'images'; there are vectors, positions and types"),
    (TYPED, {"types": i32(0, 1)}, r"rows\[0\]: types must be int32 \(3,\), contiguous"),
    (TYPED, {"types": np.zeros(3, np.int64)}, r"types must be int32 \(3,\), contiguous"),
    (TYPED, {"types": i32(0, 3, 0)}, r"types\[1\] is 3; the model has 3"),
    (TYPED, {"types": i32(0, 0, -1)}, r"types\[2\] is -1; the model has 3"),
    (PLAIN, {"types": i32(0, 0, 0)}, "rows have types, but this plan has no table of types"),
    (TYPED, {"positions": i32(0, 1, 2)}, r"positions must be int32 \(3, axes\), contiguous, of 1 to 8 axes"),
    (TYPED, {"positions": np.zeros((2, 3), np.int32)}, r"positions must be int32 \(3, axes\)"),
    (TYPED, {"positions": np.zeros((3, 9), np.int32)}, "of 1 to 8 axes"),
    (TYPED, {"positions": np.zeros((3, 0), np.int32)}, "of 1 to 8 axes"),
    (TYPED, {"positions": np.full((3, 2), 90, np.int32)}, r"positions\[0, 0\] is 90; the model has 90"),
]


@pytest.mark.parametrize(("plan", "inputs", "message"), WRONG, ids=[m for _, _, m in WRONG])
def test_inputs_that_do_not_fit_are_refused(plan, inputs, message):
    with pytest.raises(ValueError, match=message):
        run_rows(plan, [(None, [1, 2, 3], 0, 3, inputs)])
    run_rows(plan, [(None, [1, 2, 3], 0, 3)])


def test_inputs_of_texts_must_go_together():
    texts = [(None, [1], 0, 1, {"positions": np.zeros((1, n), np.int32)}) for n in (2, 3)]
    with pytest.raises(ValueError, match=r"rows\[1\]: its positions have 3 axes, and others 2"):
        run_rows(TYPED, texts)


@pytest.mark.parametrize("inputs", [3, [1], "vectors", i32(1)], ids=str)
def test_inputs_must_be_a_mapping(inputs):
    with pytest.raises(TypeError, match=r"rows\[0\]: inputs must be a mapping"):
        run_rows(GIVEN, [(None, [1], 0, 1, inputs)])


@pytest.mark.parametrize("text", [(None, [1], 0), (None, [1], 0, 1, None, None), [None, [1], 0, 1]], ids=str)
def test_a_text_is_a_tuple_of_four_or_five(text):
    with pytest.raises(
        TypeError, match=r"rows\[0\] must be a tuple \(lease, tokens, position, wanted\) or one with"
    ):
        GIVEN.run_rows([text], np.zeros((1, WIDTH), np.float32), ONE)


def test_the_token_of_a_vector_must_be_one():
    """Its embedding is looked up all the same."""
    with pytest.raises(ValueError, match=r"tokens\[1\] is 100; the vocabulary has 100"):
        run_rows(GIVEN, [(None, [0, 100], 0, 2, vectors([1]))])


def test_one_row_may_be_wanted_more_than_once():
    plan = Plan(
        [
            EMBED,
            ("select", (1,), (0,), (), {}),
            ("linear", (2,), (1,), (1,), {}),
            ("unary", (3,), (2,), (), {"kind": "exp"}),
        ],
        [WIDTH, WIDTH, 40, 40],
        [weight(TABLE), weight(values(8, 40, WIDTH, 0))],
        max_rows=4,
    )
    for n, wanted in ((1, [0, 0, 0]), (2, [1, 0, 1, 1, 0])):
        rows = np.arange(n, dtype=np.int32)
        once, often = np.zeros((n, 40), np.float32), np.zeros((len(wanted), 40), np.float32)
        everywhere(
            lambda threads, rows=rows, out=once: plan.run(rows, rows, [], [], rows, out, threads) or out
        )

        def compute(threads, rows=rows, wanted=wanted, out=often):
            out[:] = np.nan
            plan.run(rows, rows, [], [], i32(*wanted), out, threads)
            return out

        assert same_bits(everywhere(compute), once[wanted])
