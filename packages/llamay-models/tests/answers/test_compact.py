"""JSON that comes in parts is made compact while it comes, and what is complete of it can be told."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llamay_models.answers import complete_part
from llamay_models.answers.compact_json import Compact, compact

TEXTS = st.text(st.characters(codec="utf-8"), max_size=6)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(TEXTS, VALUES, max_size=4)


def in_parts(text: str, sizes: Sequence[int]) -> tuple[str, int, Compact]:
    """What comes out, how much of the text was taken, and the object that did it."""
    made, out, taken = Compact(), "", 0
    for a, b in itertools.pairwise([0, *itertools.accumulate(sizes), len(text)]):
        if not made.ended and a < len(text):
            part, size = made.feed(text[a:b])
            out, taken = out + part, taken + size
    return out, taken, made


@settings(max_examples=200, deadline=None)
@given(OBJECTS, st.sampled_from([None, 0, 2]), st.booleans(), st.lists(st.integers(1, 9), max_size=40), TEXTS)
def test_the_parts_together_are_what_python_writes(
    value: dict[str, Any], indent: int | None, ascii_only: bool, sizes: list[int], behind: str
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)

    out, taken, made = in_parts(text + behind, sizes)

    assert out == compact(value) == json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    assert (taken, made.ended) == (len(text), True)


@pytest.mark.parametrize("size", [1, 2, 3, 100])
@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (r'{"a": "\ud83d\ude00 \u0041\/\u0022\u000a"}', '{"a":"😀 A/\\"\\n"}'),
        (r'{"a": "\ud83d \ude00\ud83d", "\uD83D\n": 1}', r'{"a":"\ud83d \ude00\ud83d","\ud83d\n":1}'),
        ('{"a": 1e400, "b":-0, "c": 1.50, "d" :1E5}', '{"a":1e400,"b":0,"c":1.5,"d":100000.0}'),
        ('{"a": ' + "9" * 5000 + "}", '{"a":' + "9" * 5000 + "}"),
        ("{ }", "{}"),
    ],
)
def test_what_python_cannot_write_stays_as_it_stands_there(size: int, text: str, wanted: str) -> None:
    out, _, made = in_parts(text, [size] * (len(text) // size))

    assert (out, made.ended) == (wanted, True)


def test_what_is_held_back_comes_in_the_end() -> None:
    for text, before, rest in (
        ('{"a": 12', '{"a":', "12"),
        ('{"a": "b\\u00', '{"a":"b', "\\u00"),
        ('{"a": "\\ud83d\\', '{"a":"', "\\ud83d\\"),
        ("{", "", "{"),
    ):
        out, _, made = in_parts(text, [1] * len(text))
        assert (out, made.finish(), made.finish()) == (before, rest, "")


@given(OBJECTS)
def test_the_complete_part_of_an_object_grows_to_all_of_it(value: dict[str, Any]) -> None:
    text = compact(value)
    kept = [complete_part(text[:end]) for end in range(len(text) + 1)]

    assert kept[-1] == value
    for part in kept:
        assert [*part] == [*value][: len(part)]
        assert all(part[name] == value[name] for name in [*part][:-1])


def test_what_of_a_cut_object_is_complete() -> None:
    text = '{"a":"x","b":[1,{"c":true}],"d":12.5}'

    assert complete_part('{"a":"x') == complete_part("") == complete_part("{") == {}
    assert complete_part(text[: text.index("]") - 3]) == {"a": "x", "b": [1, {}]}
    assert complete_part(text[: text.index("]")]) == {"a": "x", "b": [1, {"c": True}]}
    assert complete_part(text[:-2]) == {"a": "x", "b": [1, {"c": True}]}
