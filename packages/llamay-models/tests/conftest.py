"""What tests of this package share: where real models and llama.cpp's files are, and small random models."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llamay_models.architectures import ARCHITECTURES, Architecture, Keys
from llamay_models.backend import CPU, Backend
from llamay_models.plan import Absent, ArrayTensor, Needs, Program, Reference, Trace, Weights

from .standin import STANDIN

SDIST = "llama-cpp-python==0.3.36"
"""What holds llama.cpp's vocabularies and templates."""


@pytest.fixture(scope="session", params=[CPU, STANDIN], ids=["cpu", "standin"])
def backend(request: pytest.FixtureRequest) -> Backend:
    """What computes: llamay_kernels, and then a second one that shares nothing with it but its samplers."""
    return request.param


@pytest.fixture(scope="session")
def real_models(request: pytest.FixtureRequest) -> Path:
    """The folder of real models; tests that need it are skipped where it is not."""
    named = os.environ.get("LLAMAY_TEST_MODELS", "").split(os.pathsep)
    folder = next((Path(p) for p in named if p and Path(p).is_dir()), None)
    if folder is None:
        pytest.skip("no real models: set LLAMAY_TEST_MODELS to a folder of GGUF files")
    return folder


@pytest.fixture(scope="session")
def llama_cpp_fixtures() -> Path:
    """llama.cpp's vocabularies and templates: from PyPI on first use, then from the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "llamay-tests"
    folder = cache / SDIST.replace("==", "-")
    if not (folder / "complete").exists():
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-build-isolation"]
        command += ["--no-binary", "llama-cpp-python", "-d", str(folder), SDIST]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            pytest.skip(f"{SDIST} cannot be fetched from PyPI")
        for archive in folder.glob("*.tar.gz"):
            with tarfile.open(archive) as tar:
                for member in tar:
                    if "/vendor/llama.cpp/models/" in member.name and member.isfile():
                        member.name = member.name.split("/vendor/llama.cpp/models/")[1]
                        tar.extract(member, folder, filter="data")
            archive.unlink()
        (folder / "complete").touch()
    return folder


@dataclass
class SmallModel:
    """A model of random weights, small enough for the reference."""

    architecture: Architecture
    config: Any
    tensors: dict[str, ArrayTensor] = field(default_factory=dict)

    def weights(self) -> Weights:
        return Weights(self.tensors)

    def trace(self, g: Trace | None = None) -> Program:
        g = g or Trace()
        self.architecture.build(g, self.config, self.weights())
        return g.program()

    def reference(self, tokens: list[int], wanted: list[int] | None = None) -> np.ndarray:
        return self.architecture.build(Reference(tokens, wanted), self.config, self.weights()).array


SMALL: dict[str, Any] = {
    "block_count": 3,
    "context_length": 512,
    "embedding_length": 32,
    "feed_forward_length": 48,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "attention.layer_norm_rms_epsilon": 1e-5,
    "attention.layer_norm_epsilon": 1e-5,
    "attention.key_length": 16,
    "attention.value_length": 16,
    "vocab_size": 61,
}
EXPERTS: dict[str, Any] = {"expert_count": 5, "expert_used_count": 2, "expert_feed_forward_length": 16}
MIXER: dict[str, Any] = {
    "ssm.conv_kernel": 4,
    "ssm.inner_size": 48,
    "ssm.state_size": 6,
    "ssm.time_step_rank": 8,
}
OWN: dict[str, dict[str, Any]] = {
    "gemma3": {"block_count": 7, "attention.sliding_window": 9},
    "jamba": {**MIXER, **EXPERTS, "attention.head_count_kv": [0, 2]},
    "lfm2": {"attention.head_count_kv": [0, 2], "shortconv.l_cache": 3},
    "mamba": MIXER,
    "mamba2": {**MIXER, "ssm.group_count": 2},
    "qwen3moe": EXPERTS,
}
"""What the metadata of some architectures has besides; lists are repeated for as many layers as there are."""
OPTIONAL: dict[str, tuple[str, ...]] = {
    "bert": ("token_types.weight",),
    "jamba": (
        "blk.1.ffn_gate_inp.weight",
        "blk.{}.ssm_conv1d.bias",
        *(f"blk.{{}}.ssm_{name}_norm.weight" for name in ("dt", "b", "c")),
    ),
    "mamba": ("blk.{}.ssm_conv1d.bias",),
    "mamba2": ("blk.{}.ssm_conv1d.bias",),
}
"""Tensors that a file may lack and that these models have."""


@pytest.fixture(scope="session")
def small_model() -> Callable[..., SmallModel]:
    """`small_model("gemma3", seed=3, **keys)`: keys override the metadata above."""

    def make(name: str, seed: int = 0, untied: bool = False, biases: bool = False, **keys: Any) -> SmallModel:
        layers = keys.get("block_count", OWN.get(name, {}).get("block_count", SMALL["block_count"]))
        own = {
            key: [value[i % len(value)] for i in range(layers)] if isinstance(value, list) else value
            for key, value in OWN.get(name, {}).items()
        }
        keys = {**SMALL, **own, **keys}
        metadata = {f"{name}.{key.replace('__', '.')}": value for key, value in keys.items()}
        metadata["tokenizer.ggml.token_type_count"] = 2
        architecture = ARCHITECTURES[name]
        config = architecture.read(Keys(metadata, name))
        needs = Needs()
        optional = [n.format(i) for i in range(config.layers) for n in OPTIONAL.get(name, ())]
        architecture.build(needs, config, Weights({n: Absent(n) for n in optional}, missing=Absent))
        wanted = dict(needs.wanted)
        if untied:
            wanted["output.weight"] = (config.vocab, config.width)
        if biases:
            for i in range(config.layers):
                for stem in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
                    wanted[f"blk.{i}.{stem}.bias"] = (1, wanted[f"blk.{i}.{stem}.weight"][0])
        rng = np.random.default_rng(seed)
        model = SmallModel(architecture, config)
        for tensor, (rows, cols) in wanted.items():
            scale = 0.3 if rows == 1 else 2.0 / np.sqrt(cols)
            values = rng.normal(size=(rows, cols)) * scale + (1.0 if "norm" in tensor else 0.0)
            if tensor.endswith("ssm_a"):
                values = -np.abs(values) - 0.05  # a state that grows is none
            model.tensors[tensor] = ArrayTensor(
                tensor, (values[0] if rows == 1 else values).astype(np.float32)
            )
        return model

    return make
