"""`Vocabulary`: a tokenizer, as the engine uses it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from llamay_models.engine.decoding.text_stream import StreamDecoder


class Vocabulary(Protocol):
    """A tokenizer, as the engine uses it."""

    @property
    def eog(self) -> frozenset[int]:
        """The tokens that end a text."""

    @property
    def vocab_size(self) -> int:
        """The number of tokens."""

    def is_special(self, token: int) -> bool:
        """Return whether a token is a control token."""

    def stream_decoder(self, *, skip_special: bool = False, keep: Collection[int] = ()) -> StreamDecoder:
        """Return a decoder that leaves out control tokens where `skip_special` says so, except those in `keep`."""

    def token_bytes(self, token: int) -> bytes:
        """Return the bytes that a token stands for."""

    def encode(
        self, text: str | bytes, *, add_special: bool = True, parse_special: bool = False
    ) -> Sequence[int]:
        """Return the token ids of a text."""
