"""Sequence breakers of DRY: from texts to the sequences of tokens that spell them."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Sequence
from typing import Protocol

_MAX_TAIL = 20  # tokens after the first


class BreakerTokenizer(Protocol):
    """A tokenizer, as sequence breakers use it."""

    def token_bytes(self, token: int) -> bytes:
        """Return the bytes that a token stands for."""

    def encode(
        self, text: str | bytes, *, add_special: bool = True, parse_special: bool = False
    ) -> Sequence[int]:
        """Return the token ids of a text."""


# A vocabulary is listed once, and each breaker looked up in it once, for any number of requests.
_SPELLED: weakref.WeakKeyDictionary[BreakerTokenizer, list[bytes]] = weakref.WeakKeyDictionary()
_FOUND: weakref.WeakKeyDictionary[BreakerTokenizer, dict[str, list[list[int]]]] = weakref.WeakKeyDictionary()
_MAX_FOUND = 256


def token_sequences(tokenizer: BreakerTokenizer, vocab: int, breakers: Sequence[str]) -> list[list[int]]:
    """Return the sequences of tokens that spell a breaker or contain it.

    A token that contains the breaker is a sequence by itself. A token that ends with the beginning of the breaker is a
    sequence together with the tokens of the rest, so that the breaker is found wherever tokens divide it. This follows
    llama.cpp.
    """
    found = _FOUND.setdefault(tokenizer, {})
    out: list[list[int]] = []
    for breaker in breakers:
        if breaker not in found:
            if len(found) >= _MAX_FOUND:
                found.clear()
            found[breaker] = _find(tokenizer, _spelled(tokenizer, vocab), breaker)
        out += found[breaker]
    return out


def _spelled(tokenizer: BreakerTokenizer, vocab: int) -> list[bytes]:
    known = _SPELLED.get(tokenizer)
    if known is None:
        count = min(vocab, getattr(tokenizer, "vocab_size", vocab))
        known = _SPELLED[tokenizer] = [tokenizer.token_bytes(t) for t in range(count)]
    return known


def _find(tokenizer: BreakerTokenizer, spelled: Sequence[bytes], breaker: str) -> list[list[int]]:
    raw = breaker.encode()
    out = [[token] for token, word in enumerate(spelled) if raw in word]
    for begun in range(1, len(raw)):
        rest: str | bytes = raw[begun:]
        with contextlib.suppress(UnicodeDecodeError):
            rest = raw[begun:].decode()
        tail = list(tokenizer.encode(rest, add_special=False, parse_special=False))[:_MAX_TAIL]
        head = raw[:begun]
        out += [
            [token, *tail] for token, word in enumerate(spelled) if word.endswith(head) and raw not in word
        ]
    return out
