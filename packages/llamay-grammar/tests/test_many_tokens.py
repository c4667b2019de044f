"""Masks over vocabularies so large that tokens are judged in groups, beside trying every token."""

from __future__ import annotations

import random
from typing import Any

import pytest
from helpers import awkward_tokens, mask_bits

import llamay_grammar as lg

PATTERNS = [
    "^[0-9A-Za-z]{8}-[0-9A-Za-z]{4}-[0-9A-Za-z]{12}$",
    "^[0-9a-zA-Z_-]{1,255}$",
    "^[A-Z][a-z]+( [A-Z][a-z]+)*$",
    "^[a-c]+[^a-c]{2,40}$",
    "^[^<>]{1,30}$",
    "^(https?://)?([\\da-z.-]+)\\.([a-z.]{2,6})([/\\w .-]*)*/?",
    "^.[01]-[a-z]+$",
    "(ab|ba)+\\d{2,3}$",
    "^[\\w\\s-]+$",
    "^[^a]*\u20ac[\u4e00-\u9fff]{0,3}$",
    "\\p{Lu}\\p{Ll}*$",
    "^(\\S+\\s+){0,3}\\S+$",
    "^[\u2000-\u2fff]*\u3000?[^\\s]$",
]
# What \\s matches beyond ASCII, and neighbours that it does not.
SPACES = "\u00a0\u1680\u2000\u200a\u2028\u202f\u205f\u3000\ufeff\u00a1\u200b\u2027\u3001\uff5c"
SCHEMAS: list[Any] = [
    *({"type": "string", "pattern": p} for p in PATTERNS),
    *(
        {"type": "string", "minLength": low, "maxLength": high}
        for low, high in ((0, 3), (4, 30), (2, 200), (300, 400), (16, 16), (29, 31), (0, 254), (255, 255))
    ),
    {"type": "string", "pattern": "^[a-z ]*$", "minLength": 5, "maxLength": 33},
    {"type": "string", "format": "email"},
    {"type": "string", "format": "uri"},
    {
        "type": "object",
        "patternProperties": {"^[a-z]{1,9}$": {"type": "string"}},
        "additionalProperties": False,
    },
    {"type": "object", "propertyNames": {"pattern": "^[A-Za-z_][A-Za-z0-9_]*$"}},
]


@pytest.fixture(scope="module")
def many() -> lg.Vocabulary:
    rng = random.Random(3)
    letters, capitals, digits = "abcdefghijklmnopqrstuvwxyz", "ABCDXYZ", "0123456789"
    tokens = awkward_tokens()
    for alphabet, count, longest in (
        (letters, 700, 9),
        (capitals + letters, 300, 6),
        ("abc", 150, 5),
        (digits, 150, 4),
        (letters + digits, 200, 6),
        (letters + "-._/:@", 300, 6),
        ("\u4e2d\u6587\u5b57\u20ac\u00e9\u00c9\u0430", 200, 4),
        (letters + ' "\\{}:,n\n\t', 300, 6),
    ):
        tokens += ["".join(rng.choices(alphabet, k=rng.randint(1, longest))).encode() for _ in range(count)]
    tokens += [b" " + t for t in tokens[-1900:-1500]] + [t.capitalize() for t in tokens[-1900:-1700]]
    tokens += [c.encode() * n for c in "a- \u4e2d" for n in (29, 30, 31, 32, 33, 64, 254, 255, 256, 300)]
    tokens += [
        b"a" * n + end for n in (14, 15, 16, 29, 31, 254, 255) for end in (b'"', b'",', b'\\"', b"\\u00")
    ]
    tokens += [b"\\u00e9" * n + end for n in (5, 15, 16, 30, 254) for end in (b"", b'"', b'"}')]
    tokens += [(a + space + b).encode() for space in SPACES for a in ("", "a") for b in ("", "b", "\u4e2d")]
    tokens += [t[:-1] for t in tokens if len(t) > 3 and t[-1] >= 128]  # a character is cut off
    size = len(tokens)
    return lg.Vocabulary([*tokens, b"</s>"], special=[size], end=[size])


