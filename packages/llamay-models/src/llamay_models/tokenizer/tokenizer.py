"""Text to token ids and back."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import _native
from .._native import StreamDecoder as StreamDecoder
from ..arguments import flag, whole
from .special_tokens import CONTROL, UNKNOWN, USER_DEFINED, SpecialTokens

_MOST_BYTES = (1 << 32) - 1


class Tokenizer:
    """The tokenizer of a model file; immutable, usable from any thread. Make one with `from_gguf`.

    Attributes:
        kind: "bpe", "spm", "wpm", "ugm" or "rwkv".
        pre: the name of the pre-tokenizer, where the kind has one.
        bos: id of the token that begins a text, or None; likewise eos (ends it), eot (ends a turn), eom (ends
            a message that waits for a tool), pad, unk, sep, cls and mask.
        eog: every token that ends generation.
        roles: all special tokens by role, also those for fill-in-the-middle: "fill_prefix", "fill_suffix", …
        adds_bos: whether `encode` puts `prefix` before a text; likewise adds_eos.

    """

    def __init__(
        self,
        native: _native.Tokenizer,
        *,
        kind: str,
        pre: str,
        special: SpecialTokens,
        prefix: Sequence[int],
        suffix: Sequence[int],
        strips_space: bool,
        digest: str,
    ) -> None:
        self._native = native
        self.kind = kind
        self.pre = pre
        self.roles = dict(special.ids)
        self.eog = special.eog
        self._prefix = list(prefix)
        self._suffix = list(suffix)
        self._strips_space = strips_space
        self._digest = digest
        self.bos = special.ids.get("bos")
        self.eos = special.ids.get("eos")
        self.eot = special.ids.get("eot")
        self.eom = special.ids.get("eom")
        self.pad = special.ids.get("pad")
        self.unk = special.ids.get("unk")
        self.sep = special.ids.get("sep")
        self.cls = special.ids.get("cls")
        self.mask = special.ids.get("mask")

    def __repr__(self) -> str:
        return f"<Tokenizer {self.kind}{' ' + self.pre if self.pre else ''}, {self.vocab_size} tokens>"

    @property
    def vocab_size(self) -> int:
        """The number of tokens."""
        return len(self._native)

    @property
    def adds_bos(self) -> bool:
        """Whether `encode` puts a token before a text."""
        return bool(self._prefix)

    @property
    def adds_eos(self) -> bool:
        """Whether `encode` puts a token after a text."""
        return bool(self._suffix)

    def encode(
        self,
        text: str | bytes,
        *,
        add_special: bool = True,
        parse_special: bool = False,
        continuation: bool = False,
    ) -> list[int]:
        """Return the ids of a text; bytes need not be UTF-8.

        Args:
            text: the text to encode.
            add_special: put the tokens before and after it that the file asks for (BOS, EOS, …).
            parse_special: read control tokens such as <|im_start|> that the text spells out as these tokens.
                Leave it off for text from outside. Tokens marked as user-defined count either way.
            continuation: the text continues other text. Where a vocabulary has a space put before every
                text, none is put before this one; the tokens before a text are left out.

        Raises:
            TypeError: an argument is of another type.
            UnicodeEncodeError: a str holds lone surrogates.
            ValueError: the text is longer than 1 GiB.

        """
        _check_text(text)
        _check_flags(add_special=add_special, parse_special=parse_special, continuation=continuation)
        ids = self._native.encode(text, bool(parse_special), bool(continuation))
        return [*(() if continuation else self._prefix), *ids, *self._suffix] if add_special else ids

    def encode_array(
        self, text: str | bytes, *, add_special: bool = True, parse_special: bool = False
    ) -> NDArray[np.int32]:
        """Return the ids of a text as an array of shape (tokens,); see `encode`."""
        _check_text(text)
        _check_flags(add_special=add_special, parse_special=parse_special)
        ids = self._native.encode_array(text, bool(parse_special))
        if not add_special or not (self._prefix or self._suffix):
            return ids
        return np.concatenate([np.array(self._prefix, np.int32), ids, np.array(self._suffix, np.int32)])

    def encode_trusting(
        self, text: bytes, spans: Sequence[tuple[int, int]], *, add_special: bool = False
    ) -> list[int]:
        """Return the ids of a text in which control tokens count only inside the byte spans [begin, end).

        The text is encoded as one: merges cross the edges of spans as they would without them.

        Args:
            text: UTF-8.
            spans: in increasing order, not overlapping.
            add_special: as in `encode`.

        Raises:
            TypeError: an argument is of another type.
            ValueError: the spans are not in order, or the text is longer than 1 GiB.

        """
        if not isinstance(text, bytes):
            raise TypeError(f"text must be bytes, not {_kind(text)}")
        _check_flags(add_special=add_special)
        table = _span_table(spans)
        ids = self._native.encode_trusting(text, table)
        return [*self._prefix, *ids, *self._suffix] if add_special else ids

    def decode(self, ids: Iterable[int], *, skip_special: bool = False, continuation: bool = False) -> str:
        """Return the text of tokens; bytes that are no characters become U+FFFD.

        Args:
            ids: the tokens.
            skip_special: leave out control tokens.
            continuation: the tokens continue others. Where a vocabulary has a space put before every text,
                that space is dropped at the start of a whole text, but kept in a continuation.

        Raises:
            TypeError: `ids` holds something that is no whole number, or another argument is of another type.
            IndexError: an id is not in the vocabulary.

        """
        return self.decode_bytes(ids, skip_special=skip_special, continuation=continuation).decode(
            "utf-8", "replace"
        )

    def decode_bytes(
        self, ids: Iterable[int], *, skip_special: bool = False, continuation: bool = False
    ) -> bytes:
        """Return the bytes of tokens; see `decode`."""
        _check_flags(skip_special=skip_special, continuation=continuation)
        flat = np.ascontiguousarray(self._known("ids", ids), np.int32)
        return self._native.decode(flat, bool(skip_special), self._strips_space and not continuation)

    def token_bytes(self, token: int) -> bytes:
        """Return the bytes that a token stands for in a text; of a control token, its name."""
        try:
            return self._native.token_bytes(token)
        except TypeError:
            return self._native.token_bytes(self._one(token))

    def token_text(self, token: int) -> str:
        """Return a token as it is written in the file, for showing to people."""
        try:
            text = self._native.token_text(token)
        except TypeError:
            text = self._native.token_text(self._one(token))
        return text.decode("utf-8", "replace")

    def find(self, text: str) -> int | None:
        """Return the token that is written so in the file, or None."""
        if not isinstance(text, str):
            raise TypeError(f"text must be a str, not {_kind(text)}")
        text.encode()  # raises UnicodeEncodeError for lone surrogates
        return self._native.find(text)

    def is_special(self, token: int) -> bool:
        """Return whether a token is a control token (or stands for the unknown), so no part of a text."""
        return bool(self._attributes(token) & (CONTROL | UNKNOWN))

    def is_user_defined(self, token: int) -> bool:
        """Return whether a token counts wherever a text spells it, as <tool_call> often does."""
        return bool(self._attributes(token) & USER_DEFINED)

    def stream_decoder(self, *, skip_special: bool = False, keep: Collection[int] = ()) -> StreamDecoder:
        """Return a decoder for tokens that come one after the other."""
        _check_flags(skip_special=skip_special)
        return StreamDecoder(self._native, bool(skip_special), self._known("keep", keep).tolist())

    def digest(self) -> str:
        """Return a SHA-256, in hex, over everything in the file that decides about ids."""
        return self._digest

    def _attributes(self, token: int) -> int:
        try:
            return self._native.attributes(token)
        except TypeError:
            return self._native.attributes(self._one(token))

    def _one(self, token: int) -> int:
        """Return a token's id. Raises TypeError for what is no whole number, IndexError outside the vocabulary."""
        token = whole("token", token, error=TypeError)
        if not 0 <= token < len(self._native):
            raise IndexError(f"token {token} is not in the vocabulary of {self.vocab_size}")
        return token

    def _known(self, name: str, ids: Iterable[int]) -> NDArray[Any]:
        """Return ids as an array of shape (n,). Raises TypeError and IndexError as `_one` does."""
        if isinstance(ids, str | bytes) or not isinstance(ids, Iterable):
            raise TypeError(f"{name} must be token ids, not {_kind(ids)}")
        array = ids if isinstance(ids, np.ndarray) else _array(list(ids))
        if array.ndim != 1:
            raise TypeError(f"{name} must be token ids in one dimension, not in {array.ndim}")
        if not array.size:
            return array.astype(np.int32)
        if array.dtype.kind not in "iu":
            for token in array.tolist():
                self._one(token)
        elif array.min() < 0 or array.max() >= self.vocab_size:
            self._one(int(array[(array < 0) | (array >= self.vocab_size)][0]))
        return array


