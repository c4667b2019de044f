"""Vocabularies that are damaged or made to harm: each gives one clear error when it is opened."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from llamay_models import gguf, tokenizer

Write = Callable[..., gguf.GGUFFile]


def changed(keys: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {k: v for k, v in (keys | changes).items() if v is not None}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": None}, "'tokenizer.ggml.model' is missing"),
        ({"model": "nonsense"}, "kind 'nonsense'"),
        ({"model": np.uint32(3)}, "must be a string, but is uint32"),
        ({"pre": "nobody-knows"}, "unknown pre-tokenizer 'nobody-knows'"),
        ({"tokens": None}, "'tokenizer.ggml.tokens' is missing"),
        ({"tokens": np.arange(3)}, "must be an array of strings"),
        ({"merges": None}, "'tokenizer.ggml.merges' is missing"),
        ({"merges": ["he"]}, "merge 0 .'he'. is not two parts"),
        ({"merges": ["h e", " "]}, "merge 1"),
        ({"merges": ["h zzz"]}, "refers to tokens that do not exist"),
        ({"merges": ["h o"]}, "refers to tokens that do not exist"),
        ({"merges": ["日 本"]}, "characters that spell no byte"),
        ({"token_type": np.ones(3, np.int32)}, "tokens but 3 token types"),
        ({"token_type": np.ones(3, np.float32)}, "must be an array of integers"),
        ({"bos_token_id": 10_000}, "bos_token_id is 10000, but there are only"),
        ({"eos_token_id": np.int32(-7)}, "eos_token_id is -7"),
        ({"eos_token_id": "x"}, "must be an integer, but is string"),
        ({"add_bos_token": True, "bos_token_id": np.uint32(0xFFFFFFFF)}, "there is no such token"),
    ],
)
def test_j06_damaged_byte_level_vocabularies(
    write_vocabulary: Write, byte_level_keys: dict[str, Any], changes: dict[str, Any], words: str
) -> None:
    file = write_vocabulary(changed(byte_level_keys, **changes))
    with pytest.raises((tokenizer.TokenizerError, gguf.GGUFError), match=words) as caught:
        tokenizer.from_gguf(file)
    assert str(file.path) in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"scores": np.zeros(5, np.float32)}, "tokens but 5 scores"),
        ({"scores": np.full(285, np.nan, np.float32)}, "score of token 0 is not a number"),
        ({"scores": ["1"]}, "must be an array of floats"),
    ],
)
def test_j06_damaged_sentencepiece_vocabularies(
    write_vocabulary: Write, sentencepiece_keys: dict[str, Any], changes: dict[str, Any], words: str
) -> None:
    with pytest.raises((tokenizer.TokenizerError, gguf.GGUFError), match=words):
        tokenizer.from_gguf(write_vocabulary(sentencepiece_keys | changes))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("<0x-1>", "token 258 is a byte token"),
        ("<0xG0>", "is a byte token"),
        ("<0x100>", "is a byte token"),
        ("ÿ", "is a byte token"),
        ("", "is a byte token"),
        ("h" * 70_000, "70000 bytes long"),
    ],
)
def test_odd_tokens(
    write_vocabulary: Write, sentencepiece_keys: dict[str, Any], text: str, words: str
) -> None:
    sentencepiece_keys["tokens"][258] = text
    with pytest.raises(tokenizer.TokenizerError, match=words):
        tokenizer.from_gguf(write_vocabulary(sentencepiece_keys))


def test_two_tokens_of_one_text(
    write_vocabulary: Write, sentencepiece_keys: dict[str, Any], byte_level_keys: dict[str, Any]
) -> None:
    for keys in (sentencepiece_keys, byte_level_keys):
        keys["tokens"][-1] = keys["tokens"][-2]
        with pytest.raises(tokenizer.TokenizerError, match=r"tokens \d+ and \d+ have the same text"):
            tokenizer.from_gguf(write_vocabulary(keys))


def test_unused_roles_may_be_absent(write_vocabulary: Write, byte_level_keys: dict[str, Any]) -> None:
    keys = byte_level_keys | {"padding_token_id": np.uint32(0xFFFFFFFF)}
    assert tokenizer.from_gguf(write_vocabulary(keys)).pad is None


def test_tokens_without_text_are_never_matched(
    write_vocabulary: Write, byte_level_keys: dict[str, Any]
) -> None:
    keys = byte_level_keys | {"tokens": [*byte_level_keys["tokens"], "", ""]}
    keys["token_type"] = np.append(keys["token_type"], [1, 3]).astype(np.int32)
    ours = tokenizer.from_gguf(write_vocabulary(keys))
    assert ours.token_bytes(ours.vocab_size - 1) == b""
    assert ours.decode(ours.encode("hello", parse_special=True)) == "hello"
