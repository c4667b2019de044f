"""Make tiny models of random weights, one or more of each architecture, and what transformers computes with them.

    hatch run parity:make            writes ../data/parity/NAME.gguf and NAME.npy
    hatch run parity:check           computes everything again and compares it with what lies there

A file has a stub vocabulary, its weights as F32, and under `parity.tokens` the ids of a text; an encoder's also has
`parity.types`. Beside it lie the logits of every row of this text, or the hidden states of an encoder: float64 of
shape (tokens, vocabulary) or (tokens, width), computed with eager attention, without a cache, in 64 bits throughout:
where transformers rounds norms, rotations or weights of attention to float32, it is made to take float64 instead.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import gguf
import numpy as np
import torch
import transformers
from attention_models import ATTENTION_MODELS
from family import CONTEXT, VOCABULARY, WIDTH, Family
from layouts import Array, as_it_is, tensor_name
from numpy.typing import NDArray
from recurrent_models import RECURRENT_MODELS

FAMILIES = ATTENTION_MODELS | RECURRENT_MODELS
FOLDER = Path(__file__).parents[1] / "data" / "parity"
TOKENS = [1, 20, 33, 47, 30, 8, 60, 12, 12, 5, 41, 63, 0, 17, 33, 9, 52, 28, 3, 44, 20, 33, 47, 2]
TYPES = [0] * 14 + [1] * 10


@contextmanager
def float64_throughout() -> Iterator[None]:
    """Let float64 stand for float32, for models that are built and run meanwhile."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with (
            mock.patch.multiple(torch, float32=torch.float64, float=torch.float64),
            mock.patch.object(torch.Tensor, "float", torch.Tensor.double),
        ):
            yield
    finally:
        torch.set_default_dtype(default)


def draw(model: str, name: str, shape: tuple[int, ...]) -> Array:
    """Return the values of a tensor as the file has them: no norm is one, no bias zero, no state grows."""
    rng = np.random.default_rng(zlib.crc32(f"{model}/{name}".encode()))
    values = rng.normal(size=shape)
    if name.endswith("ssm_a"):
        values = -0.05 - np.abs(values)
    elif "norm" in name and name.endswith("weight"):
        values = 1 + 0.3 * values
    elif name.endswith("bias"):
        values = 0.3 * values
    elif len(shape) > 1 and not name.startswith(("token", "position")):
        inputs = shape[0] if model == "gpt2" else shape[-1]
        values = values * (1.5 / np.sqrt(inputs))
    return values.astype(np.float32)


def give_weights(name: str, family: Family, model: Any) -> dict[str, Array]:
    """Give a model its weights. Returns the tensors of its file."""
    tensors: dict[str, Array] = {}
    for parameter, tensor in model.named_parameters():
        called = tensor_name(parameter, family.names)
        kind = called.split(".", 2)[2] if called.startswith("blk.") else called
        stored = draw(name, called, tuple(tensor.shape))
        value = family.values.get(kind, lambda x: x)(stored.astype(np.float64))
        with torch.no_grad():
            tensor.copy_(torch.from_numpy(value))
        layout = family.layouts.get(kind) or family.layouts.get(kind.rpartition(".")[0], as_it_is)
        tensors |= layout(called, stored)
    if family.divided:
        tensors["rope_freqs.weight"] = give_frequencies(model)
    return tensors


def give_frequencies(model: Any) -> Array:
    """Let a model rotate by what its file will say, in 32 bits. Returns the divisors of the plain frequencies."""
    rotary, config = model.model.rotary_emb, model.config
    steps = torch.arange(0, config.head_dim, 2, dtype=torch.float64) / config.head_dim
    plain = 1.0 / config.rope_parameters["rope_theta"] ** steps
    divisors: Array = (plain / rotary.inv_freq).numpy().astype(np.float32)
    assert len(set(divisors.round(3))) > 2, "no pair between those that turn fast and slowly"
    rotary.inv_freq = plain / torch.from_numpy(divisors).double()
    return divisors


