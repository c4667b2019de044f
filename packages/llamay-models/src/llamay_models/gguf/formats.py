"""Tensor formats: names, block sizes and the bytes that a shape takes."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from .. import _native
from ..errors import GGUFError


@dataclass(frozen=True, slots=True)
class TensorFormat:
    """One way to store the elements of a tensor.

    Attributes:
        id: the number that stands in the file (ggml's type id).
        name: ggml's name in upper case, such as "Q4_K".
        block_size: elements that are stored together; rows are whole blocks.
        block_bytes: bytes of one block.

    """

    id: int
    name: str
    block_size: int
    block_bytes: int

    def nbytes(self, shape: tuple[int, ...]) -> int:
        """Return the bytes of a tensor of this shape, fastest dimension last.

        Raises:
            GGUFError: a row is not a whole number of blocks.

        """
        columns = shape[-1] if shape else 1
        if columns % self.block_size:
            raise GGUFError(
                f"rows of {columns} elements are not whole blocks of {self.block_size} for {self.name}",
                "choose another format for this tensor",
            )
        return prod(shape) // self.block_size * self.block_bytes


#: Every format that a file may use, by name; those without kernels too.
FORMATS: dict[str, TensorFormat] = {row[1]: TensorFormat(*row) for row in _native.tensor_formats()}
FORMAT_BY_ID: dict[int, TensorFormat] = {f.id: f for f in FORMATS.values()}
