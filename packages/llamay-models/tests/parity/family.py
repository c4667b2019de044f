"""How one model is made: its class in transformers, small numbers, and what its file says of them.

A number that is read from the wrong key changes a shape or a logit: heads times their size are not the width of the
model, no two widths are the same without need, and windows and chunks are shorter than the text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import transformers
from layouts import Layout
from numpy.typing import NDArray

VOCABULARY = 64
WIDTH = 32
HIDDEN = 28
HEADS, KV_HEADS, HEAD = 4, 2, 12
CONTEXT = 48
EPS = float(np.float32(1e-5))  # as the file has it, in 32 bits

COMMON: dict[str, Any] = {"vocab_size": VOCABULARY, "hidden_size": WIDTH, "num_hidden_layers": 2}
ATTENTION: dict[str, Any] = {
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "intermediate_size": HIDDEN,
    "max_position_embeddings": CONTEXT,
    "rms_norm_eps": EPS,
}
KEYS: dict[str, Any] = {
    "attention.head_count": HEADS,
    "attention.head_count_kv": KV_HEADS,
    "feed_forward_length": HIDDEN,
    "attention.layer_norm_rms_epsilon": EPS,
}
HEAD_KEYS: dict[str, Any] = {"attention.key_length": HEAD, "attention.value_length": HEAD}
EXPERTS: dict[str, Any] = {"expert_count": 5, "expert_used_count": 2}


@dataclass(frozen=True)
class Family:
    """How one model is made.

    Attributes:
        architecture: what the file's `general.architecture` says.
        model: the class in transformers.
        options: of its config.
        keys: of the file, without the architecture's name.
        names: parts of parameters' names, and the parts of tensors' names that stand for them.
        layouts: by the name of a tensor, how its values lie in the file.
        values: by the name of a tensor, what transformers has in place of the file's values.
        metadata: keys of the file without the architecture's name in front.
        divided: whether the file has the divisors of the rotation's frequencies as a tensor.

    """

    architecture: str
    model: str
    options: Mapping[str, Any]
    keys: Mapping[str, Any]
    names: Mapping[str, str]
    layouts: Mapping[str, Layout] = field(default_factory=dict)
    values: Mapping[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    divided: bool = False

    def build(self) -> Any:
        """Return the model, its parameters yet to be given; attention and experts are computed the plain way."""
        cls = getattr(transformers, self.model)
        config = cls.config_class(**self.options, bos_token_id=1, eos_token_id=2, pad_token_id=0)
        config._attn_implementation = "eager"
        config._experts_implementation = "eager"
        return cls(config, **({"add_pooling_layer": False} if self.architecture == "bert" else {})).eval()
