"""The facts about a loaded model that the server tells its clients."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

import llamay_models
from llamay_server.engine.formats import answer_format
from llamay_server.engine.protocol import ModelInfo

SAMPLING = frozenset(f.name for f in dataclasses.fields(llamay_models.Sampling)) - {"logprobs"}

# general.file_type of GGUF, as llama.cpp numbers it
_FILE_TYPES = {
    0: "F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    7: "Q8_0",
    8: "Q5_0",
    9: "Q5_1",
    10: "Q2_K",
    11: "Q3_K_S",
    12: "Q3_K_M",
    13: "Q3_K_L",
    14: "Q4_K_S",
    15: "Q4_K_M",
    16: "Q5_K_S",
    17: "Q5_K_M",
    18: "Q6_K",
    32: "BF16",
}


def _tensors(path: Path) -> list[tuple[str, str, tuple[int, ...]]]:
    with llamay_models.gguf.open(path) as file:
        return [(name, tensor.format, tuple(tensor.shape)) for name, tensor in file.tensors.items()]


def model_info(model: llamay_models.Model) -> ModelInfo:
    """Return a model's facts and abilities, from its file."""
    metadata, words = model.metadata, model.tokenizer
    source = metadata.get("tokenizer.chat_template")
    source = source if isinstance(source, str) and words is not None else None
    kind = metadata.get("general.file_type")
    spelled = {
        role: words.token_text(token)
        for role in ("bos", "eos")
        if words is not None and (token := getattr(words, role)) is not None
    }
    roles = words.roles if words is not None else {}
    return ModelInfo(
        name=model.path.name.removesuffix(".gguf"),
        architecture=model.architecture,
        context_length=model.context_size,
        trained_length=model.context_length or None,
        vocab_size=model.vocab_size,
        embedding_length=model.embedding_length,
        n_parameters=model.n_parameters,
        nbytes=model.nbytes,
        path=model.path,
        quantization=_FILE_TYPES.get(kind, "unknown") if isinstance(kind, int) else "unknown",
        created=model.path.stat().st_mtime if model.path.exists() else time.time(),
        chat_template=source,
        metadata=metadata,
        bos_token=spelled.get("bos", ""),
        eos_token=spelled.get("eos", ""),
        template_takes_tools=source is not None and "tools" in source,
        template_thinks=answer_format(source).reasoning is not None,
        sampling_options=SAMPLING,
        tensors=lambda: _tensors(model.path),
        fill_tokens={role: token for role, token in roles.items() if role.startswith("fill_")},
    )
