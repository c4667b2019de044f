"""`Weights`: the tensors of a model by the keys and GGUF names by which an architecture asks for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from llamay_models.errors import TensorError
from llamay_models.plan.records import Tensor, check_tensor

Key = str | tuple[int, str] | tuple[int, str, str]


def tensor_name(key: Key) -> str:
    """Return the tensor's name in the file.

    `"output"` is `output.weight`, `"output.bias"` its bias; `(3, "attn_q")` is `blk.3.attn_q.weight`, and
    `(3, "attn_q", "bias")` its bias.
    """
    if isinstance(key, str):
        return key if "." in key else f"{key}.weight"
    layer, stem, *kind = key
    return f"blk.{layer}.{stem}.{kind[0] if kind else 'weight'}"


class Weights:
    """A view of named tensors that remembers the names asked for, so that unused tensors can be reported.

    Raises TensorError for an entry that is no Tensor.
    """

    def __init__(self, tensors: Mapping[str, Tensor], missing: Callable[[str], Tensor] | None = None) -> None:
        if not isinstance(tensors, Mapping):
            raise TensorError(f"weights must be a mapping of names to tensors, not {type(tensors).__name__}")
        for name, tensor in tensors.items():
            check_tensor(f"weights[{name!r}]", tensor, TensorError)
        self._tensors = tensors
        self._missing = missing
        self.asked: set[str] = set()

    def __getitem__(self, key: Key) -> Tensor:
        """Return a tensor that must be there. Raises TensorError if it is not."""
        name = tensor_name(key)
        self.asked.add(name)
        if (tensor := self._tensors.get(name)) is not None:
            return tensor
        if self._missing is not None:
            return self._missing(name)
        raise TensorError(f"the tensor {name} is missing")

    def get(self, key: Key) -> Tensor | None:
        """Return a tensor that only some models have, such as a bias or an untied output, or None."""
        name = tensor_name(key)
        if name not in self._tensors:
            return None
        self.asked.add(name)
        return self._tensors[name]
