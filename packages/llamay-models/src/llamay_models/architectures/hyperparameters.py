"""Hyper-parameters: those of a model, and those of each of its layers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from llamay_models.architectures.keys import Keys
from llamay_models.architectures.rotation import read_rope
from llamay_models.errors import MetadataError
from llamay_models.plan import Rope, Style

# No model comes near these; a number beyond them is a broken file, and would cost memory before that is noticed.
MAX_WIDTH = 1 << 20
MAX_HIDDEN = 1 << 24
MAX_HEADS = 1 << 16
MAX_EXPERTS = 1 << 14

Output = Literal["logits", "rows", "pooled"]


@dataclass(frozen=True)
class Config:
    """The parameters of every model, in the names of the files where those are plain.

    Attributes:
        vocab: tokens.
        context_length: positions that the model was made for.
        width: of a row between layers.
        layers: how many.
        eps: of the norms.

    """

    vocab: int
    context_length: int
    width: int
    layers: int
    eps: float

    @property
    def output(self) -> Output:
        """The output of the plan: logits of the next token, hidden states of rows, or one of each text."""
        return "logits"


@dataclass(frozen=True)
class Experts:
    """The experts of a layer and how rows are routed to them; see `Trace.route`."""

    count: int
    used: int
    hidden: int
    kind: str
    norm: bool
    scale: float = 1.0
    groups: int = 1
    groups_used: int = 1


@dataclass(frozen=True)
class Block:
    """One layer of attention and MLP, or of something recurrent in place of attention.

    Attributes:
        heads: of queries.
        kv_heads: of keys and values; 0 where the layer is recurrent.
        k_dim: numbers of a query or key.
        v_dim: numbers of a value.
        scale: of the scores.
        hidden: width of the MLP; of no meaning where there are experts.
        rope: the rotation of queries and keys, if any.
        window: how many positions a row sees, itself included; 0 for all.
        experts: in place of the MLP.

    """

    heads: int
    kv_heads: int
    k_dim: int
    v_dim: int
    scale: float
    hidden: int
    rope: Rope | None = None
    window: int = 0
    experts: Experts | None = None

    @property
    def is_recurrent(self) -> bool:
        """Whether the layer has a state in place of attention."""
        return self.kv_heads == 0


@dataclass(frozen=True)
class Transformer(Config):
    """A model of blocks, each with numbers of its own."""

    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Router:
    """The routing of an architecture, as far as its files do not state it, or not all of them."""

    kind: Literal["softmax", "sigmoid", "softmax_chosen", "sqrt_softplus"]
    norm: bool


def read_config(keys: Keys, eps: str) -> dict[str, Any]:
    """Return the fields of Config; `eps` is the key of the norms' epsilon. Raises MetadataError naming the key."""
    return {
        "vocab": keys.vocabulary(),
        "context_length": keys.integer("context_length"),
        "width": keys.integer("embedding_length", high=MAX_WIDTH),
        "layers": keys.integer("block_count", high=4096),
        "eps": keys.real(eps),
    }