def _array(ids: list[Any]) -> NDArray[Any]:
    """Return a list as numpy has it where all are whole numbers of 64 bits, else with its objects as they are."""
    if set(map(type, ids)) <= {int} or all(isinstance(i, Integral) and not isinstance(i, bool) for i in ids):
        try:
            return np.array(ids, np.int64)
        except OverflowError:
            pass
    array = np.empty(len(ids), object)
    array[:] = ids
    return array


def _check_text(text: object) -> None:
    if not isinstance(text, str | bytes):
        raise TypeError(f"text must be a str or bytes, not {_kind(text)}")


def _check_flags(**flags: object) -> None:
    for name, value in flags.items():
        flag(name, value, error=TypeError)


def _kind(value: object) -> str:
    return "None" if value is None else f"of type {type(value).__name__}"


def _span_table(spans: Sequence[tuple[int, int]]) -> NDArray[np.uint32]:
    """Return spans as an array of shape (n, 2)."""
    what = "spans must be pairs of bytes [begin, end), in increasing order and not overlapping"
    end = 0
    for span in spans:
        try:
            first, last = (whole(what, byte, 0, _MOST_BYTES, error=ValueError) for byte in span)
        except (TypeError, ValueError):
            raise ValueError(f"{what}; {span!r} is none") from None
        if not end <= first <= last:
            raise ValueError(f"{what}; {span!r} is none, or comes too late")
        end = last
    return np.array(spans, np.uint32).reshape(-1, 2)


def digest_of(fields: Iterable[tuple[str, Any]]) -> str:
    """Hash tagged fields, each with its length, so that no two lists of fields look the same."""
    total = hashlib.sha256()
    for tag, value in fields:
        raw = value.data if isinstance(value, np.ndarray) else repr(value).encode()
        size = value.nbytes if isinstance(value, np.ndarray) else len(raw)
        total.update(f"{tag}:{size}:".encode())
        total.update(raw)
    return total.hexdigest()
