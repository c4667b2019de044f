"""Text to token ids and back."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import _native
from .._native import StreamDecoder as StreamDecoder
from .special_tokens import CONTROL, UNKNOWN, USER_DEFINED, SpecialTokens


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
            UnicodeEncodeError: a str holds lone surrogates.
            ValueError: the text is longer than 1 GiB.

        """
        ids = self._native.encode(text, parse_special, continuation)
        return [*(() if continuation else self._prefix), *ids, *self._suffix] if add_special else ids

    def encode_array(
        self, text: str | bytes, *, add_special: bool = True, parse_special: bool = False
    ) -> NDArray[np.int32]:
        """Return the ids of a text as an array of shape (tokens,); see `encode`."""
        ids = self._native.encode_array(text, parse_special)
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

        """
        table = np.array(spans, np.uint32).reshape(-1, 2)
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
            IndexError: an id is not in the vocabulary.

        """
        return self.decode_bytes(ids, skip_special=skip_special, continuation=continuation).decode(
            "utf-8", "replace"
        )

    def decode_bytes(
        self, ids: Iterable[int], *, skip_special: bool = False, continuation: bool = False
    ) -> bytes:
        """Return the bytes of tokens; see `decode`."""
        array = ids if isinstance(ids, np.ndarray) else np.array(list(ids), np.int64)
        if array.size and not (array.min() >= 0 and array.max() < self.vocab_size):
            bad = next(int(i) for i in array if not 0 <= i < self.vocab_size)
            raise IndexError(f"token {bad} is not in the vocabulary of {self.vocab_size}")
        flat = np.ascontiguousarray(array, np.int32)
        return self._native.decode(flat, skip_special, self._strips_space and not continuation)

    def token_bytes(self, token: int) -> bytes:
        """Return the bytes that a token stands for in a text; of a control token, its name."""
        return self._native.token_bytes(token)

    def token_text(self, token: int) -> str:
        """Return a token as it is written in the file, for showing to people."""
        return self._native.token_text(token).decode("utf-8", "replace")

    def find(self, text: str) -> int | None:
        """Return the token that is written so in the file, or None."""
        return self._native.find(text)

    def is_special(self, token: int) -> bool:
        """Return whether a token is a control token (or stands for the unknown), so no part of a text."""
        return bool(self._native.attributes(token) & (CONTROL | UNKNOWN))

    def is_user_defined(self, token: int) -> bool:
        """Return whether a token counts wherever a text spells it, as <tool_call> often does."""
        return bool(self._native.attributes(token) & USER_DEFINED)

    def stream_decoder(self, *, skip_special: bool = False, keep: Collection[int] = ()) -> StreamDecoder:
        """Return a decoder for tokens that come one after the other."""
        return StreamDecoder(self._native, skip_special, list(keep))

    def digest(self) -> str:
        """Return a SHA-256, in hex, over everything in the file that decides about ids."""
        return self._digest


def digest_of(fields: Iterable[tuple[str, Any]]) -> str:
    """Hash tagged fields, each with its length, so that no two lists of fields look the same."""
    total = hashlib.sha256()
    for tag, value in fields:
        raw = value.data if isinstance(value, np.ndarray) else repr(value).encode()
        size = value.nbytes if isinstance(value, np.ndarray) else len(raw)
        total.update(f"{tag}:{size}:".encode())
        total.update(raw)
    return total.hexdigest()
