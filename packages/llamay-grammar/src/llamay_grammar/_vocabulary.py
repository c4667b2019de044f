"""The tokens of a model, as the compiler needs them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _grammar
from ._recent import Recent
from ._tokenizer_json import read_tokenizer_json

__all__ = ["Vocabulary"]

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
        if offsets is None:
            if isinstance(tokens, (bytes, bytearray, str)):
                raise ValueError("tokens must be a sequence of bytes, or a flat buffer together with offsets")
            parts = [bytes(t) for t in tokens]
            flat = b"".join(parts)
            off = np.zeros(len(parts) + 1, np.uint64)
            np.cumsum([len(p) for p in parts], out=off[1:])
        else:
            flat = tokens if isinstance(tokens, bytes) else b"".join(bytes(t) for t in tokens)
            off = np.ascontiguousarray(offsets, np.uint64)
            if off.ndim != 1 or off.size == 0 or int(off[0]) != 0 or int(off[-1]) != len(flat):
                raise ValueError("offsets must begin with 0 and end with the length of the buffer")
            if bool(np.any(off[1:] < off[:-1])):
                raise ValueError("offsets must not decrease")
        size = off.size - 1
        if size == 0 or size > 1 << 24:
            raise ValueError(f"a vocabulary of {size} tokens")
        if int(np.max(off[1:] - off[:-1])) > _MAX_TOKEN_BYTES:
            raise ValueError(f"a token of more than {_MAX_TOKEN_BYTES} bytes")
        names: dict[str, int] = {}
        if isinstance(special, Mapping):
            names = {name: int(i) for i, name in special.items() if name}
        special_ids = sorted({int(i) for i in special})
        end_ids = sorted({int(i) for i in end})
        for i in (*special_ids, *end_ids):
            if not 0 <= i < size:
                raise ValueError(f"special token {i} is outside the vocabulary of {size}")
        self._native = _grammar._make_vocabulary(flat, off, special_ids, end_ids)
        self._native.cache_limit = cache_limit
        self.special_names: Mapping[str, int] = names
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
            ValueError: it is no such file, a name of `end` is not in it, or `size` is too small.

        """
        tokens, special = read_tokenizer_json(source)
        by_name = {text.decode(errors="replace"): n for n, text in enumerate(tokens)}
        by_name |= {name: token for token, name in special.items() if name}
        ends = []
        for each in end:
            if isinstance(each, str) and each not in by_name:
                raise ValueError(f"there is no token called {each!r}")
            ends.append(by_name[each] if isinstance(each, str) else int(each))
        if size is not None:
            if size < len(tokens):
                raise ValueError(f"there are {len(tokens)} tokens, more than a size of {size}")
            special |= dict.fromkeys(range(len(tokens), size), "")
            tokens += [b""] * (size - len(tokens))
        return cls(tokens, special=special, end=ends, cache_limit=cache_limit)

    def __len__(self) -> int:
        return int(self._native.size)

    @property
    def mask_words(self) -> int:
        """Words of a mask: ``ceil(len(vocabulary) / 32)``."""
        return (len(self) + 31) // 32

    def bytes_of(self, token: int) -> bytes:
        """The bytes of a token. Raises IndexError outside the vocabulary."""
        return bytes(self._native.bytes_of(token))

    def __repr__(self) -> str:
        return f"Vocabulary({len(self)} tokens, end={list(self.end_ids)})"
