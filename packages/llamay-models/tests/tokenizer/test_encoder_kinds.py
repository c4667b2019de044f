"""The kinds of tokenizer that encoders and RWKV use: WordPiece, SentencePiece's unigram model, RWKV's World."""

# ruff: noqa: RUF001 - signs that look alike are the point

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llamay_models import gguf, tokenizer

Write = Callable[..., gguf.GGUFFile]
BOUNDED = settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

TEXTS = st.lists(
    st.one_of(
        st.sampled_from(
            ["hello", " world", " the quick", "naïve", "straße", " 東京", "한국어", "ﬁ①Ⅷ½", "Ｃ㍿", "İıſ"]
        ),
        st.text(alphabet="abc XYZ\t.,!?-_()<>/'\"$+^`\u00a0\u3000\x00\x07", max_size=8),
        st.sampled_from(["😀", "🇩🇪", "é", "ñ", "ü", "\u200bx", "1234"]),
    ),
    max_size=8,
).map(lambda parts: "".join(parts).strip())


@pytest.fixture
def wordpiece_keys() -> dict[str, Any]:
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "▁hel", "lo", "▁hello", "s", "▁,", "▁東", "▁e", "▁lo"]
    return {
        "model": "bert",
        "tokens": tokens,
        "token_type": np.array([3, 3, 3, 3, *[1] * 8], np.int32),
        "unknown_token_id": 1,
        "cls_token_id": 2,
        "seperator_token_id": 3,
        "bos_token_id": 2,
        "padding_token_id": 0,
        "mask_token_id": np.uint32(0xFFFFFFFF),
    }


@pytest.fixture
def unigram_keys() -> dict[str, Any]:
    tokens = ["<pad>", "</s>", "<unk>", "▁", "▁a", "b", "▁ab", "c", "bc", "<sep>", "▁▁"]
    scores = [0.0, 0.0, 0.0, -3.0, -2.0, -2.0, -3.5, -2.0, -2.5, 0.0, -9.0]
    return {
        "model": "t5",
        "tokens": tokens,
        "token_type": np.array([3, 3, 2, 1, 1, 1, 1, 1, 1, 4, 1], np.int32),
        "scores": np.array(scores, np.float32),
    }


def spelled(ours: tokenizer.Tokenizer, text: str, **options: Any) -> list[str]:
    return [ours.token_text(i) for i in ours.encode(text, **options)]


def test_wordpiece_covers_words_from_the_left(
    write_vocabulary: Write, wordpiece_keys: dict[str, Any]
) -> None:
    ours = tokenizer.from_gguf(write_vocabulary(wordpiece_keys))
    assert spelled(ours, "Hello,hélx") == ["[CLS]", "▁hello", "▁,", "[UNK]", "[SEP]"]
    assert spelled(ours, "héllo 東 x", add_special=False) == ["▁hello", "▁東", "[UNK]"]
    assert spelled(ours, "helloslos", add_special=False) == ["▁hello", "s", "lo", "s"]
    assert ours.decode(ours.encode("hello, lo", add_special=False)) == "hello , lo"


def test_wordpiece_normalises_as_the_file_says(
    write_vocabulary: Write, wordpiece_keys: dict[str, Any]
) -> None:
    ours = tokenizer.from_gguf(write_vocabulary(wordpiece_keys | {"normalizer.lowercase": False}))
    assert spelled(ours, "Hello hello é", add_special=False) == ["[UNK]", "▁hello", "[UNK]"]


def test_unigram_takes_the_most_likely_way(write_vocabulary: Write, unigram_keys: dict[str, Any]) -> None:
    ours = tokenizer.from_gguf(write_vocabulary(unigram_keys))
    assert spelled(ours, "abc") == ["▁a", "bc", "</s>"]
    assert spelled(ours, "ab", add_special=False) == ["▁ab"]
    assert spelled(ours, "a  b", add_special=False) == ["▁a", "▁", "▁", "b"]
    assert spelled(ours, "a€€b", add_special=False) == ["▁a", "<unk>", "b"]
    assert spelled(ours, "<sep>b", add_special=False) == ["<sep>", "▁", "b"]
    merged = tokenizer.from_gguf(write_vocabulary(unigram_keys | {"remove_extra_whitespaces": True}))
    assert spelled(merged, " a   b ", add_special=False) == ["▁a", "▁", "b"]