def read_transformer(
    keys: Keys,
    style: Style | None,
    *,
    eps: str = "attention.layer_norm_rms_epsilon",
    router: Router | None = None,
    hybrid: bool = False,
) -> dict[str, Any]:
    """Return the fields of Transformer from a file's metadata.

    Args:
        keys: the metadata.
        style: which values of a head are rotated as a pair; None where positions are not rotated.
        eps: the key of the norms' epsilon.
        router: how rows are routed to experts; None where the architecture has none.
        hybrid: whether layers without key and value heads are recurrent, and not a mistake.

    Raises MetadataError that names the key.

    """
    fields = read_config(keys, eps)
    layers, width = fields["layers"], fields["width"]
    heads = keys.integers("attention.head_count", layers, high=MAX_HEADS)
    kv_heads = keys.integers("attention.head_count_kv", layers, heads, low=0 if hybrid else 1, high=MAX_HEADS)
    k_dims = keys.integers("attention.key_length", layers, _usual_head(keys, width, heads), high=MAX_HEADS)
    v_dims = keys.integers("attention.value_length", layers, k_dims, high=MAX_HEADS)
    hidden = keys.integers("feed_forward_length", layers, high=MAX_HIDDEN)
    experts = read_experts(keys, layers, hidden, router)
    scale = keys.real("attention.scale", None)
    for layer, (n, kv, k_dim, v_dim) in enumerate(zip(heads, kv_heads, k_dims, v_dims, strict=True)):
        where = "" if len(set(heads)) == len(set(kv_heads)) == 1 else f" in layer {layer}"
        if kv and n % kv:
            raise MetadataError(
                f"{keys.name('attention.head_count')} = {n} must be a multiple of "
                f"{keys.name('attention.head_count_kv')} = {kv}{where}"
            )
        if n * max(k_dim, v_dim) > MAX_HIDDEN:
            raise MetadataError(
                f"{keys.name('attention.head_count')} = {n} heads of {max(k_dim, v_dim)} values are more than "
                f"{MAX_HIDDEN}{where}"
            )
    ropes = {dim: read_rope(keys, style, dim) for dim in set(k_dims)} if style is not None else {}
    fields["blocks"] = tuple(
        Block(
            heads=heads[i],
            kv_heads=kv_heads[i],
            k_dim=k_dims[i],
            v_dim=v_dims[i],
            scale=scale or 1.0 / math.sqrt(k_dims[i]),
            hidden=hidden[i],
            rope=ropes.get(k_dims[i]),
            experts=experts[i],
        )
        for i in range(layers)
    )
    return fields


def _usual_head(keys: Keys, width: int, heads: tuple[int, ...]) -> tuple[int, ...]:
    """Return the sizes of heads where a file has none. Raises MetadataError where the width does not divide."""
    for n in () if keys.has("attention.key_length") else heads:
        if width % n:
            raise MetadataError(
                f"{keys.name('embedding_length')} = {width} must be a multiple of "
                f"{keys.name('attention.head_count')} = {n} "
                f"where {keys.name('attention.key_length')} is missing"
            )
    return tuple(max(1, width // n) for n in heads)


def read_experts(
    keys: Keys, layers: int, hidden: tuple[int, ...], router: Router | None
) -> tuple[Experts | None, ...]:
    """Return the experts of each layer, None for those that have an MLP. Raises MetadataError that names the key."""
    if router is None:
        keys.refuse("expert_count", "a mixture of experts")
        return (None,) * layers
    count = keys.integer("expert_count", 0, low=0, high=MAX_EXPERTS)
    if not count:
        return (None,) * layers
    kind, said = router.kind, keys.integer("expert_gating_func", 0, low=0, high=len(_KINDS) - 1)
    if said and _KINDS[said] != kind:
        raise MetadataError(
            f"{keys.name('expert_gating_func')} is {said} ({_KINDS[said]}), but experts of {keys.architecture} are "
            f"chosen by {kind}"
        )
    if keys.flag("expert_weights_norm", router.norm) != router.norm:
        raise MetadataError(
            f"{keys.name('expert_weights_norm')} is {not router.norm}, but weights of {keys.architecture} are "
            f"{'' if router.norm else 'not '}divided by their sum"
        )
    groups = keys.integer("expert_group_count", 0, low=0, high=count) or 1
    used_groups = keys.integer("expert_group_used_count", 0, low=0, high=groups) or groups
    if count % groups:
        raise MetadataError(
            f"{keys.name('expert_count')} = {count} must be a multiple of {keys.name('expert_group_count')} = {groups}"
        )
    used = keys.integers("expert_used_count", layers, high=count // groups * used_groups)
    widths = keys.integers("expert_feed_forward_length", layers, hidden, high=MAX_HIDDEN)
    scale = keys.real("expert_weights_scale", 0.0, positive=False) or 1.0
    dense = keys.integer("leading_dense_block_count", 0, low=0, high=layers)
    return tuple(
        None
        if i < dense
        else Experts(count, used[i], widths[i], kind, router.norm, scale, groups, used_groups)
        for i in range(layers)
    )


_KINDS = ("", "softmax", "sigmoid", "softmax_chosen", "sqrt_softplus")
"""By the number that files have for them."""
