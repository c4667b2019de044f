"""A first look: what a small schema allows is what trying every token says."""

from __future__ import annotations

import json

import numpy as np

import llamay_grammar as lg


def byte_vocabulary() -> lg.Vocabulary:
    return lg.Vocabulary([bytes([b]) for b in range(256)] + [b""], special=[256], end=[256])


def test_mask_is_what_trying_every_token_says() -> None:
    vocabulary = byte_vocabulary()
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 5}, "age": {"type": "integer", "minimum": 0}},
        "required": ["name"],
    }
    matcher = lg.compile_json_schema(schema, vocabulary).matcher()
    for byte in json.dumps({"age": 3, "name": "Ada", "other": [1, None]}).encode():
        bits = np.unpackbits(matcher.mask().view(np.uint8), bitorder="little")[: len(vocabulary)]
        assert [bool(b) for b in bits] == [matcher.allows(t) for t in range(len(vocabulary))]
        matcher.accept(byte)
    assert matcher.is_complete
