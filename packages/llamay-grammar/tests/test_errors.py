"""Bad and hostile input: one clear error in bounded time, and the next request works."""

# ruff: noqa: E501 - schemas are easier to compare on one line
from __future__ import annotations

import contextlib
import json
import threading
import time
from typing import Any

import numpy as np
import pytest
from helpers import accepts, mask_bits

import llamay_grammar as lg


@pytest.mark.parametrize(
    ("schema", "keyword", "pointer"),
    [
        ({"type": "strin"}, "type", "/type"),
        ({"properties": {"a/b": {"pattern": "(a)\\1"}}}, "pattern", "/properties/a~1b/pattern"),
        ({"items": {"pattern": "a("}}, "pattern", "/items/pattern"),
        ({"$ref": "#/$defs/nowhere"}, "$ref", "/$ref"),
        ({"$ref": "https://example.com/other.json"}, "$ref", "/$ref"),
        ({"multipleOf": 0}, "multipleOf", "/multipleOf"),
        ({"minLength": -1}, "minLength", "/minLength"),
        ({"properties": {"x": {"type": "array", "items": {"type": "object", "maxProperties": 0}, "uniqueItems": True, "minItems": 2}}}, "uniqueItems", "/properties/x/uniqueItems"),
        ({"properties": []}, "properties", "/properties"),
    ],
)  # fmt: skip
def test_a_refusal_names_keyword_and_pointer(
    schema: Any, keyword: str, pointer: str | None, bytes_vocabulary: lg.Vocabulary
) -> None:
    with pytest.raises(lg.CompileError) as caught:
        lg.compile_json_schema(schema, bytes_vocabulary)
    assert caught.value.keyword == keyword
    if pointer is not None:
        assert caught.value.pointer == pointer


@pytest.mark.parametrize("text", ['true,"x":1', 'true},{"schema":true', "{", "", "nul", '{"type": NaN}', '"a"', '{"minLength": -1}'])  # fmt: skip
def test_a_text_that_is_no_schema_is_refused_alike_behind_a_thought(
    text: str, bytes_vocabulary: lg.Vocabulary
) -> None:
    found = []
    for reasoning in (None, lg.Reasoning("<think>", "</think>")):
        with pytest.raises(lg.CompileError) as caught:
            lg.compile_json_schema(text, bytes_vocabulary, reasoning=reasoning)
        found.append((str(caught.value), caught.value.keyword, caught.value.pointer))
    assert found[0] == found[1]


def test_a_schema_without_documents_is_refused(bytes_vocabulary: lg.Vocabulary) -> None:
    with pytest.raises(lg.CompileError, match="no document"):
        lg.compile_json_schema(
            {"type": "object", "required": ["a"], "properties": {"a": False}}, bytes_vocabulary
        )


def test_text_that_is_no_json_is_refused(bytes_vocabulary: lg.Vocabulary) -> None:
    for text in ["", "{", '{"a" 1}', "[1,]", '"\\x"', "nul", "1 2", '{"const": 01}', '{"const": -00.5}']:
        with pytest.raises(lg.CompileError):
            lg.compile_json_schema(text, bytes_vocabulary)


