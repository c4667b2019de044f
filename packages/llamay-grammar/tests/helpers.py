"""What the tests of this package share."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import llamay_grammar as lg


def awkward_tokens() -> list[bytes]:
    """Tokens that cross structure, split characters and escapes, repeat each other or are text of special ones."""
    pieces = [
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        '"',
        "\\",
        '"',
        ",",
        '","',
        '":"',
        '":"',
        '"',
        '":',
        '":',
        '"',
        '{"',
        '{"',
        '["',
        '"]',
        '"}',
        "},",
        "}]",
        "]}",
        "],",
        "{}",
        "[]",
        '""',
        "null",
        "true",
        "false",
        "nul",
        "tr",
        "0",
        "1",
        "2",
        "12",
        "123",
        "-1",
        "1.5",
        ".0",
        "0.",
        "e1",
        "E+",
        "1e",
        "a",
        "b",
        "c",
        "ab",
        "abc",
        "name",
        "age",
        "id",
        "\\u",
        "\\u00",
        "\\n",
        '\\"',
        "\\\\",
        "\\ud83d",
        "\\udc00",
        "u0061",
        'x","y"',
        'a":',
        '","a":1',
        '"a":1,',
        '"b":2}',
        '":["a","b"]',
        "\t",
        "\n",
        "<s>",
        "</s>",
        "é",
        "€",
        "😀",
        "日本",
        "kind",
        "กข",
        "한",
        "\U00010348x",
        "abcabcabcabcabcabcabc",
        'aaaaaaaaaaaaaaaaaaaa","',
        '   "',
        "\n\n  }",
        "               {",
    ]
    tokens = [p.encode() for p in pieces if p] + [
        b" ",
        b"  ",
        b'{"a":1,"a":2}',
        b'","',
        b'": ',
        b", ",
        b': "',
        b'": "',
    ]
    tokens += [
        "é".encode()[:1],
        "€".encode()[:2],
        "😀".encode()[1:],
        "😀".encode()[:3],
        b"\xe0\x80\x80",
        b"\xed\xa0\x80a",
        b"\xf4\x90\x80\x80",
        b"a\xf0\x80\x80\x80",
        b"\xe0\xb8",
        b"a\xf0\x9f",
        b"\x98\x80b",
    ]
    tokens += [bytes([b]) for b in range(256)]
    return [*tokens, b"a", b'"']  # the same bytes twice


def mask_bits(matcher: lg.Matcher) -> list[int]:
    mask = matcher.mask()
    size = len(matcher.grammar.vocabulary)
    return np.nonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")[:size])[0].tolist()


def walk(
    grammar: lg.Grammar,
    rng: random.Random,
    limit: int,
    check: Callable[[lg.Matcher, list[int]], None] | None = None,
) -> bytes | None:
    """Follow the mask at random, leaning towards the end; return the document, or None when `limit` was reached."""
    vocabulary = grammar.vocabulary
    matcher = grammar.matcher()
    out = b""
    for step in range(limit):
        allowed = mask_bits(matcher)
        assert allowed, f"a dead end after {out!r}"
        if check is not None:
            check(matcher, allowed)
        ends = [t for t in allowed if t in vocabulary.end_ids]
        assert bool(ends) == matcher.is_complete
        if ends and rng.random() < 0.5:
            matcher.accept(rng.choice(ends))
            assert matcher.has_ended
            return out
        rest = [t for t in allowed if t not in vocabulary.end_ids]
        if not rest:
            continue
        closing = [t for t in rest if vocabulary.bytes_of(t)[:1] in (b'"', b"}", b"]", b",")]
        token = (
            rng.choice(closing)
            if closing and rng.random() < min(0.9, 0.3 + step / limit)
            else rng.choice(rest)
        )
        matcher.accept(token)
        out += vocabulary.bytes_of(token)
    return None


def accepts(grammar: lg.Grammar, text: bytes) -> bool:
    """Whether a document is accepted, byte by byte, end included. For `bytes_vocabulary`."""
    matcher = grammar.matcher()
    for byte in text:
        if not matcher.allows(byte):
            return False
        matcher.accept(byte)
    return matcher.is_complete


def tagged(tags: Mapping[str, Any], arguments: Mapping[str, Any]) -> str:
    """Arguments between tags, as an envelope's "parameters" say: strings as they are, everything else as JSON."""
    out = ""
    for key, value in arguments.items():
        for piece in tags["open"]:
            if "typed" in piece:
                out += piece["typed"][0 if isinstance(value, str) else 1]
            else:
                out += key if piece.get("key") else piece.get("text", piece.get("special", ""))
        out += value if isinstance(value, str) else json.dumps(value)
        out += "".join(piece.get("text", piece.get("special", "")) for piece in tags["close"])
    return out
