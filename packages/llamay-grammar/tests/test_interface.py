"""The versions that engines check, the public names, and the arrays that masks are written to, whoever made them."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import llamay_grammar as lg
from llamay_grammar import Matcher, Vocabulary, compile_regex, fill_masks

ROWS = 3


@pytest.fixture(scope="module")
def matcher() -> Matcher:
    tokens = [*(bytes([b]) for b in range(256)), b"</s>"]
    return compile_regex("[ab]c", Vocabulary(tokens, special=[256], end=[256])).matcher()


def test_the_interfaces_are_stated() -> None:
    assert lg.INTERFACE == {"token_constraint": (1, 0), "vocabulary": (1, 0)}
    assert all(hasattr(lg, name) for name in lg.__all__)


def test_dir_shows_the_public_names_alone() -> None:
    assert [name for name in dir(lg) if not name.startswith("_")] == sorted(lg.__all__)


def test_every_error_is_public_and_called_so_and_documented() -> None:
    page = Path(__file__).parents[3] / "docs/structured-output.md"
    text = page.read_text("utf-8") if page.is_file() else ""
    for module in pkgutil.walk_packages(lg.__path__, "llamay_grammar."):
        for name, value in vars(importlib.import_module(module.name)).items():
            ours = inspect.isclass(value) and value.__module__.startswith("llamay_grammar")
            if ours and issubclass(value, BaseException):
                assert name.endswith("Error")
                assert name in lg.__all__
                assert f"`{name}`" in text or not text


class OnlyDLPack:
    """An array that is known by the DLPack protocol alone, as those of other libraries are."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


def all_ones(shape: int | tuple[int, ...], dtype: Any) -> np.ndarray:
    return np.full(shape, -1, np.int32).view(np.uint32).astype(dtype)


@pytest.mark.parametrize("dtype", [np.int32, np.uint32])
@pytest.mark.parametrize("more", [0, 5])
@pytest.mark.parametrize("step", [1, 2, -1])
def test_words_are_written_in_place_and_cleared_beyond_the_vocabulary(
    matcher: Matcher, dtype: Any, more: int, step: int
) -> None:
    expected = matcher.mask()
    words = len(expected)
    memory = all_ones((words + more) * abs(step), dtype)
    out = memory[::step]
    matcher.fill_mask(out)
    assert np.array_equal(
        out.view(np.uint32) if step == 1 else out.astype(np.uint32), [*expected, *[0] * more]
    )
    between = memory[1::2] if step == 2 else memory[:0]
    assert (between == all_ones(len(between), dtype)).all(), "what lies between strided words stays"


@pytest.mark.parametrize("dtype", [np.int32, np.uint32])
def test_rows_are_written_in_place(matcher: Matcher, dtype: Any) -> None:
    expected = matcher.mask()
    memory = all_ones((2 * ROWS, len(expected) + 4), dtype)
    out = memory[::2, 1:-1]
    fill_masks([matcher] * (ROWS - 1), out)
    assert (out[: ROWS - 1].astype(np.uint32) == [*expected, 0, 0]).all()
    assert (out[ROWS - 1] == all_ones(len(out[0]), dtype)).all(), "a row without a matcher stays"
    assert (memory[1::2] == all_ones(memory[1::2].shape, dtype)).all()


def test_any_array_with_dlpack_is_written(matcher: Matcher) -> None:
    memory = all_ones(len(matcher.mask()), np.int32)
    matcher.fill_mask(OnlyDLPack(memory))  # type: ignore[arg-type]
    assert np.array_equal(memory.view(np.uint32), matcher.mask())


def test_tensors_of_torch_are_written(matcher: Matcher) -> None:
    torch = pytest.importorskip("torch")
    row = torch.full((len(matcher.mask()),), -1, dtype=torch.int32)
    matcher.fill_mask(row)
    assert np.array_equal(row.numpy().view(np.uint32), matcher.mask())
    rows = torch.full((ROWS, len(row)), -1, dtype=torch.int32)
    fill_masks([matcher] * ROWS, rows)
    assert (rows.numpy().view(np.uint32) == matcher.mask()).all()


def read_only(words: int) -> np.ndarray:
    array = np.zeros(words, np.uint32)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    "make",
    [
        lambda n: np.zeros(n, np.int64),
        lambda n: np.zeros(n, np.uint64),
        lambda n: np.zeros(2 * n, np.int16),
        lambda n: np.zeros(4 * n, np.uint8),
        lambda n: np.zeros(n, np.float32),
        lambda n: np.zeros(n, bool),
        lambda n: np.zeros((1, n), np.uint32),
        lambda n: np.zeros(n, ">u4"),
        lambda n: [0] * n,
        lambda n: bytearray(4 * n),
        lambda n: None,
        read_only,
    ],
)
def test_an_array_that_cannot_be_written_is_a_type_error(matcher: Matcher, make: Any) -> None:
    words = len(matcher.mask())
    with pytest.raises(TypeError, match="uint32 or int32 with 1 dimension"):
        matcher.fill_mask(make(words))
    array = make(words)
    rows = array[None] if isinstance(array, np.ndarray) and array.ndim == 1 else [array]
    with pytest.raises(TypeError, match="uint32 or int32 with 2 dimensions"):
        fill_masks([matcher], rows)


def test_a_short_array_says_how_many_words_are_needed(matcher: Matcher) -> None:
    words = len(matcher.mask())
    with pytest.raises(ValueError, match=f"too short: it has {words - 1} words, but .* {words}"):
        matcher.fill_mask(np.zeros(words - 1, np.uint32))
    with pytest.raises(ValueError, match="2 matchers need as many rows, but out has 1"):
        fill_masks([matcher] * 2, np.zeros((1, words), np.uint32))
