"""canonical_escapes: the same values, every character in one spelling."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from helpers import accepts, mask_bits, walk
from hypothesis import example, given, settings
from hypothesis import strategies as st

import llamay_grammar as lg

SCHEMAS: dict[str, Any] = {
    "anything": {},
    "short strings": {"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 4}, "maxItems": 3},
    "awkward words": {"enum": ['a"b', "\\", "\n", "\x00", "\x1f\x7f", "a/b", "\u20ac", "\U0001f600", ""]},
    "a pattern": {"type": "string", "pattern": "^[\\u0000-\\u0030]+$"},
    "names": {"type": "object", "properties": {"a/\n": {"const": 1}, "\x01": {}, "\u00e9": {}}, "maxProperties": 3},
    "different items": {"type": "array", "items": {"type": "string"}, "uniqueItems": True, "maxItems": 3},
    "different objects": {"type": "array", "items": {"type": "object"}, "uniqueItems": True, "maxItems": 3},
}  # fmt: skip


def spelled(value: Any) -> bytes:
    """Literal characters, then short escapes, then digits: what json.dumps writes, but for U+007F."""
    return json.dumps(value, ensure_ascii=False).encode()


@pytest.mark.parametrize("name", SCHEMAS)
def test_what_it_writes_is_in_the_one_spelling_and_valid_without_it(
    name: str, awkward_vocabulary: lg.Vocabulary
) -> None:
    free = lg.compile_json_schema(SCHEMAS[name], awkward_vocabulary, max_whitespace=1)
    bound = lg.compile_json_schema(
        SCHEMAS[name], awkward_vocabulary, max_whitespace=1, canonical_escapes=True
    )
    assert free.digest != bound.digest
    rng = random.Random(name)

    def a_subset_and_as_if_tried(matcher: lg.Matcher, allowed: list[int]) -> None:
        wider = free.matcher()
        for token in matcher._native.tokens():
            wider.accept(token)
        assert set(allowed) <= set(mask_bits(wider))
        if rng.random() < 0.15:
            assert allowed == [t for t in range(len(awkward_vocabulary)) if matcher.allows(t)]

    ended = 0
    for _ in range(12):
        text = walk(bound, rng, 60, a_subset_and_as_if_tried)
        if text is None:
            continue
        ended += 1
        strings: list[str] = []

        def note(value: Any, strings: list[str] = strings) -> None:
            if isinstance(value, str):
                strings.append(value)
            elif isinstance(value, list):
                for x in value:
                    note(x)

        note(json.loads(text, object_pairs_hook=lambda pairs: [x for pair in pairs for x in pair]))
        for value in strings:
            assert spelled(value) in text or value.encode() in text
    assert ended >= 3


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


@settings(max_examples=150, deadline=None)
@example(value={"\x7f": ""})
@given(value=st.dictionaries(TEXT, TEXT | st.lists(TEXT, max_size=3), max_size=3))
def test_every_value_can_be_written_and_only_so(value: Any, bytes_vocabulary: lg.Vocabulary) -> None:
    grammar = lg.compile_json_object(bytes_vocabulary, canonical_escapes=True)
    assert accepts(grammar, spelled(value))
    other = json.dumps(value).encode()
    assert accepts(lg.compile_json_object(bytes_vocabulary), other)
    assert accepts(grammar, other) == (other == spelled(value))


@pytest.mark.parametrize(
    "text", ['"\\u0061"', '"\\/"', '"\\u000a"', '"\\ud83d\\ude00"', '"\\u0022"', '"\\u005c"', '"\\u007f"']
)
def test_longer_spellings_are_refused(text: str, bytes_vocabulary: lg.Vocabulary) -> None:
    assert accepts(lg.compile_json_schema(True, bytes_vocabulary), text.encode())
    assert not accepts(lg.compile_json_schema(True, bytes_vocabulary, canonical_escapes=True), text.encode())


def test_names_are_forced_through_their_quotes(bytes_vocabulary: lg.Vocabulary) -> None:
    schema = {
        "type": "object",
        "properties": {"name": {"const": True}},
        "required": ["name"],
        "additionalProperties": False,
    }
    grammar = lg.compile_json_schema(schema, bytes_vocabulary, canonical_escapes=True, whitespace="compact")
    assert grammar.matcher().forced_bytes() == b'{"name":true}'
