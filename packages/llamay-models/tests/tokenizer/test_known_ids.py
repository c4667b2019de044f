"""Ids that llama.cpp gives: for a long text, for prompts, and for its own test vocabularies."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from llamay_models import gguf, tokenizer

MODELS = {"smollm2": "SmolLM2-135M-Instruct.Q4_1.gguf", "gemma3-270m": "gemma-3-270m-q4_k_m.gguf"}
Load = Callable[[str], tokenizer.Tokenizer]


@pytest.mark.model
@pytest.mark.parametrize("name", MODELS.values())
def test_ids_of_a_long_text(name: str, real_tokenizer: Load, shared_data: Path) -> None:
    text = (shared_data / "reference" / "opticks_8k.txt").read_bytes()
    expected = json.loads((shared_data / "tokens" / f"tok_{name.removesuffix('.gguf')}.json").read_text())
    ours = real_tokenizer(name)
    assert ours.encode(text) == expected
    assert ours.encode_array(text).tolist() == expected
    assert ours.decode_bytes(ours.encode(text, add_special=False)) == text


@pytest.mark.model
@pytest.mark.parametrize("key", MODELS)
def test_ids_of_the_reference_prompts(key: str, real_tokenizer: Load, shared_data: Path) -> None:
    reference = json.loads((shared_data / "reference" / "reference.json").read_text())["models"][key]
    cases = [(c["prompt"], c["prompt_ids"]) for c in reference["greedy"]]
    assert cases
    for prompt, ids in cases:
        assert real_tokenizer(MODELS[key]).encode(prompt) == ids


@pytest.mark.model
def test_end_of_generation_tokens_of_real_models(real_tokenizer: Load) -> None:
    assert real_tokenizer(MODELS["smollm2"]).eog == {0, 2, 4}  # <|endoftext|>, <|im_end|>, <reponame>
    assert real_tokenizer(MODELS["gemma3-270m"]).eog == {1, 106}  # <eos>, <end_of_turn>


@pytest.mark.slow
def test_ids_of_llama_cpps_own_vocabularies(llama_cpp_fixtures: Path) -> None:
    seen = 0
    for path in sorted(llama_cpp_fixtures.glob("ggml-vocab-*.gguf")):
        texts = path.with_name(path.name + ".inp")
        with gguf.open(path) as file:
            ours = tokenizer.from_gguf(file)
        if not texts.exists():
            continue
        cases = texts.read_bytes().decode().split("\n__ggml_vocab_test__\n")
        expected = path.with_name(path.name + ".out").read_text().split("\n")
        for text, line in zip(cases, expected, strict=False):
            ids = ours.encode(text, add_special=False)
            assert ids == [int(i) for i in line.split()], (path.name, text)
            if ours.kind in ("bpe", "spm"):
                assert ours.decode(ids) == text, (path.name, text)
            seen += 1
    assert seen >= 650