def test_a_damaged_charsmap_is_refused_or_harmless(
    write_vocabulary: Write, unigram_keys: dict[str, Any]
) -> None:
    for blob in (b"\1", b"\xff\xff\xff\xff", b"\3\0\0\0abc", (1 << 20).to_bytes(4, "little") + bytes(8)):
        keys = unigram_keys | {"precompiled_charsmap": np.frombuffer(blob, np.uint8)}
        with pytest.raises(tokenizer.TokenizerError, match="precompiled_charsmap"):
            tokenizer.from_gguf(write_vocabulary(keys))
    rng = np.random.default_rng(1)
    for _ in range(20):
        units = rng.integers(0, 1 << 32, 64, np.uint32).tobytes()
        blob = len(units).to_bytes(4, "little") + units + b"xyz"
        keys = unigram_keys | {"precompiled_charsmap": np.frombuffer(blob, np.uint8)}
        ours = tokenizer.from_gguf(write_vocabulary(keys))
        ours.encode(bytes(rng.integers(0, 256, 500, np.uint8)))


@BOUNDED
@given(raw=st.binary(max_size=60))
def test_rwkv_gives_any_bytes_back(write_vocabulary: Write, raw: bytes) -> None:
    tokens = ["<s>", *(f"\\x{b:02x}" for b in range(1, 256)), "\\n\\t", "ab\\\\", "日"]
    kinds = np.array([3, *[1] * (len(tokens) - 1)], np.int32)
    keys = {"model": "rwkv", "tokens": tokens, "token_type": kinds, "unknown_token_id": 0}
    ours = tokenizer.from_gguf(write_vocabulary(keys))
    known = raw.replace(b"\0", b"")
    assert ours.decode_bytes(ours.encode(known)) == known
    assert [ours.token_bytes(i) for i in ours.encode("\n\tab\\日")] == [b"\n\t", b"ab\\", "日".encode()]


@pytest.mark.slow
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=TEXTS)
def test_unigram_agrees_with_the_tokenizers_library(unigram_pair: Any, text: str) -> None:
    ours, theirs = unigram_pair
    assert ours.encode(text, add_special=False) == theirs.encode(text, add_special_tokens=False).ids


@pytest.mark.slow
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=TEXTS)
def test_wordpiece_agrees_with_the_tokenizers_library(wordpiece_pair: Any, text: str) -> None:
    ours, theirs = wordpiece_pair
    assert ours.encode(text, add_special=False) == theirs.encode(text, add_special_tokens=False).ids


@pytest.fixture(scope="module")
def unigram_pair(llama_cpp_fixtures: Path) -> Any:
    hf = pytest.importorskip("tokenizers")
    metadata = gguf.open(llama_cpp_fixtures / "ggml-vocab-nomic-bert-moe.gguf").metadata
    pieces = zip(metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.scores"].tolist(), strict=True)
    theirs = hf.Tokenizer(hf.models.Unigram(list(pieces), 3, False))
    theirs.normalizer = hf.normalizers.Precompiled(metadata["tokenizer.ggml.precompiled_charsmap"].tobytes())
    splits = [hf.pre_tokenizers.WhitespaceSplit(), hf.pre_tokenizers.Metaspace(prepend_scheme="always")]
    theirs.pre_tokenizer = hf.pre_tokenizers.Sequence(splits)
    return tokenizer.from_gguf(gguf.open(llama_cpp_fixtures / "ggml-vocab-nomic-bert-moe.gguf")), theirs


@pytest.fixture(scope="module")
def wordpiece_pair(llama_cpp_fixtures: Path) -> Any:
    hf = pytest.importorskip("tokenizers")
    path = llama_cpp_fixtures / "ggml-vocab-bert-bge.gguf"
    tokens = list(gguf.open(path).metadata["tokenizer.ggml.tokens"])
    special = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}
    names = [t if t in special else t[1:] if t.startswith("▁") else "##" + t for t in tokens]
    model = hf.models.WordPiece(
        {n: i for i, n in enumerate(names)}, unk_token="[UNK]", max_input_chars_per_word=1000
    )
    theirs = hf.Tokenizer(model)
    theirs.normalizer = hf.normalizers.BertNormalizer(lowercase=True)
    theirs.pre_tokenizer = hf.pre_tokenizers.BertPreTokenizer()
    return tokenizer.from_gguf(gguf.open(path)), theirs
