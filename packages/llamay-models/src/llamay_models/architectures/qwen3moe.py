"""Qwen3's mixtures of experts (Yang et al. 2025, https://arxiv.org/abs/2505.09388).

Qwen3 with experts in place of the MLP. Experts are chosen by a softmax over all of them, and the weights of the chosen
are divided by their sum.
"""

from llamay_models.architectures.hyperparameters import Router, Transformer, read_transformer
from llamay_models.architectures.keys import Keys
from llamay_models.architectures.qwen3 import qwen3 as qwen3moe

__all__ = ["config", "qwen3moe"]


def config(keys: Keys) -> Transformer:
    """Return the hyper-parameters that metadata has. Raises MetadataError that names the key."""
    return Transformer(**read_transformer(keys, "half", router=Router("softmax", norm=True)))