HOSTILE: dict[str, Any] = {
    "counted star": {"pattern": "^(a{0,1000000}){0,1000000}$"},
    "nested quantifiers": {"pattern": "(((a*)*)*)*b{5000}(c|d){5000}"},
    "exponential": {"pattern": "^(a|b)*a(a|b){30}$"},
    "lookaheads": {"pattern": "^" + "(?=.*a.*b.*c)" * 12 + "(?!.*d.*e){1}$"},
    "deep": json.dumps({"a": 1}) and "[" * 100_000,
    "deep schema": '{"items":' * 5000 + "{}" + "}" * 5000,
    "any of any of": {"allOf": [{"anyOf": [{"required": [f"p{i}_{k}"], "maxProperties": 50 + k} for k in range(8)]} for i in range(12)]},
    "one of": {"oneOf": [{"properties": {f"p{i}": {"type": "integer"}, f"q{i}": {"minimum": i}}} for i in range(60)]},
    "self": {"$ref": "#"},
    "cycle": {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"allOf": [{"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"},
    "many items": {"type": "array", "minItems": 10**12, "contains": {"const": 1}, "minContains": 10**11},
    "product": {"allOf": [{"pattern": f"^(.*a){{{n}}}.*b.*$"} for n in (7, 11, 13, 17, 19)]},
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_input_ends_in_bounded_time(name: str, bytes_vocabulary: lg.Vocabulary) -> None:
    before = time.monotonic()
    with contextlib.suppress(lg.CompileError):
        lg.compile_json_schema(HOSTILE[name], bytes_vocabulary, budget=lg.Budget(seconds=1.0))
    assert time.monotonic() - before < 20
    assert accepts(lg.compile_json_schema({"const": 1}, bytes_vocabulary), b"1")


SLOW = "^(.*a.*b.*c.*d.*e|.*e.*d.*c.*b){%d}$"
SLOW_SECONDS = 1.5


def test_a_cheap_compilation_does_not_wait_for_slow_ones(bytes_vocabulary: lg.Vocabulary) -> None:
    budget = lg.Budget(seconds=SLOW_SECONDS, states=1 << 30)

    def compile_slowly(i: int) -> None:
        try:
            lg.compile_regex(SLOW % (30 + i), bytes_vocabulary, budget=budget)
        except lg.CompileError as error:
            refusals.append(error.keyword)

    refusals: list[str] = []
    slow = [threading.Thread(target=compile_slowly, args=(i,)) for i in range(4)]
    for thread in slow:
        thread.start()
    time.sleep(SLOW_SECONDS / 5)  # so that all of them are at it
    lg.compile_regex("^cheap[0-9]$", bytes_vocabulary)
    running = sum(thread.is_alive() for thread in slow)
    for thread in slow:
        thread.join()
    assert refusals == ["budget"] * len(slow), "slow enough for this test"
    assert running == len(slow)


def test_a_large_enumeration_compiles(bytes_vocabulary: lg.Vocabulary) -> None:
    words = [f"word number {i} of a long enumeration" for i in range(25_000)]
    grammar = lg.compile_json_schema({"enum": words}, bytes_vocabulary)
    assert accepts(grammar, json.dumps(words[12_345]).encode())
    assert not accepts(grammar, b'"word number 25000 of a long enumeration"')


def test_a_refused_token_is_named_and_changes_nothing(bytes_vocabulary: lg.Vocabulary) -> None:
    matcher = lg.compile_json_schema({"type": "object"}, bytes_vocabulary, whitespace="compact").matcher()
    matcher.accept(ord("{"))
    before = mask_bits(matcher)
    with pytest.raises(lg.RefusedTokenError, match=r"token 91 \(\[\).*after 1 tokens.*expected \", \}"):
        matcher.accept(ord("["))
    with pytest.raises(lg.RefusedTokenError, match="outside the vocabulary"):
        matcher.accept(10_000)
    with pytest.raises(IndexError):
        matcher.rollback(2)
    assert mask_bits(matcher) == before
    assert len(matcher) == 1


def test_after_the_end_nothing_but_the_end_is_allowed(bytes_vocabulary: lg.Vocabulary) -> None:
    matcher = lg.compile_json_schema({"const": 1}, bytes_vocabulary).matcher()
    matcher.accept(ord("1"))
    matcher.accept(256)
    assert matcher.has_ended
    with pytest.raises(lg.RefusedTokenError, match="end of the document"):
        matcher.accept(ord("1"))
    matcher.rollback(1)
    assert matcher.is_complete
    assert not matcher.has_ended


def test_masks_of_the_wrong_size_are_refused(bytes_vocabulary: lg.Vocabulary) -> None:
    matcher = lg.compile_json_object(bytes_vocabulary).matcher()
    with pytest.raises(ValueError, match="too short"):
        matcher.fill_mask(np.zeros(3, np.uint32))
    with pytest.raises(ValueError, match="rows"):
        lg.fill_masks([matcher, matcher], np.zeros((1, bytes_vocabulary.mask_words), np.uint32))
    out = np.zeros((2, bytes_vocabulary.mask_words + 1), np.uint32)
    lg.fill_masks([matcher, matcher], out)
    assert (out[0, : bytes_vocabulary.mask_words] == matcher.mask()).all()


def test_the_approximate_mode_says_what_it_leaves_out(bytes_vocabulary: lg.Vocabulary) -> None:
    items = {"type": "object", "maxProperties": 0}
    schema = {"type": "array", "items": items, "minItems": 2, "uniqueItems": True}
    grammar = lg.compile_json_schema(schema, bytes_vocabulary, mode="approximate")
    assert len(grammar.warnings) == 1
    assert grammar.warnings[0].startswith("/uniqueItems: ")
    assert accepts(grammar, b"[{},{}]")


def test_serialised_bytes_are_checked(bytes_vocabulary: lg.Vocabulary) -> None:
    grammar = lg.compile_json_schema({"type": "array", "items": {"type": "integer"}}, bytes_vocabulary)
    matcher = grammar.matcher()
    for byte in b"[1,2":
        matcher.accept(byte)
    saved, whole = matcher.serialize(), grammar.serialize()
    again = lg.Grammar.deserialize(whole, bytes_vocabulary)
    assert again.digest == grammar.digest
    assert again.restore(saved).tokens == list(b"[1,2")
    for data, read in (
        (saved, grammar.restore),
        (whole, lambda d: lg.Grammar.deserialize(d, bytes_vocabulary)),
    ):
        for i in range(len(data)):
            with pytest.raises(lg.RestoreError):
                read(data[:i] + bytes([data[i] ^ 1]) + data[i + 1 :])
            with pytest.raises(lg.RestoreError):
                read(data[:i])
    other = lg.compile_json_schema({"type": "array"}, bytes_vocabulary)
    with pytest.raises(lg.RestoreError, match="another grammar"):
        other.restore(saved)


def test_equal_grammars_are_compiled_once(bytes_vocabulary: lg.Vocabulary) -> None:
    first = lg.compile_json_schema({"type": "integer", "minimum": 17}, bytes_vocabulary)
    assert lg.compile_json_schema({"type": "integer", "minimum": 17}, bytes_vocabulary) is first
    assert lg.compile_json_schema({"type": "integer", "minimum": 18}, bytes_vocabulary) is not first


def test_a_resolver_brings_other_documents(bytes_vocabulary: lg.Vocabulary) -> None:
    documents = {"https://example.com/a.json": {"$defs": {"n": {"type": "integer"}}}}
    grammar = lg.compile_json_schema(
        {"$ref": "https://example.com/a.json#/$defs/n"}, bytes_vocabulary, resolver=documents.get
    )
    assert accepts(grammar, b"12")
    assert accepts(lg.Grammar.deserialize(grammar.serialize(), bytes_vocabulary), b"12")
