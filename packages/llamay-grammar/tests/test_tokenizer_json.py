"""A tokenizer.json becomes a vocabulary whose bytes are what the tokens stand for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import llamay_grammar as lg

TEXTS = ["Grüße an alle, ok?", '{"name": "Zoë", "n": [1, 2.5e3]}', "one two  three\n\tfour", "日本語 🙂 text"]


def byte_level() -> dict[str, Any]:
    """Every byte, one merged token, and special tokens."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    letters = {chr(b): b for b in printable} | {chr(0x100 + n): b for n, b in enumerate(others)}
    vocab = {letter: n for n, letter in enumerate(letters)}
    vocab["\u0120{"] = 256
    return {
        "model": {"type": "BPE", "vocab": vocab, "merges": ["\u0120 {"]},
        "added_tokens": [
            {"id": 257, "content": "<|end|>", "special": True},
            {"id": 259, "content": "<tool_call>", "special": False},
        ],
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"}]},
        "decoder": {"type": "ByteLevel"},
    }


def test_byte_level_tokens_are_their_bytes(tmp_path: Path) -> None:
    document = byte_level()
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps(document), "utf-8")
    for source in (document, json.dumps(document), file, str(file)):
        v = lg.Vocabulary.from_tokenizer_json(source, end=["<|end|>"], size=264)
        assert sorted(v.bytes_of(t) for t in range(256)) == [bytes([b]) for b in range(256)]
        assert v.bytes_of(256) == b" {"
        assert v.bytes_of(259) == b"<tool_call>"
        assert (v.end_ids, len(v), dict(v.special_names)) == ((257,), 264, {"<|end|>": 257})


def test_sentencepiece_tokens_have_spaces_and_bytes() -> None:
    document = {
        "model": {
            "type": "Unigram",
            "vocab": [["<unk>", 0], ["<0x0A>", -1], ["\u2581the", -2], ["a\u2581b", -3]],
            "byte_fallback": True,
        },
        "added_tokens": [{"id": 0, "content": "<unk>", "special": True}],
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
                {"type": "ByteFallback"},
            ],
        },
    }
    v = lg.Vocabulary.from_tokenizer_json(document, end=[0])
    assert [v.bytes_of(t) for t in range(1, 4)] == [b"\n", b" the", b"a b"]


def test_what_is_no_such_file_is_refused() -> None:
    for bad, why in (
        ("{", "not a tokenizer.json"),
        ("{}", "no model"),
        ({"model": {"type": "WordPiece", "vocab": {"a": 0}}}, "WordPiece"),
    ):
        with pytest.raises(ValueError, match=why):
            lg.Vocabulary.from_tokenizer_json(bad, end=[0])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no token called '</s>'"):
        lg.Vocabulary.from_tokenizer_json(byte_level(), end=["</s>"])
    with pytest.raises(ValueError, match="more than a size of 7"):
        lg.Vocabulary.from_tokenizer_json(byte_level(), end=[0], size=7)


@pytest.mark.parametrize("kind", ["byte level", "byte fallback", "unigram"])
def test_the_bytes_of_an_encoded_text_are_the_text(kind: str) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

    special = ["<s>", "</s>"]
    if kind == "byte level":
        t = tokenizers.Tokenizer(models.BPE())
        t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        t.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(
            vocab_size=400, special_tokens=special, initial_alphabet=alphabet, show_progress=False
        )
    elif kind == "byte fallback":
        t = tokenizers.Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
        t.normalizer = normalizers.Replace(" ", "\u2581")
        t.decoder = decoders.Sequence(
            [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
        )
        names = [*special, "<unk>", *(f"<0x{b:02X}>" for b in range(256))]
        trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=names, show_progress=False)
    else:
        t = tokenizers.Tokenizer(models.Unigram())
        t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
        t.decoder = decoders.Metaspace(prepend_scheme="never")
        trainer = trainers.UnigramTrainer(
            vocab_size=120, special_tokens=[*special, "<unk>"], unk_token="<unk>", show_progress=False
        )
    t.train_from_iterator(TEXTS * 20, trainer)
    source = json.loads(t.to_str())
    if kind == "byte fallback":  # trained as special, but no control tokens
        source["added_tokens"] = [a for a in source["added_tokens"] if not a["content"].startswith("<0x")]
    v = lg.Vocabulary.from_tokenizer_json(source, end=["</s>"])
    assert len(v) == t.get_vocab_size()
    for text in TEXTS:
        ids = t.encode(text, add_special_tokens=False).ids
        assert b"".join(v.bytes_of(i) for i in ids).decode() == text
