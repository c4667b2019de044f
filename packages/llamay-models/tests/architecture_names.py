"""Architectures and files by what tests do with them, so that each list is there once."""

from llamay_models.architectures import ARCHITECTURES

DECODERS = sorted(a.name for a in ARCHITECTURES.values() if a.kind == "decoder")

DENSE = ("gemma3", "gpt2", "llama", "qwen2", "qwen3")
"""Decoders with attention and an MLP in every layer: no experts, no recurrent state."""

LOGITS_FILES = (
    "falcon-mamba",
    "gemma3",
    "jamba",
    "lfm2",
    "mamba",
    "mamba2",
    "mixtral",
    "qwen3",
    "qwen3moe",
)
"""Of models/ in the larger test data: NAME.gguf with NAME.logits.npy beside it, for the ids of TEXT."""

STATES_FILES = ("bert", "xlm-roberta")
"""Of the same folder: NAME.gguf with NAME.hidden.npy beside it; the first id of the second's text is 2."""

TEXT = (1, 20, 33, 47, 301, 8, 99, 100)
"""Token ids that the outputs in the larger test data were computed for."""
