"""The tokens of a model, as the compiler needs them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from llamay_grammar import _grammar, checks
from llamay_grammar.recent import Recent
from llamay_grammar.tokenizer_json import read_tokenizer_json

__all__ = ["Vocabulary"]

T = TypeVar("T", bound=Exception)

_MAX_TOKENS = 1 << 24
_MAX_TOKEN_BYTES = 4096
_CACHED_GRAMMARS = 256


class Vocabulary:
    """Token id to bytes, with the ids that are special.

    Args:
        tokens: the bytes of every token in order of its id. Tokens that continue a character (byte fallback, split
            UTF-8) are given as the bytes they stand for.
        special: ids that are control tokens. They never match text, whatever their bytes are. Where a tool
            envelope needs one by name, pass a mapping from id to name.
        end: end-of-sequence ids; they are special, and allowed exactly where a document may end.
        offsets: when given, `tokens` is one flat buffer and token ``i`` is ``tokens[offsets[i]:offsets[i + 1]]``
            (``uint64``, one entry more than there are tokens).

    Raises:
        TypeError: for an argument of another type, which it names.
        ValueError: for ids outside the vocabulary, offsets that do not fit, or a token longer than 4096 bytes.

    A vocabulary is immutable and may be shared by threads. It remembers masks (at most `cache_limit` bytes) for all
    grammars compiled over it, so one object should serve a whole process.

    """

    def __init__(
        self,
        tokens: Sequence[bytes] | bytes,
        *,
        special: Iterable[int] | Mapping[int, str] = (),
        end: Iterable[int] = (),
        offsets: npt.ArrayLike | None = None,
        cache_limit: int = 256 << 20,
    ) -> None:
        flat, off = _joined(tokens) if offsets is None else _flat(tokens, offsets)
        size = off.size - 1
        if not 0 < size <= _MAX_TOKENS:
            raise ValueError(f"a vocabulary has between 1 and {_MAX_TOKENS} tokens, not {size}")
        longest = int(np.argmax(off[1:] - off[:-1]))
        if (length := int(off[longest + 1] - off[longest])) > _MAX_TOKEN_BYTES:
            raise ValueError(f"token {longest} has {length} bytes; a token has at most {_MAX_TOKEN_BYTES}")
        names: dict[str, int] = {}
        if isinstance(special, Mapping):
            names = {checks.text(f"special[{checks.described(i)}]", name): i for i, name in special.items()}
            special = [*special]
        special_ids = _ids("special", special, size)
        end_ids = _ids("end", end, size)
        limit = checks.integer("cache_limit", cache_limit, 0, checks.UINT64)
        self._native = _grammar._make_vocabulary(flat, off, special_ids, end_ids)
        self._native.cache_limit = limit
        self._size = size
        self.special_names: Mapping[str, int] = {name: int(i) for name, i in names.items() if name}
        self.end_ids: tuple[int, ...] = tuple(end_ids)
        h = hashlib.sha256(b"llamay vocabulary 1")
        for piece in (off.tobytes(), flat, repr((special_ids, end_ids)).encode()):
            h.update(len(piece).to_bytes(8, "little"))
            h.update(piece)
        self.digest: bytes = h.digest()
        # What is compiled over it, by recipe. A vocabulary knows nothing of grammars, hence the type.
        self._grammars: Recent[Any] = Recent(_CACHED_GRAMMARS)

    @classmethod
    def from_tokenizer_json(
        cls,
        source: str | Path | Mapping[str, Any],
        *,
        end: Iterable[int | str],
        size: int | None = None,
        cache_limit: int = 256 << 20,
    ) -> Vocabulary:
        """Return the vocabulary of a ``tokenizer.json`` (byte-level BPE, or SentencePiece's BPE and Unigram).

        Args:
            source: the file, its text (transformers: ``tokenizer.backend_tokenizer.to_str()``), or the parsed
                document.
            end: end-of-sequence tokens, as ids or by name.
            size: how many logits the model has, where these are more than there are tokens; nothing may ever choose
                the others.
            cache_limit: bytes of masks to remember.

        Raises:
            OSError: the file cannot be read.
            TypeError: for an argument of another type, which it names.
            ValueError: it is no such file, a name of `end` is not in it, or `size` is too small.

        """
        tokens, special = read_tokenizer_json(source)
        by_name = {text.decode(errors="replace"): n for n, text in enumerate(tokens)}
        by_name |= {name: token for token, name in special.items() if name}
        ends = []
        for each in checks.items("end", end, "token ids and names"):
            if isinstance(each, str) and each not in by_name:
                raise ValueError(f"end must name tokens, but there is no token called {each!r}")
            ends.append(by_name[each] if isinstance(each, str) else each)
        if size is not None:
            size = checks.integer("size", size, 0, _MAX_TOKENS)
            if size < len(tokens):
                raise ValueError(f"there are {len(tokens)} tokens, more than a size of {size}")
            special |= dict.fromkeys(range(len(tokens), size), "")
            tokens += [b""] * (size - len(tokens))
        return cls(tokens, special=special, end=ends, cache_limit=cache_limit)

    def __len__(self) -> int:
        return self._size

    @property
    def mask_words(self) -> int:
        """Words of a mask: ``ceil(len(vocabulary) / 32)``."""
        return (len(self) + 31) // 32

    def bytes_of(self, token: int) -> bytes:
        """The bytes of a token. Raises IndexError outside the vocabulary, and TypeError for other than an integer."""
        try:
            return self._native.bytes_of(token)
        except (TypeError, IndexError):
            raise self._outside(token, IndexError) from None

    def _outside(self, token: object, error: type[T], more: str = "") -> T | TypeError:
        """Return the error for a token that the vocabulary does not have, or that is no integer."""
        if not checks.is_integer(token):
            return checks.wrong("token", f"a token id (an integer between 0 and {len(self) - 1})", token)
        return error(f"token {checks.described(token)} is outside the vocabulary of {len(self)}{more}")

    def __repr__(self) -> str:
        return f"Vocabulary({len(self)} tokens, end={list(self.end_ids)})"


def _joined(tokens: object) -> tuple[bytes, npt.NDArray[np.uint64]]:
    """Return the bytes of tokens in one buffer, and the offsets in it. Raises TypeError, ValueError for a buffer."""
    if isinstance(tokens, (bytes, bytearray, memoryview)):
        raise ValueError(
            "tokens must be a sequence of bytes, or one buffer together with offsets; offsets are missing"
        )
    parts = [*checks.items("tokens", tokens, "bytes")]
    if set(map(type, parts)) - {bytes}:
        parts = [checks.octets(f"tokens[{i}]", part) for i, part in enumerate(parts)]
    offsets = np.zeros(len(parts) + 1, np.uint64)
    np.cumsum([len(part) for part in parts], out=offsets[1:])
    return b"".join(parts), offsets


def _flat(tokens: object, offsets: object) -> tuple[bytes, npt.NDArray[np.uint64]]:
    """Return the buffer that holds all tokens, and checked offsets in it. Raises TypeError and ValueError."""
    flat = _joined(tokens)[0] if isinstance(tokens, (list, tuple)) else checks.octets("tokens", tokens)
    try:
        given = np.asarray(offsets)
    except (TypeError, ValueError):
        raise checks.wrong("offsets", "an array of integers with one dimension", offsets) from None
    if given.dtype.kind not in "iu" or given.ndim != 1:
        raise checks.wrong("offsets", "an array of integers with one dimension", offsets)
    if given.size == 0 or int(given[0]) != 0 or int(given[-1]) != len(flat):
        raise ValueError(f"offsets must begin with 0 and end with the length of the buffer, {len(flat)}")
    if bool(np.any(given[1:] < given[:-1])):
        raise ValueError("offsets must not decrease")
    return flat, np.ascontiguousarray(given, np.uint64)


def _ids(name: str, tokens: object, size: int) -> list[int]:
    """Return token ids in order, each once. Raises TypeError, and ValueError for ids outside the vocabulary."""
    out = {
        checks.integer(f"a token of {name}", token, 0, size - 1)
        for token in checks.items(name, tokens, "token ids")
    }
    return sorted(out)