@pytest.mark.parametrize("canonical", [False, True])
@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda s: str(s.get("pattern", s))[:40])
def test_the_mask_of_a_large_vocabulary_is_what_trying_every_token_says(
    schema: Any, canonical: bool, many: lg.Vocabulary
) -> None:
    grammar = lg.compile_json_schema(schema, many, whitespace="compact", canonical_escapes=canonical)
    rng = random.Random(str(schema))
    for _ in range(2):
        matcher = grammar.matcher()
        for _ in range(8):
            allowed = mask_bits(matcher)
            assert allowed == [t for t in range(len(many)) if matcher.allows(t)]
            going_on = [t for t in allowed if b'"' not in many.bytes_of(t)[1:]]
            matcher.accept(rng.choice(going_on or allowed))
            if matcher.has_ended:
                break


@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_mask_of_a_bare_text_is_what_trying_every_token_says(pattern: str, many: lg.Vocabulary) -> None:
    grammar = lg.compile_regex(pattern, many)
    rng = random.Random(pattern)
    matcher = grammar.matcher()
    for _ in range(8):
        allowed = mask_bits(matcher)
        assert allowed == [t for t in range(len(many)) if matcher.allows(t)]
        matcher.accept(rng.choice(allowed))
        if matcher.has_ended:
            break


@pytest.mark.parametrize(
    "properties", [{}, {"a": {"type": "null"}, "ab": {"type": "null"}}], ids=["", "declared"]
)
def test_names_that_run_out_are_counted(properties: Any, many: lg.Vocabulary) -> None:
    schema = {
        "type": "object",
        "properties": properties,
        "patternProperties": {"^[ab\u00e9]{0,2}$": {"type": "null"}},
        "additionalProperties": False,
    }
    matcher = lg.compile_json_schema(schema, many, whitespace="compact").matcher()
    names = [a + b for a in ("", "a", "b", "\u00e9") for b in ("", "a", "b", "\u00e9") if a or not b]
    random.Random(1).shuffle(names)
    for i, name in enumerate(names):
        for byte in ("{" if i == 0 else ",").encode() + b'"' + name.encode() + b'":null':
            assert mask_bits(matcher) == [t for t in range(len(many)) if matcher.allows(t)], (names[:i], name)
            matcher.accept(next(t for t in range(len(many)) if many.bytes_of(t) == bytes([byte])))
    assert not matcher.allows(next(t for t in range(len(many)) if many.bytes_of(t) == b","))


@pytest.mark.parametrize(
    "schema", [{"type": "number"}, {"type": "integer", "minimum": 5}, {"items": {"type": "number"}}]
)
def test_long_pieces_of_numbers_end_where_numbers_must(schema: Any) -> None:
    tokens = [bytes([b]) for b in range(256)] + [
        b"0" * n + end for n in (5, 16, 17, 20, 40, 80) for end in (b"", b",")
    ]
    vocabulary = lg.Vocabulary([*tokens, b"</s>"], special=[len(tokens)], end=[len(tokens)])
    matcher = lg.compile_json_schema(schema, vocabulary, whitespace="compact").matcher()
    for byte in b"[7" if "items" in schema else b"7":
        matcher.accept(byte)
    digits = 1
    while matcher.allows(ord("0")):
        assert mask_bits(matcher) == [t for t in range(len(vocabulary)) if matcher.allows(t)], digits
        matcher.accept(ord("0"))
        digits += 1
    assert digits == 48


@pytest.mark.parametrize("whitespace", ["compact", "spaced", "flexible"])
def test_values_of_every_kind_between_symbols(whitespace: Any, many: lg.Vocabulary) -> None:
    schema = {
        "type": ["array", "object"],
        "items": {"type": ["number", "string", "null"]},
        "properties": {
            "a": {"type": "integer"},
            "b": {"type": ["array", "boolean"], "items": {"minimum": -7}},
        },
        "additionalProperties": {"type": "number"},
    }
    space = "" if whitespace == "compact" else " "
    for document in (
        '[1, -2.5, "a", null, 20]',
        '{"a": 10, "b": [-1, 21], "c": 0.5, "ab": 12}',
        '{"b": true}',
    ):
        matcher = lg.compile_json_schema(schema, many, whitespace=whitespace).matcher()
        for byte in document.replace(" ", space).encode():
            assert mask_bits(matcher) == [t for t in range(len(many)) if matcher.allows(t)], matcher.tokens
            matcher.accept(next(t for t in range(len(many)) if many.bytes_of(t) == bytes([byte])))
        assert matcher.is_complete
