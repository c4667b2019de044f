"""Embeddings and rerank scores, from a model's last hidden states.

The states are those after the final norm, as llama.cpp pools them. Those of a decoder depend on the tokens
before them, those of an encoder on the whole text. A text's embedding does not depend, to the last bit, on the texts
that are computed beside it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

import numpy as np

from llamay_models.arguments import flag, whole
from llamay_models.engine import Engine
from llamay_models.engine.passes.pass_runner import PassRunner
from llamay_models.engine.passes.text_pass import PassKind, TextPass
from llamay_models.errors import PromptError, TensorError
from llamay_models.plan import Doubles, Floats, Tensor
from llamay_models.progress import Progress

Pooling = Literal["mean", "last", "cls"]
# llama.cpp's numbers; 0 is none and 4 a rank head, which reads the last token in a decoder.
_POOLINGS: dict[int, Pooling] = {1: "mean", 2: "cls", 3: "last", 4: "last"}
_RANK = 4


class EmbeddingModel(Protocol):
    """A model, as embeddings and rerank scores see it."""

    name: str
    architecture: str
    config: Any
    metadata: Mapping[str, Any]
    engine: Engine
    pass_runner: PassRunner
    writes: bool
    pools: str | None
    rank_head: RankHead | None

    @property
    def tokenizer(self) -> Any:
        """The tokenizer; None in a model without one."""

    @property
    def embedding_length(self) -> int:
        """Values that a token has between the layers."""

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text."""


def default_pooling(model: EmbeddingModel) -> Pooling:
    """Return the pooling that the file names, else "last" for a decoder and "mean" for an encoder.

    The last state of a decoder depends on all tokens, as each state of an encoder does. A rank head reads the first
    state of an encoder.
    """
    if not model.writes:
        asked: Pooling | Literal["none"] = getattr(model.config, "pooling", "none")
        return "mean" if asked == "none" else asked
    kind = model.metadata.get(f"{model.architecture}.pooling_type")
    return _POOLINGS.get(kind, "last") if isinstance(kind, int) else "last"


class _Pool:
    """Pools hidden states as they arrive. Sums are in float64, in order of position, independent of the batches."""

    def __init__(self, width: int, pooling: Pooling, size: int) -> None:
        self._pooling, self._size = pooling, size
        self._state: Doubles = np.zeros(width)

    def take(self, begin: int, rows: Floats) -> None:
        """Add rows of one text, which come in order."""
        if self._pooling == "mean":
            for row in rows:
                self._state += row
        elif self._pooling == "last" or begin == 0:
            self._state[:] = rows[0 if self._pooling == "cls" else -1]

    @property
    def value(self) -> Doubles:
        """The pooled state: float64 (width,)."""
        return self._state / self._size if self._pooling == "mean" else self._state


def pooled(
    model: EmbeddingModel,
    texts: Sequence[str | Sequence[int]],
    pooling: Pooling,
    progress: Progress | None = None,
    tenant: str | None = "",
    pairs: Sequence[Sequence[int]] | None = None,
    names: Sequence[str] | None = None,
) -> list[Doubles]:
    """Return a state of float64 (width,) for each text; see `embed`.

    `pairs` has the types of each text's tokens, `names` the names of the texts in messages.
    """
    width = model.embedding_length
    # An encoder pools by itself, as its file asks for; for another pooling it gives all rows.
    kind: PassKind = "hidden" if model.writes else "pooled" if pooling == model.pools else "rows"
    pools, passes = [], []
    names = names or [f"text {i + 1} of {len(texts)}" for i in range(len(texts))]
    for i, text in enumerate(texts):
        try:
            tokens = model.engine.checked_tokens(model.encode(text) if isinstance(text, str) else text)
        except PromptError as error:
            if len(texts) > 1:
                error.args = (f"{names[i]}: {error}",)
            raise
        if not tokens:
            raise PromptError(f"{names[i]} is empty; give at least one token")
        if kind == "hidden" and pooling == "cls":
            tokens = tokens[:1]  # attention is causal: later tokens change nothing
        pool = _Pool(width, "last" if kind == "pooled" else pooling, len(tokens))
        pools.append(pool)
        first = len(tokens) - 1 if kind == "pooled" or (kind == "hidden" and pooling != "mean") else 0
        types = None if pairs is None else {"types": np.array(pairs[i], np.int32)}
        passes.append(TextPass(kind, tokens, first, pool.take, tenant, types))
    tell = None if progress is None else lambda done: progress("embedding", done, len(passes))
    model.pass_runner.run(passes, tell)
    return [pool.value for pool in pools]


