"""The examples of docs/structured-output.md for other engines run as they are written there."""

from __future__ import annotations

import ctypes
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import llamay_grammar as lg

PAGE = Path(__file__).parents[2] / "docs" / "structured-output.md"
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 4}, "ok": {"type": "boolean"}},
    "required": ["name", "ok"],
    "additionalProperties": False,
}


def example(of: str) -> dict[str, Any]:
    """The names that the block which imports `of` defines."""
    section = PAGE.read_text("utf-8").split("## In another engine")[1].split("\n## ")[0]
    blocks = re.findall(r"```python\n(.*?)```", section, re.S)
    names: dict[str, Any] = {}
    exec(next(block for block in blocks if of in block), names)
    return names


def is_valid(text: str) -> bool:
    found = json.loads(text)
    return set(found) == {"name", "ok"} and isinstance(found["name"], str) and isinstance(found["ok"], bool)


class FakeLlama:
    """What the example asks of llama_cpp: every byte a token, then a control token, then the end."""

    model = "model"
    vocab = "vocab"
    size = 258

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        module: Any = ModuleType("llama_cpp")
        module.Llama = FakeLlama
        module.llama_model_get_vocab = {"model": self.vocab}.__getitem__
        module.llama_vocab_n_tokens = lambda vocab: self.size
        module.llama_vocab_is_control = lambda vocab, token: token >= 256
        module.llama_vocab_is_eog = lambda vocab, token: token == 257
        module.llama_token_to_piece = self.piece
        monkeypatch.setitem(sys.modules, "llama_cpp", module)

    def piece(self, vocab: str, token: int, buffer: Any, size: int, strip: int, special: bool) -> int:
        assert size == ctypes.sizeof(buffer)
        assert not special
        if token >= 256:
            return 0
        buffer[0] = bytes([token])
        return 1

    def write(self, processor: Callable[..., Any], prompt: str, seed: int) -> str:
        """Sample as llama_cpp does: the processor sees all ids so far and the last scores."""
        dice = np.random.default_rng(seed)
        ids = list(prompt.encode())
        start = len(ids)
        for _ in range(2000):
            scores = dice.normal(size=self.size).astype(np.single)
            scores[list(b' \n\t\\"')] += 2
            scores = processor(np.array(ids, np.intc), scores)
            assert scores.dtype == np.single
            token = int(scores.argmax())
            if token == 257:
                return bytes(ids[start:]).decode()
            ids.append(token)
        raise AssertionError("it does not end")


def test_llama_cpp_python(monkeypatch: pytest.MonkeyPatch) -> None:
    llama = FakeLlama()
    llama.install(monkeypatch)
    names = example("import llama_cpp")
    vocabulary = names["vocabulary_of"](llama)
    assert (len(vocabulary), vocabulary.end_ids) == (258, (257,))
    grammar = lg.compile_json_schema(SCHEMA, vocabulary)
    for seed in range(5):
        assert is_valid(llama.write(names["bound"](grammar), "As JSON: ", seed))


def test_transformers() -> None:
    torch = pytest.importorskip("torch", reason="the example for transformers needs torch and transformers")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(5)
    config = transformers.LlamaConfig(
        vocab_size=300,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        bos_token_id=256,
        eos_token_id=257,
        pad_token_id=256,
    )
    model = transformers.LlamaForCausalLM(config).eval()
    tokenizer = _byte_tokenizer(torch)
    names = example("from transformers")
    for seed in range(3):
        torch.manual_seed(seed)
        text = names["write"](model, tokenizer, "As JSON: ", SCHEMA, do_sample=True, max_new_tokens=2000)
        assert is_valid(text)
    # Rows of a batch end when they like.
    vocabulary = lg.Vocabulary.from_tokenizer_json(
        tokenizer.backend_tokenizer.to_str(), end=[257], size=config.vocab_size
    )
    grammar = lg.compile_json_schema(SCHEMA, vocabulary)
    ids = torch.tensor([list(b"A: "), list(b"B: "), list(b"C: ")])
    out = model.generate(
        ids, logits_processor=[names["Bound"](grammar, 3)], do_sample=True, max_new_tokens=2000
    )
    assert all(is_valid(tokenizer.decode(row[3:])) for row in out)


def _byte_tokenizer(torch: Any) -> Any:
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    vocab = {chr(b): b for b in printable} | {chr(0x100 + n): b for n, b in enumerate(others)}
    document = {
        "model": {"type": "BPE", "vocab": vocab, "merges": []},
        "added_tokens": [
            {"id": 256, "content": "<s>", "special": True},
            {"id": 257, "content": "</s>", "special": True},
        ],
        "decoder": {"type": "ByteLevel"},
    }

    class Tokenizer:
        eos_token_id = 257
        backend_tokenizer = SimpleNamespace(to_str=lambda: json.dumps(document))

        def __call__(self, text: str, return_tensors: str) -> Any:
            return SimpleNamespace(input_ids=torch.tensor([list(text.encode())]))

        def decode(self, ids: Any, skip_special_tokens: bool = True) -> str:
            return bytes(i for i in ids.tolist() if i < 256).decode()

    return Tokenizer()
