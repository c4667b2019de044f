from typing import Annotated, Any

import numpy
from numpy.typing import NDArray


class FormatError(ValueError):
    """
    A file or vocabulary that cannot be used: (problem, hint, offset or None).
    """

class Strings:
    """The strings of a metadata array, decoded one at a time."""

    def __len__(self) -> int: ...

    def text(self, index: int) -> str:
        """String `index`; bytes that are not UTF-8 become U+FFFD."""

    def raw(self, index: int) -> bytes:
        """The bytes of string `index`."""

    def texts(self) -> list[str]:
        """All strings at once."""

class File:
    """The checked header of one GGUF file, and views into its mapping."""

    @staticmethod
    def of_fd(fd: int) -> File:
        """
        Map the file behind a descriptor and check its header. Raises FormatError, OSError.
        """

    @staticmethod
    def of_bytes(data: bytes) -> File:
        """Check a header that is in memory (for tests). Raises FormatError."""

    @property
    def version(self) -> int: ...

    @property
    def alignment(self) -> int: ...

    @property
    def data_offset(self) -> int: ...

    def keys(self) -> list[str]:
        """The metadata keys, in the order of the file."""

    def type(self, key: str) -> str:
        """The type that the file gives for a key, for messages. Raises KeyError."""

    def value(self, key: str) -> Any:
        """
        The value of a key: bool, int, float, str, a 1-D numpy array, or Strings. Raises KeyError.
        """

    def raw(self, key: str) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,), writable=False)]:
        """The encoded value of a key, as it stands in the file. Raises KeyError."""

    def tensors(self) -> list[tuple[str, int, tuple[int, ...], int, int]]:
        """
        (name, format id, shape with the fastest dimension last, byte offset in the file, bytes) of every tensor.
        """

    def bytes(self, offset: int, size: int) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,), writable=False)]:
        """
        Part of the file as a read-only array of uint8; it keeps the mapping alive.
        """

    @property
    def size(self) -> int:
        """Bytes in the file."""

def tensor_formats() -> list[tuple[int, str, int, int]]:
    """
    (id, name, elements of a block, bytes of a block) of every tensor format that a file may use.
    """