def embed(
    model: EmbeddingModel,
    texts: str | Sequence[str] | Sequence[Sequence[int]],
    pooling: Pooling | None = None,
    *,
    normalize: bool = True,
    dimensions: int | None = None,
    tenant: str | None = "",
    progress: Progress | None = None,
) -> Floats:
    """Return float32 (n, dimensions): an embedding of each text; see `Model.embed`."""
    if isinstance(texts, bytes) or not hasattr(texts, "__len__"):
        raise PromptError(f"embed takes a text, a list of texts or token ids, not {type(texts).__name__}")
    many: Sequence[Any] = [texts] if isinstance(texts, str) else texts
    if len(many) and isinstance(many[0], int | np.integer):
        many = [many]
    pooling = default_pooling(model) if pooling is None else pooling
    if pooling not in get_args(Pooling):
        raise ValueError(f"pooling must be one of {', '.join(get_args(Pooling))}, not {pooling!r}")
    width = model.embedding_length
    if dimensions is not None:
        dimensions = whole("dimensions", dimensions, 1, width, error=ValueError)
    normalize = flag("normalize", normalize, error=ValueError)
    out = np.zeros((len(many), dimensions or width), np.float32)
    for i, state in enumerate(pooled(model, many, pooling, progress, tenant)):
        short = state[:dimensions]
        out[i] = unit(short) if normalize else short
    return out


def unit(x: Doubles) -> Doubles:
    """Return x at length 1; zeros stay zeros."""
    length = math.sqrt(math.fsum(x * x))
    return x / length if length > 0 else x


# -- ranking


@dataclass(frozen=True)
class RankHead:
    """A file's own head for scoring a document.

    `cls`, a dense layer with tanh, where there is one, then `cls.output`. Sums are numpy's pairwise ones
    over one row at a time, so they depend on nothing else.
    """

    dense: Floats | None
    dense_bias: Floats | None
    output: Floats
    output_bias: Floats | None

    def score(self, state: Doubles) -> float:
        """Return the logit of the first class; of several, its probability."""
        x = state
        if self.dense is not None:
            x = np.tanh(_matrix(self.dense, self.dense_bias, x))
        logits = _matrix(self.output, self.output_bias, x)
        if len(logits) == 1:
            return float(logits[0])
        weights = np.exp(logits - logits.max())
        return float(weights[0] / weights.sum())


def _matrix(w: Floats, bias: Floats | None, x: Doubles) -> Doubles:
    out: Doubles = (w * x).sum(-1)
    return out if bias is None else out + bias


_HEAD = ("cls.weight", "cls.bias", "cls.output.weight", "cls.output.bias")


