"""The architectures, one file each: a pure function of (g, config, weights), and a reader of its config.

To add one, write its file, and name it here twice: among the imports and in `ARCHITECTURES` (docs/architectures.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from llamay_models.architectures import (
    bert,
    gemma3,
    gpt2,
    jamba,
    lfm2,
    llama,
    mamba,
    mamba2,
    qwen2,
    qwen3,
    qwen3moe,
)
from llamay_models.architectures.hyperparameters import Block, Config, Experts, Transformer
from llamay_models.architectures.keys import Keys
from llamay_models.errors import ArchitectureError, MetadataError
from llamay_models.plan import Trace, Value, Weights


@dataclass(frozen=True)
class Architecture:
    """An architecture, as a file's `general.architecture` names it.

    Attributes:
        name: as files have it.
        build: `build(g, config, weights)` is the model in operations of g: logits of a row, or the hidden states of an
            encoder.
        read: takes its config from a file's metadata.
        kind: a "decoder" says what comes next, its rows seeing only those before them; in an "encoder" each row sees
            its whole text, which must be one step, and hidden states come out (see `config.output`).

    """

    name: str
    build: Callable[[Trace, Any, Weights], Value]
    read: Callable[[Keys], Config]
    kind: Literal["decoder", "encoder"] = "decoder"


ARCHITECTURES: dict[str, Architecture] = {
    a.name: a
    for a in (
        Architecture("bert", bert.bert, bert.config, "encoder"),
        Architecture("gemma3", gemma3.gemma3, gemma3.config),
        Architecture("gpt2", gpt2.gpt2, gpt2.config),
        Architecture("jamba", jamba.jamba, jamba.config),
        Architecture("lfm2", lfm2.lfm2, lfm2.config),
        Architecture("llama", llama.llama, llama.config),
        Architecture("mamba", mamba.mamba, mamba.config),
        Architecture("mamba2", mamba2.mamba2, mamba2.config),
        Architecture("qwen2", qwen2.qwen2, qwen2.config),
        Architecture("qwen3", qwen3.qwen3, qwen3.config),
        Architecture("qwen3moe", qwen3moe.qwen3moe, qwen3moe.config),
    )
}


def find(metadata: Mapping[str, Any]) -> tuple[Architecture, Config]:
    """Return the architecture that a file's metadata names, and its hyper-parameters.

    Raises MetadataError if a key is missing or wrong, ArchitectureError if the architecture is not one of
    ours.
    """
    kind = metadata.get("general.type")
    if isinstance(kind, str) and kind == "adapter":
        raise ArchitectureError(
            "this file is an adapter, not a model; load the model that it adapts, and it beside it"
        )
    name = metadata.get("general.architecture")
    if not isinstance(name, str):
        raise MetadataError("the key general.architecture is missing")
    if name not in ARCHITECTURES:
        known = ", ".join(sorted(ARCHITECTURES))
        raise ArchitectureError(f"the architecture {name!r} is not supported; supported are {known}")
    architecture = ARCHITECTURES[name]
    return architecture, architecture.read(Keys(metadata, name))


__all__ = ["ARCHITECTURES", "Architecture", "Block", "Config", "Experts", "Keys", "Transformer", "find"]
