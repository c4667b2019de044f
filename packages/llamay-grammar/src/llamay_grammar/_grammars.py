"""Compiled grammars, and positions in documents under them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from . import _grammar
from ._recipes import canonical, compiled
from ._serialised import read_grammar, read_position, write_grammar, write_position
from ._vocabulary import Vocabulary

__all__ = ["Grammar", "Matcher", "fill_masks"]


class MaskArray(Protocol):
    """An array that another library can write to: numpy's, torch's, and others that exchange arrays by DLPack."""

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any:
        """Return a capsule with the array's memory, shape, strides and type."""


class Grammar:
    """A compiled grammar over a vocabulary: immutable, shared by threads.

    Attributes:
        vocabulary: the vocabulary it was compiled for.
        warnings: the keywords that are not enforced (only in the modes ``"approximate"`` and ``"annotate"``).
        digest: 32 bytes that identify source, options and vocabulary.

    """

    def __init__(self, native: _grammar._Grammar, vocabulary: Vocabulary, recipe: Mapping[str, Any]) -> None:
        self._native = native
        self.vocabulary = vocabulary
        self._recipe = dict(recipe)
        self.warnings: tuple[str, ...] = tuple(native.warnings)
        self.digest: bytes = hashlib.sha256(canonical(recipe) + vocabulary.digest).digest()

    def matcher(self) -> Matcher:
        """Return a matcher at the beginning of a document."""
        return Matcher(self)

    def restore(self, data: bytes) -> Matcher:
        """Return the matcher that `Matcher.serialize` wrote. Raises RestoreError."""
        matcher = Matcher(self)
        for token in read_position(data, self.digest):
            matcher.accept(token)
        return matcher

    def serialize(self) -> bytes:
        """Return the grammar as bytes for `Grammar.deserialize`.

        They hold the sources (documents that a resolver supplied included), not the tables, so they can be read by
        another version and on another machine; compiling again takes well under a millisecond as a rule.
        """
        return write_grammar(canonical(self._recipe), self.vocabulary.digest)

    @staticmethod
    def deserialize(data: bytes, vocabulary: Vocabulary) -> Grammar:
        """Return the grammar that `serialize` wrote. Raises RestoreError."""
        recipe = json.loads(read_grammar(data, vocabulary.digest))
        return Grammar(compiled(recipe, vocabulary, None, None), vocabulary, recipe)

    def __repr__(self) -> str:
        return f"Grammar({self._recipe['kind']}, {self._native.nodes} values, {len(self.vocabulary)} tokens)"


class Matcher:
    """A document being written under a grammar. Made by `Grammar.matcher`; satisfies `TokenConstraint`.

    Forking and rolling back cost the same wherever the document stands. A matcher is used by one thread at a time;
    forks of it by others are fine.
    """

    __slots__ = ("_native", "grammar")

    def __init__(self, grammar: Grammar, native: _grammar._Matcher | None = None) -> None:
        self.grammar = grammar
        self._native = _grammar._Matcher(grammar._native) if native is None else native

    def fill_mask(self, out: MaskArray) -> None:
        """Write the mask of the tokens that may come next.

        Args:
            out: a writable, one-dimensional array of ``uint32`` or ``int32``, of numpy, torch or another library with
                DLPack, at least `Vocabulary.mask_words` long; it may be strided. Token ``t`` is bit ``t % 32`` of word
                ``t // 32``; words beyond the vocabulary are cleared. The GIL is released meanwhile.

        Raises:
            TypeError: for any other array; nothing was written.
            ValueError: for one that is too short.

        """
        self._native.fill_mask(out)

    def fill_pointer(self, address: int) -> None:
        """As `fill_mask`, at an address in memory with room for `Vocabulary.mask_words` words."""
        self._native.fill_pointer(address)

    def mask(self) -> npt.NDArray[np.uint32]:
        """Return a fresh mask."""
        out = np.empty(self.grammar.vocabulary.mask_words, np.uint32)
        self._native.fill_mask(out)
        return out

    def allows(self, token: int) -> bool:
        """Whether one token may come next. Does not build a mask."""
        return bool(self._native.allows(token))

    def accept(self, token: int) -> None:
        """Move past a token.

        Raises:
            RefusedTokenError: naming the token, where the document stands and what was expected; nothing has changed.

        """
        self._native.accept(token)

    def rollback(self, n: int) -> None:
        """Take back the last n tokens. Raises IndexError when fewer were accepted."""
        self._native.rollback(n)

    def fork(self) -> Matcher:
        """Return an independent matcher at the same position, in constant time."""
        return Matcher(self.grammar, self._native.fork())

    def forced_tokens(self, limit: int = 64) -> list[int]:
        """Return the tokens that come next whatever the model says: each is the only one its mask allows.

        They are not accepted. Taking them without asking the model changes nothing that it could have said.
        """
        return list(self._native.forced(limit))

    def forced_bytes(self, limit: int = 4096) -> bytes:
        """Return the text that comes next in every valid document.

        It may be tokenized in several ways, between which the model chooses under the mask; an engine that always
        uses its tokenizer's way for it may prefill it, all but the last token, which what follows may still change.
        """
        return bytes(self._native.forced_bytes(limit))

    @property
    def is_complete(self) -> bool:
        """Whether the document may end here: then, and only then, the end-of-sequence tokens are allowed."""
        return bool(self._native.complete)

    @property
    def has_ended(self) -> bool:
        """Whether an end-of-sequence token was accepted."""
        return bool(self._native.ended)

    @property
    def tokens(self) -> list[int]:
        """The tokens accepted so far."""
        return list(self._native.tokens())

    def __len__(self) -> int:
        return int(self._native.length)

    def __bool__(self) -> bool:
        return True

    def expected(self) -> str:
        """Return the bytes and tokens that may come next, for messages."""
        return str(self._native.expected())

    def serialize(self) -> bytes:
        """Return the position as bytes, for `Grammar.restore`: the grammar's identity and the tokens, checksummed."""
        return write_position(self.tokens, self.grammar.digest)

    def __llamay_token_constraint__(self) -> object:
        """Return the capsule of ``llamay/token_constraint.h``. It shares this matcher's position."""
        return self._native.constraint()

    def __repr__(self) -> str:
        state = "ended" if self.has_ended else "complete" if self.is_complete else "open"
        return f"Matcher({len(self)} tokens, {state})"


def fill_masks(matchers: Sequence[Matcher], out: MaskArray) -> None:
    """Fill one row of `out` per matcher in one call, without the GIL.

    Args:
        matchers: distinct or not; of any grammars over vocabularies that fit the rows.
        out: as for `Matcher.fill_mask`, with the shape (rows >= len(matchers), words).

    Raises:
        TypeError: for any other array; nothing was written.
        ValueError: for one with too few rows or words.

    """
    _grammar._fill_masks([m._native for m in matchers], out)
