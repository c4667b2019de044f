from collections.abc import Sequence
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

    @property
    def lost(self) -> bool:
        """
        Whether bytes that were read were zeros in the place of a page that the file no longer has, or that the disk could not read.
        """

def tensor_formats() -> list[tuple[int, str, int, int]]:
    """
    (id, name, elements of a block, bytes of a block) of every tensor format that a file may use.
    """

class Tokenizer:
    """A vocabulary with its algorithm; immutable, usable from any thread."""

    @staticmethod
    def bpe(file: File, attributes: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], pre: str) -> Tokenizer:
        """
        Byte-pair encoding by merge ranks. Raises FormatError, ValueError for an unknown pre-tokenizer.
        """

    @staticmethod
    def spm(file: File, attributes: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], scores: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], unknown: int | None, add_space_prefix: bool) -> Tokenizer:
        """SentencePiece BPE with byte fallback. Raises FormatError."""

    @staticmethod
    def wpm(file: File, attributes: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], unknown: int | None, lowercase: bool, strip_accents: bool) -> Tokenizer:
        """WordPiece. Raises FormatError."""

    @staticmethod
    def ugm(file: File, attributes: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], scores: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], unknown: int | None, add_space_prefix: bool, merge_spaces: bool) -> Tokenizer:
        """SentencePiece's unigram model. Raises FormatError."""

    @staticmethod
    def rwkv(file: File, attributes: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], unknown: int | None) -> Tokenizer:
        """RWKV's World tokenizer. Raises FormatError."""

    def __len__(self) -> int: ...

    def encode(self, text: str | bytes, parse_special: bool, continuation: bool = False) -> list[int]:
        """
        The ids of a text, without BOS and EOS. Before a continuation no space is put. Releases the GIL for all but
        short texts.
        """

    def encode_array(self, text: str | bytes, parse_special: bool) -> NDArray[numpy.int32]:
        """As encode, in an int32 array."""

    def encode_trusting(self, text: bytes, spans: NDArray[numpy.uint32]) -> list[int]:
        """
        As encode, with control tokens recognised only inside the byte spans [begin, end), given in order.
        """

    def decode(self, ids: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], skip_special: bool, strip_space: bool) -> bytes:
        """
        The bytes of tokens. strip_space takes one space from text at the start and after special tokens.

        Raises IndexError for an id that is not in the vocabulary.
        """

    def token_bytes(self, id: int) -> bytes:
        """The bytes that a token stands for. Raises IndexError."""

    def token_text(self, id: int) -> bytes:
        """The token as it is written in the file. Raises IndexError."""

    def attributes(self, id: int) -> int:
        """
        What a token is: bits 0 to 7 are normal, unknown, control, user-defined, unused, byte,
        strip left, strip right. Raises IndexError.
        """

    def find(self, text: str) -> int | None:
        """The token with this text in the file, or None."""

def find_tokens(file: File, names: Sequence[str]) -> dict[str, int]:
    """Which of these texts are tokens, and their ids."""

def pretokenizer(name: str) -> tuple[bool, bool] | None:
    """
    (tokens are spelled byte by byte, BOS is added unless the file says otherwise), or None if unknown.
    """

def pretokenize(name: str, text: str | bytes) -> list[bytes]:
    """
    The pieces into which a pre-tokenizer cuts a text (for tests). Raises ValueError for an unknown one.
    """

def pretokenizer_names() -> list[str]:
    """Every pre-tokenizer that is known."""

class StreamDecoder:
    """
    Turns tokens into text as they come, holding back bytes until they make a whole character.

    The tokens go on from others. skip_special leaves control tokens out, all but those of keep.
    """

    def __init__(self, tokenizer: Tokenizer, skip_special: bool, keep: Sequence[int]) -> None: ...

    def push(self, *tokens: int) -> str:
        """
        The text that these tokens complete; often "" in the middle of a character. Raises IndexError.
        """

    def finish(self) -> str:
        """
        What is still held back, with U+FFFD for bytes that are no character; then it starts afresh.
        """
