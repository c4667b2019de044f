"""Vocabularies to test with: small ones made here, and those of real models."""

# ruff: noqa: RUF001 - DeepSeek writes its tokens with U+FF5C

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llamay_models import gguf, tokenizer

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)


def byte_alphabet() -> dict[int, str]:
    """GPT-2's printable character for each byte."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    return {b: chr(b) for b in printable} | {b: chr(0x100 + i) for i, b in enumerate(others)}


@pytest.fixture
def write_vocabulary(tmp_path: Path) -> Callable[..., gguf.GGUFFile]:
    """`write_vocabulary({"model": "gpt2", "tokens": […], …})`: a file with these tokenizer.ggml keys."""

    def write(keys: dict[str, Any], **general: Any) -> gguf.GGUFFile:
        path = tmp_path / "vocabulary.gguf"
        metadata = {"general.architecture": "llama"}
        metadata |= {f"general.{k}": v for k, v in general.items()}
        metadata |= {f"tokenizer.ggml.{k}": v for k, v in keys.items()}
        gguf.write(path, metadata)
        return gguf.open(path)

    return write


@pytest.fixture
def byte_level_keys() -> dict[str, Any]:
    """A byte-level vocabulary: 256 bytes, some merges, control and user-defined tokens."""
    alphabet = byte_alphabet()
    merges = ["h e", "l l", "he ll", "hell o", "Ġ w", "o r", "Ġw or", "l d", "Ġwor ld", "Ġ Ġ", "Ã ©", "Ċ Ċ"]
    tokens = [alphabet[b] for b in range(256)]
    tokens += [m.replace(" ", "") for m in merges]
    special = {
        "<|im_start|>": CONTROL,
        "<|im_end|>": CONTROL,
        "<tool_call>": USER_DEFINED,
        "<｜end｜>": CONTROL,
    }
    kinds = [NORMAL] * len(tokens) + list(special.values())
    tokens += list(special)
    return {
        "model": "gpt2",
        "pre": "gpt-2",
        "tokens": tokens,
        "token_type": np.array(kinds, np.int32),
        "merges": merges,
        "bos_token_id": tokens.index("<|im_start|>"),
        "eos_token_id": tokens.index("<|im_end|>"),
    }


@pytest.fixture
def sentencepiece_keys() -> dict[str, Any]:
    """A SentencePiece vocabulary with byte fallback."""
    words = [
        "▁",
        "h",
        "e",
        "l",
        "o",
        "w",
        "r",
        "d",
        "he",
        "ll",
        "hell",
        "hello",
        "▁hello",
        "▁w",
        "or",
        "▁wor",
        "ld",
    ]
    words += ["▁world", "▁▁", "<", "/", "s", ">", "</", "s>", "é"]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), *words]
    kinds = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[NORMAL] * len(words)]
    scores = [0.0] * 259 + [-float(len(words)) + len(w) for w in words]
    return {
        "model": "llama",
        "tokens": tokens,
        "token_type": np.array(kinds, np.int32),
        "scores": np.array(scores, np.float32),
        "bos_token_id": 1,
        "eos_token_id": 2,
        "unknown_token_id": 0,
    }


@pytest.fixture(scope="session")
def real_tokenizer(real_models: Path) -> Callable[[str], tokenizer.Tokenizer]:
    """`real_tokenizer("gemma-3-270m-q4_k_m.gguf")`."""
    known: dict[str, tokenizer.Tokenizer] = {}

    def load(name: str) -> tokenizer.Tokenizer:
        if not (real_models / name).exists():
            pytest.skip(f"{name} is not in {real_models}")
        if name not in known:
            with gguf.open(real_models / name) as file:
                known[name] = tokenizer.from_gguf(file)
        return known[name]

    return load
