"""Rows take whole numbers that their program has, and nothing that only looks like one."""

import re

import numpy as np
import pytest

from llamay_models.errors import PlanError
from llamay_models.plan import ArrayTensor, Reference, RowByRow, Rows, Trace, evaluate

TABLE = ArrayTensor("table", np.arange(15, dtype=np.float32).reshape(5, 3))
LEARNED = ArrayTensor("positions", np.zeros((4, 3), np.float32))
TYPES = ArrayTensor("types", np.zeros((2, 3), np.float32))


def build(g):
    x = g.given(g.embed(TABLE, 5, 3))
    x = g.add(x, g.embed_positions(LEARNED, 4, 3))
    x = g.add(x, g.embed_types(TYPES, 2, 3))
    return g.attention(0, x, x, x, heads=1, kv_heads=1, scale=1.0)


@pytest.fixture
def program():
    g = Trace()
    build(g)
    return g.program()


@pytest.mark.parametrize("token", [-1, 1.0, "1", True, None, np.float32(1), 2**31, [1]])
def test_a_token_is_a_whole_number_from_0_on(program, token):
    message = re.escape("tokens[1] must be a whole number from 0 to 2147483647, not ")
    for compute in (Reference, lambda tokens: evaluate(program, tokens)):
        with pytest.raises(PlanError, match=message):
            compute([0, token])
    with pytest.raises(PlanError, match=re.escape("tokens[0] must be a whole number")):
        RowByRow(program).read(token)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"tokens": 3}, "tokens must be a sequence of whole numbers, not 3"),
        ({"tokens": [[1, 2]]}, "tokens[0] must be a whole number"),
        ({"wanted": [1.7]}, "each row that wanted names must be a whole number from 0 to 1, not 1.7"),
        ({"wanted": [True]}, "each row that wanted names must be a whole number from 0 to 1, not True"),
        ({"wanted": 1}, "wanted must be a sequence of whole numbers, not 1"),
        ({"texts": [1.0, 1]}, "texts[0] must be a whole number"),
        ({"texts": [3, -1]}, "texts[1] must be a whole number"),
        ({"types": [0, 0.5]}, "types[1] must be a whole number"),
        ({"types": [0, -1]}, "types[1] must be a whole number"),
        ({"positions": [0, -1]}, "positions[1] must be a whole number"),
        ({"positions": np.array([0.0, 1.0])}, "positions[0] must be a whole number"),
        ({"positions": [[0, 1], [0, "1"]]}, "positions[1][1] must be a whole number"),
        ({"positions": [[0, 1], [0]]}, "positions must have equally many axes in every row"),
        ({"positions": [[0, 1], 0]}, "positions[1] must be a sequence of whole numbers, not 0"),
        ({"vectors": [np.zeros(3)]}, "vectors must be a mapping of rows to vectors, not list"),
        ({"vectors": {1.0: np.zeros(3)}}, "each row that vectors names must be a whole number"),
        ({"vectors": {0: [0, np.nan, 0]}}, "the vector of row 0 has a number that is not finite"),
        ({"vectors": {1: [0, np.inf, 0]}}, "the vector of row 1 has a number that is not finite"),
        ({"vectors": {0: ["a", "b", "c"]}}, "the vector of row 0 must be one row of real numbers"),
        ({"vectors": {0: [1j, 0, 0]}}, "the vector of row 0 must be one row of real numbers"),
        ({"vectors": {0: np.zeros((1, 3))}}, "the vector of row 0 must be one row of real numbers"),
        ({"vectors": {0: [[1], [2, 3]]}}, "the vector of row 0 must be one row of real numbers"),
    ],
)
def test_rows_refuse_what_is_no_number_of_theirs(how, message):
    with pytest.raises(PlanError, match=re.escape(message)):
        Rows(**{"tokens": [0, 1], **how})


def test_wanted_rows_are_told_once(program):
    for compute in (Reference, lambda rows, wanted: evaluate(program, rows, wanted)):
        with pytest.raises(PlanError, match=re.escape("wanted belongs to Rows where rows are given as such")):
            compute(Rows([0, 1]), [1])


def test_numbers_of_numpy_are_kept_as_plain_ones():
    rows = Rows(np.array([3, 1], np.int32), wanted=np.array([1]), types=(np.uint8(1), 0), positions=range(2))
    assert rows.tokens == (3, 1)
    assert rows.wanted == (1,)
    assert rows.types == (1, 0)
    assert {type(n) for n in (*rows.tokens, *rows.wanted, *rows.types)} == {int}
    assert rows.position().tolist() == [0, 1]


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"tokens": [5]}, "table has 5 rows; there is none for the token 5"),
        ({"positions": [4]}, "positions has 4 rows; there is none for the position 4"),
        ({"types": [2]}, "types has 2 rows; there is none for the type 2"),
        ({"vectors": {0: [1.0]}}, "given: the vector of row 0 has the shape (1,); it must be (3,)"),
    ],
)
def test_an_operation_refuses_what_its_table_does_not_have(program, how, message):
    rows = Rows(**{"tokens": [0], **how})
    for compute in (lambda: evaluate(program, rows), lambda: build(Reference(rows))):
        with pytest.raises(PlanError, match=re.escape(message)):
            compute()


def test_the_token_of_a_vector_has_no_effect(program):
    vectors = {0: [1.0, 2.0, 3.0]}
    outputs = [evaluate(program, Rows([token], vectors=vectors)) for token in (0, 4, 99)]
    assert outputs[0].tolist() == outputs[1].tolist() == outputs[2].tolist() == [[1.0, 2.0, 3.0]]


@pytest.mark.parametrize(
    "wrong",
    [
        {"token": 1.5},
        {"token": 5},
        {"type": "1"},
        {"position": 1.5},
        {"position": 9},
        {"vector": [np.nan] * 3},
        {"vector": 1.0},
    ],
)
def test_a_refused_row_leaves_a_row_by_row_text_as_it_was(wrong):
    g = Trace()
    x = g.embed(TABLE, 5, 3)
    x = g.attention(
        0, x, x, x, heads=1, kv_heads=1, scale=1.0
    )  # keeps a row before another operation refuses it
    x = g.add(g.given(x), g.embed_types(TYPES, 2, 3))
    g.add(x, g.embed_positions(LEARNED, 4, 3))
    program = g.program()
    text = RowByRow(program)
    text.read(1)
    with pytest.raises(PlanError):
        text.read(**wrong)
    assert text.length == 1
    assert np.array_equal(text.read(2), evaluate(program, [1, 2])[1])
