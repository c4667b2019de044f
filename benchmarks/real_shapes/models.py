"""Models of real shapes with random weights, for benchmarks: how fast a model runs depends on its shapes and formats.

A file is made of rows that are drawn once for each width and format and then repeated in another order for each
tensor: it has the size and layout of the real file, and is written in a second.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

import llamay_kernels as kernels
from llamay_models.gguf import FORMATS, TensorData, write
from llamay_models.quantization import MIXES, Place, fitting, format_of

_POOL_BYTES = 1 << 22
_STD = 0.02
_END = 256
VERSION = 2
"""Version of the written files; a cached file of another version is made again."""


@dataclass(frozen=True)
class Shape:
    """The hyper-parameters of a published model."""

    architecture: str
    width: int
    layers: int
    heads: int
    kv_heads: int
    head: int
    hidden: int
    vocabulary: int
    context: int
    eps: float
    rope: float = 0.0
    window: int = 0

    @property
    def metadata(self) -> dict[str, Any]:
        """The keys of its GGUF file."""
        a = self.architecture
        keys: dict[str, Any] = {
            "general.architecture": a,
            f"{a}.block_count": self.layers,
            f"{a}.context_length": self.context,
            f"{a}.embedding_length": self.width,
            f"{a}.feed_forward_length": self.hidden,
            f"{a}.attention.head_count": self.heads,
            f"{a}.vocab_size": self.vocabulary,
        }
        if a == "gpt2":
            return {**keys, f"{a}.attention.layer_norm_epsilon": self.eps}
        keys |= {
            f"{a}.attention.head_count_kv": self.kv_heads,
            f"{a}.attention.layer_norm_rms_epsilon": self.eps,
            f"{a}.attention.key_length": self.head,
            f"{a}.attention.value_length": self.head,
            f"{a}.rope.freq_base": self.rope,
            f"{a}.rope.dimension_count": self.head,
        }
        if self.window:
            keys[f"{a}.attention.sliding_window"] = self.window
        return keys

    def tensors(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Names and shapes, in the order of the file. All of these tie the output to the embedding."""
        d, q, kv, ff = self.width, self.heads * self.head, self.kv_heads * self.head, self.hidden
        yield "token_embd.weight", (self.vocabulary, d)
        if self.architecture == "gpt2":
            yield "position_embd.weight", (self.context, d)
            yield "output_norm.bias", (d,)
        if self.architecture == "llama":
            yield "rope_freqs.weight", (self.head // 2,)
        yield "output_norm.weight", (d,)
        for i in range(self.layers):
            for stem, shape in self._block(d, q, kv, ff):
                yield f"blk.{i}.{stem}", shape

    def _block(self, d: int, q: int, kv: int, ff: int) -> Iterator[tuple[str, tuple[int, ...]]]:
        if self.architecture == "gpt2":
            matrices = {"attn_qkv": (3 * d, d), "attn_output": (d, d), "ffn_up": (ff, d), "ffn_down": (d, ff)}
            for stem in ("attn_norm", "ffn_norm"):
                yield f"{stem}.weight", (d,)
                yield f"{stem}.bias", (d,)
            for stem, shape in matrices.items():
                yield f"{stem}.weight", shape
                yield f"{stem}.bias", shape[:1]
            return
        rows = {"attn_q": q, "attn_k": kv, "attn_v": kv}
        for stem, count in rows.items():
            yield f"{stem}.weight", (count, d)
            if self.architecture == "qwen2":
                yield f"{stem}.bias", (count,)
        norms = ["attn_norm", "ffn_norm"]
        if self.architecture == "gemma3":
            norms += ["post_attention_norm", "post_ffw_norm"]
        for stem in norms:
            yield f"{stem}.weight", (d,)
        if self.architecture in ("qwen3", "gemma3"):
            yield "attn_q_norm.weight", (self.head,)
            yield "attn_k_norm.weight", (self.head,)
        yield "attn_output.weight", (d, q)
        yield "ffn_gate.weight", (ff, d)
        yield "ffn_up.weight", (ff, d)
        yield "ffn_down.weight", (d, ff)


SHAPES = {
    "qwen2.5-0.5b": Shape("qwen2", 896, 24, 14, 2, 64, 4864, 151936, 32768, 1e-6, 1e6),
    "qwen3-0.6b": Shape("qwen3", 1024, 28, 16, 8, 128, 3072, 151936, 40960, 1e-6, 1e6),
    "llama-3.2-1b": Shape("llama", 2048, 16, 32, 8, 64, 8192, 128256, 131072, 1e-5, 5e5),
    "gemma-3-1b": Shape("gemma3", 1152, 26, 4, 1, 256, 6912, 262144, 32768, 1e-6, 1e6, 512),
    "gpt2-124m": Shape("gpt2", 768, 12, 12, 12, 64, 3072, 50257, 1024, 1e-5),
}


def model_file(folder: Path, name: str, kind: str) -> Path:
    """Return the file of a shape in a mix of formats, made when it is not there yet."""
    path = folder / f"{name}-{kind}-v{VERSION}.gguf"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        shape = SHAPES[name]
        write(path, {**shape.metadata, **_tokenizer(shape, kind)}, _tensors(shape, kind))
    return path


def _tensors(shape: Shape, kind: str) -> Iterator[TensorData]:
    mix, blocks = MIXES[kind], {name: size for name, (size, _) in kernels.FORMATS.items()}
    for name, size in shape.tensors():
        if len(size) == 1 or name == "position_embd.weight":
            yield TensorData(name, "F32", size, _vector(shape, name, size))
            continue
        layer = int(name.split(".")[1]) if name.startswith("blk.") else 0
        place = Place(layer, shape.layers, shape.heads // shape.kv_heads)
        target = fitting(format_of(mix, name, place, tied=True), size[1], blocks)
        yield TensorData(name, target, size, partial(_matrix, name, target, *size))


def _vector(shape: Shape, name: str, size: tuple[int, ...]) -> np.ndarray[Any, Any]:
    if name == "rope_freqs.weight":
        return _llama3_factors(shape)
    if name == "position_embd.weight":
        return np.random.default_rng(1).standard_normal(size, np.float32) * np.float32(_STD)
    return np.full(size, 0.0 if name.endswith("bias") else 1.0, np.float32)


def _llama3_factors(shape: Shape) -> np.ndarray[Any, Any]:
    """Llama 3.2's: slow pairs are divided by 32, fast ones stay, between one and four turns in 8,192 positions both."""
    wave = 2 * np.pi * shape.rope ** (np.arange(0, shape.head, 2) / shape.head)
    smooth = np.clip((8192 / wave - 1.0) / 3.0, 0, 1)
    return (1 / ((1 - smooth) / 32 + smooth)).astype(np.float32)


@cache
def _pool(target: str, columns: int) -> np.ndarray[Any, Any]:
    """Some megabytes of random rows in a format: uint8 (rows, bytes of a row)."""
    row = FORMATS[target].nbytes((columns,))
    rows = max(16, min(_POOL_BYTES // row, (1 << 21) // columns))
    values = np.random.default_rng([columns, *target.encode()]).standard_normal((rows, columns), np.float32)
    data = kernels.quantize(values * np.float32(_STD), target)
    return np.frombuffer(data, np.uint8).reshape(rows, row)


def _matrix(name: str, target: str, rows: int, columns: int) -> Iterator[np.ndarray[Any, Any]]:
    pool = _pool(target, columns)
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    while rows:
        piece = pool[rng.permutation(len(pool))[:rows]]
        rows -= len(piece)
        yield piece


def _tokenizer(shape: Shape, kind: str) -> dict[str, Any]:
    """A byte-level vocabulary of the right size: 256 bytes, an end, a merge, and names that text never spells."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = iter(range(256, 512))
    letters = [chr(b) if b in kept else chr(next(rest)) for b in range(256)]
    tokens = [*letters, "<|end|>", "\u0120t"]
    tokens += [f"<filler_{i}>" for i in range(len(tokens), shape.vocabulary)]
    types = np.ones(len(tokens), np.int32)
    types[_END] = 3
    return {
        "general.name": f"random weights of shape {shape.architecture} {shape.width}x{shape.layers}",
        "general.file_type": MIXES[kind].file_type,
        "general.quantization_version": 2,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": ["\u0120 t"],
        "tokenizer.ggml.bos_token_id": _END,
        "tokenizer.ggml.eos_token_id": _END,
        "tokenizer.ggml.add_bos_token": False,
    }