def run(family: Family, model: Any) -> NDArray[np.float64]:
    """Return what the model makes of the text: (tokens, vocabulary) or (tokens, width)."""
    ids = torch.tensor([TOKENS])
    with torch.no_grad():
        if family.architecture == "bert":
            out = model(ids, token_type_ids=torch.tensor([TYPES])).last_hidden_state
        else:
            out = model(ids, use_cache=False).logits
    return out[0].numpy()


def compute(name: str, family: Family) -> tuple[dict[str, Array], NDArray[np.float64]]:
    """Return the tensors of a model and what it makes of the text, which float32 must nearly agree with."""
    with float64_throughout():
        model = family.build()
        tensors = give_weights(name, family, model)
        out = run(family, model)
    assert out.dtype == np.float64
    single = family.build()
    give_weights(name, family, single)
    distance = np.abs(run(family, single) - out).max()
    assert distance < 1e-4 * np.abs(out).max(), f"{name}: float32 is {distance} away"
    return tensors, out


def write(path: Path, family: Family, tensors: Mapping[str, Array]) -> None:
    """Write a model as a GGUF file."""
    writer = gguf.GGUFWriter(path, family.architecture)
    writer.add_name(f"parity {path.stem}")
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    keys = {"block_count": 2, "context_length": CONTEXT, "embedding_length": WIDTH, **family.keys}
    add(writer, {f"{family.architecture}.{key}": value for key, value in keys.items()})
    add(writer, family.metadata)
    letters = [chr(0x61 + i) if i < 26 else chr(0x391 + i) for i in range(VOCABULARY - 3)]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(["<unk>", "<s>", "</s>", *letters])
    writer.add_token_scores([0.0] * VOCABULARY)
    writer.add_token_types([2, 3, 3] + [1] * (VOCABULARY - 3))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    add(writer, {"parity.tokens": TOKENS, **({"parity.types": TYPES} if "bert" in path.stem else {})})
    for name, values in sorted(tensors.items()):
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add(writer: gguf.GGUFWriter, metadata: Mapping[str, Any]) -> None:
    """Add keys with the types that converters give them."""
    for key, value in metadata.items():
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        elif isinstance(value, list):
            writer.add_array(key, value)
        else:
            writer.add_uint32(key, value)


def differences(made: Path, kept: Path) -> Iterator[str]:
    """Say what of a folder is not what was made again: files by their bytes, outputs by their values."""
    for extra in sorted({p.name for p in kept.iterdir()} - {p.name for p in made.iterdir()}):
        yield f"{extra} is made by nothing"
    for path in sorted(made.iterdir()):
        other = kept / path.name
        if not other.is_file():
            yield f"{path.name} is missing"
        elif path.suffix == ".gguf":
            if path.read_bytes() != other.read_bytes():
                yield f"{path.name} has other bytes"
        # The last bits of a sum depend on the processor.
        elif not np.allclose(np.load(path), np.load(other), rtol=0, atol=1e-10):
            yield f"{path.name} is {np.abs(np.load(path) - np.load(other)).max():.2e} away"


def make(folder: Path) -> None:
    """Write all models and outputs into a folder."""
    for name, family in FAMILIES.items():
        tensors, out = compute(name, family)
        write(folder / f"{name}.gguf", family, tensors)
        np.save(folder / f"{name}.npy", out)
        print(f"{name}: {len(tensors)} tensors, values to {np.abs(out).max():.1f}")


def main() -> int:
    """Make the files, or compare what is made with what lies there."""
    parser = argparse.ArgumentParser(description="Tiny models, and what transformers computes with them.")
    parser.add_argument("--check", action="store_true", help="write nothing; compare with what lies there")
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    if not parser.parse_args().check:
        FOLDER.mkdir(parents=True, exist_ok=True)
        make(FOLDER)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder))
        found = list(differences(Path(folder), FOLDER))
    print("\n".join(found) or "all as it lies there")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