def take_rank_head(tensors: dict[str, Any], width: int) -> RankHead | None:
    """Take a rank head out of a file's tensors. Raises TensorError for one of another shape."""
    found: dict[str, Tensor] = {name: tensors.pop(name) for name in _HEAD if name in tensors}
    if not found:
        return None
    if "cls.output.weight" not in found:
        raise TensorError(f"the file has {', '.join(found)} but no cls.output.weight")
    inner = found["cls.weight"].rows if "cls.weight" in found else width
    shapes = {"cls.weight": (inner, width), "cls.bias": (1, inner)}
    classes = found["cls.output.weight"].rows
    shapes |= {"cls.output.weight": (classes, inner), "cls.output.bias": (1, classes)}
    for name, tensor in found.items():
        if (tensor.rows, tensor.cols) != shapes[name]:
            raise TensorError(f"{name} is {tensor.rows} x {tensor.cols} but must be {shapes[name]}")
    values = {name: tensor.dequantize() for name, tensor in found.items()}
    vector = {name: values[name].reshape(-1) for name in ("cls.bias", "cls.output.bias") if name in values}
    return RankHead(
        values.get("cls.weight"),
        vector.get("cls.bias"),
        values["cls.output.weight"],
        vector.get("cls.output.bias"),
    )


def rerank(
    model: EmbeddingModel,
    query: str,
    documents: Sequence[str],
    *,
    tenant: str | None = "",
    progress: Progress | None = None,
) -> Floats:
    """Return float32 (n,): how well each document answers the query; see `Model.rerank`."""
    if isinstance(documents, str | bytes) or not hasattr(documents, "__iter__"):
        raise PromptError("documents must be a list of texts; for one text give a list with it")
    documents = list(documents)
    names = ["query", *(f"document {i}" for i in range(1, len(documents) + 1))]
    for name, text in zip(names, [query, *documents], strict=True):
        if not isinstance(text, str):
            raise PromptError(f"{name} must be a text, not {type(text).__name__}")
    if not documents:
        return np.zeros(0, np.float32)
    head = model.rank_head
    if head is not None:
        prompts = [_pair(model, query, document) for document in documents]
        texts = [[*first, *second] for first, second in prompts]
        # A decoder's last state depends on the pair; an encoder's first one was trained to represent it.
        pooling: Pooling = "last" if model.writes else "cls"
        types = None
        if model.engine.reads.types > 1:
            types = [[0] * len(first) + [1] * len(second) for first, second in prompts]
        states = pooled(model, texts, pooling, progress, tenant, types, names[1:])
        return np.array([head.score(state) for state in states], np.float32)
    states = pooled(model, [query, *documents], default_pooling(model), progress, tenant, names=names)
    first, *others = [unit(s) for s in states]
    return np.array([math.fsum(first * other) for other in others], np.float32)


def _pair(model: EmbeddingModel, query: str, document: str) -> tuple[list[int], list[int]]:
    """Return the tokens that a rank head reads, in two parts where tokens have types: query and document.

    The file's template for it, in which only the template holds control tokens; without one llama.cpp's:
    query, end, separator, document, end, as far as the vocabulary has those. BERT's own has one separator.
    """
    words = model.tokenizer
    if words is None:
        raise PromptError(f"{model.name} has no tokenizer, so it cannot rank texts")
    template = model.metadata.get("tokenizer.chat_template.rerank")
    if isinstance(template, str):
        return _filled(words, template, {"query": query, "document": document}), []
    begin = [words.bos] if words.bos is not None and words.adds_bos else []
    end = [words.eos] if words.eos is not None else []
    separator = [words.sep] if words.sep is not None else []
    if words.kind == "wpm":
        end, separator = end or separator, []
    first, second = (list(words.encode(text, add_special=False)) for text in (query, document))
    return [*begin, *first, *end, *separator], [*second, *end]


def _filled(words: Any, template: str, values: Mapping[str, str]) -> list[int]:
    raw, spans, rest = b"", [], template
    while True:
        found = [(at, name) for name in values if (at := rest.find("{" + name + "}")) >= 0]
        at, name = min(found, default=(len(rest), ""))
        plain = rest[:at].encode()
        spans.append((len(raw), len(raw) + len(plain)))
        raw += plain
        if not name:
            return list(words.encode_trusting(raw, [s for s in spans if s[0] < s[1]], add_special=True))
        raw += values[name].encode()
        rest = rest[at + len(name) + 2 :]


__all__ = ["Pooling", "RankHead", "default_pooling", "embed", "rerank"]
