"""A model in each format that the kernels read is exact: nothing depends on how it was computed, in no kernel set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import llamay_kernels as kernels
import llamay_models
from llamay_cli.verification import Setup, Subject, verify
from llamay_models.gguf import TensorData, write

WIDTH, HIDDEN, VOCAB, LAYERS, HEADS = 256, 512, 300, 2, 4
TOKENS = [(i * 71 + 5) % VOCAB for i in range(70)]


def model_in(path: Path, name: str) -> Path:
    """Write a small model whose every matrix has the format."""
    rng, tensors = np.random.default_rng(5), []

    def put(tensor: str, *shape: int) -> None:
        values = (rng.standard_normal(shape) * 0.08).astype(np.float32)
        if len(shape) == 1:
            tensors.append(TensorData(tensor, "F32", shape, values + np.float32(1)))
        else:
            tensors.append(
                TensorData(tensor, name, shape, np.frombuffer(kernels.quantize(values, name), np.uint8))
            )

    put("token_embd.weight", VOCAB, WIDTH)
    put("output_norm.weight", WIDTH)
    for i in range(LAYERS):
        put(f"blk.{i}.attn_norm.weight", WIDTH)
        put(f"blk.{i}.ffn_norm.weight", WIDTH)
        for stem in ("attn_q", "attn_k", "attn_v", "attn_output"):
            put(f"blk.{i}.{stem}.weight", WIDTH, WIDTH)
        put(f"blk.{i}.ffn_gate.weight", HIDDEN, WIDTH)
        put(f"blk.{i}.ffn_up.weight", HIDDEN, WIDTH)
        put(f"blk.{i}.ffn_down.weight", WIDTH, HIDDEN)
    metadata = {
        "general.architecture": "llama",
        "llama.block_count": LAYERS,
        "llama.context_length": 512,
        "llama.embedding_length": WIDTH,
        "llama.feed_forward_length": HIDDEN,
        "llama.attention.head_count": HEADS,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.vocab_size": VOCAB,
    }
    write(path, metadata, tensors)
    return path


def logits(path: Path, tokens: list[int], pieces: list[int], threads: int) -> np.ndarray[Any, Any]:
    """Return what a model says after tokens that were read in pieces."""
    with llamay_models.load(path, threads=threads, prefix_cache=0) as model, model.context() as context:
        begin = 0
        for length in [*pieces, len(tokens)]:
            context.extend(tokens[begin : begin + length])
            begin += length
            if begin >= len(tokens):
                break
        return np.array(context.logits)


@pytest.fixture
def _restore_isa() -> Any:
    before = kernels.isa()
    yield
    kernels.use_isa(before)


@pytest.mark.parametrize("name", kernels.FORMATS)
@pytest.mark.usefixtures("_restore_isa")
def test_every_way_to_compute_a_format_gives_the_same_bits(name: str, tmp_path: Path) -> None:
    path = model_in(tmp_path / "model.gguf", name)
    expected = logits(path, TOKENS, [], 1)
    assert np.isfinite(expected).all()
    assert expected.std() > 0
    for isa in kernels.runnable_isas():
        kernels.use_isa(isa)
        for pieces, threads in (([], 2), ([1] * len(TOKENS), 1), ([33, 1, 1, 30], 2)):
            assert np.array_equal(logits(path, TOKENS, pieces, threads), expected), (isa, pieces, threads)


def test_verify_computes_a_text_each_time_it_is_read(tmp_path: Path) -> None:
    """A model that remembers prompts would compare what it computed with itself."""
    with Subject(model_in(tmp_path / "model.gguf", "Q8_0"), Setup(threads=1)).loaded() as model:
        for _ in range(2):
            model.context(TOKENS).close()
        assert model.engine.stats.cached_tokens == 0


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", kernels.FORMATS)
def test_verify_shows_zero_for_every_format(name: str, tmp_path: Path) -> None:
    subject = Subject(model_in(tmp_path / "model.gguf", name), Setup(threads=2))
    with subject.loaded() as model:
        results = list(verify(subject, model, TOKENS))
    assert [(r.name, r.difference, r.detail) for r in results if not (r.passed and r.difference == 0)] == []
    assert len(results) >= 7
