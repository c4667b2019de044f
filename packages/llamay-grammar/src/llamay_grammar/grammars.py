"""Compiled grammars, and positions in documents under them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from llamay_grammar import _grammar, checks
from llamay_grammar.errors import RefusedTokenError, RestoreError
from llamay_grammar.recipes import canonical, compiled, read_recipe
from llamay_grammar.serialised import read_grammar, read_position, write_grammar, write_position
from llamay_grammar.vocabulary import Vocabulary

__all__ = ["Grammar", "Matcher", "fill_masks"]


class MaskArray(Protocol):
    """An array that another library can write to: numpy's, torch's, and others that exchange arrays by DLPack."""

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any:
        """Return a capsule with the array's memory, shape, strides and type."""


class Grammar:
    """A compiled grammar over a vocabulary: immutable, shared by threads. The functions ``compile_…`` make them.

    Attributes:
        vocabulary: the vocabulary it was compiled for.
        warnings: the keywords that are not enforced (only in the modes ``"approximate"`` and ``"annotate"``).
        digest: 32 bytes that identify source, options and vocabulary.

    """

    def __init__(self, native: _grammar._Grammar, vocabulary: Vocabulary, recipe: Mapping[str, Any]) -> None:
        if not isinstance(native, _grammar._Grammar):
            raise checks.wrong("native", "what a function such as compile_regex compiles", native)
        self._native = native
        self.vocabulary = checks.instance("vocabulary", vocabulary, Vocabulary)
        self._recipe = dict(recipe)
        self.warnings: tuple[str, ...] = tuple(native.warnings)
        self.digest: bytes = hashlib.sha256(canonical(recipe) + vocabulary.digest).digest()

    def matcher(self) -> Matcher:
        """Return a matcher at the beginning of a document."""
        return Matcher(self)

    def restore(self, data: bytes) -> Matcher:
        """Return the matcher that `Matcher.serialize` wrote. Raises RestoreError, and TypeError for no bytes."""
        matcher = Matcher(self)
        try:
            for token in read_position(checks.octets("data", data), self.digest):
                matcher.accept(token)
        except RefusedTokenError as error:
            raise RestoreError(f"the serialised matcher cannot be at its position: {error}") from None
        return matcher

    def serialize(self) -> bytes:
        """Return the grammar as bytes for `Grammar.deserialize`.

        They hold the sources (documents that a resolver supplied included), not the tables, so they can be read by
        another version and on another machine; compiling again takes well under a millisecond as a rule.
        """
        return write_grammar(canonical(self._recipe), self.vocabulary.digest)

    @staticmethod
    def deserialize(data: bytes, vocabulary: Vocabulary) -> Grammar:
        """Return the grammar that `serialize` wrote. Raises RestoreError, and TypeError for other types."""
        checks.instance("vocabulary", vocabulary, Vocabulary)
        recipe = read_recipe(read_grammar(checks.octets("data", data), vocabulary.digest))
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
        if native is None:
            native = _grammar._Matcher(checks.instance("grammar", grammar, Grammar)._native)
        self.grammar = grammar
        self._native = native

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary that the grammar was compiled for."""
        return self.grammar.vocabulary

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
        try:
            self._native.fill_mask(out)
        except TypeError as error:
            raise TypeError(f"{error}, not {checks.described(out)}") from None

    def fill_pointer(self, address: int) -> None:
        """As `fill_mask`, at an address in memory with room for `Vocabulary.mask_words` words.

        Raises TypeError for other than an integer, and ValueError for one that is no address.
        """
        if type(address) is not int or not 0 < address <= 0xFFFFFFFFFFFFFFFF:
            address = checks.integer("address", address, 1, checks.UINT64)
        self._native.fill_pointer(address)

    def mask(self) -> npt.NDArray[np.uint32]:
        """Return a fresh mask."""
        out = np.empty(self.grammar.vocabulary.mask_words, np.uint32)
        self._native.fill_mask(out)
        return out

    def allows(self, token: int) -> bool:
        """Whether one token may come next. Does not build a mask.

        Raises TypeError for other than an integer, and ValueError for a token outside the vocabulary.
        """
        try:
            allowed = self._native.allows(token)
        except TypeError:
            raise self.grammar.vocabulary._outside(token, ValueError) from None
        if not allowed and token >= self.grammar.vocabulary._size:
            raise self.grammar.vocabulary._outside(token, ValueError)
        return allowed

    def accept(self, token: int) -> None:
        """Move past a token.

        Raises:
            RefusedTokenError: naming the token, where the document stands and what was expected; nothing has changed.
            TypeError: for other than an integer.

        """
        # The native method checks types already: a check before it would cost every token.
        try:
            self._native.accept(token)
        except TypeError:
            more = f" after {len(self)} tokens; expected {self.expected()}"
            raise self.grammar.vocabulary._outside(token, RefusedTokenError, more) from None

    def rollback(self, n: int) -> None:
        """Take back the last n tokens.

        Raises:
            IndexError: fewer were accepted.
            TypeError: for other than an integer.
            ValueError: for a negative one.

        """
        try:
            self._native.rollback(n)
        except TypeError:
            if checks.is_integer(n) and n > 0:
                raise IndexError(
                    f"cannot roll back {checks.described(n)} tokens: only {len(self)} were accepted"
                ) from None
            raise checks.integer_error("n", n, 0, len(self)) from None

    def fork(self) -> Matcher:
        """Return an independent matcher at the same position, in constant time."""
        return Matcher(self.grammar, self._native.fork())

    def forced_tokens(self, limit: int = 64) -> list[int]:
        """Return the tokens that come next whatever the model says: each is the only one its mask allows.

        They are not accepted. Taking them without asking the model changes nothing that it could have said. At most
        `limit` are returned, an integer of 32 bits: TypeError and ValueError say what else was given.
        """
        try:
            return self._native.forced(limit)
        except TypeError:
            raise checks.integer_error("limit", limit) from None

    def forced_bytes(self, limit: int = 4096) -> bytes:
        """Return the text that comes next in every valid document.

        It may be tokenized in several ways, between which the model chooses under the mask; an engine that always
        uses its tokenizer's way for it may prefill it, all but the last token, which what follows may still change.
        `limit` as for `forced_tokens`, in bytes.
        """
        try:
            return self._native.forced_bytes(limit)
        except TypeError:
            raise checks.integer_error("limit", limit) from None

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
        TypeError: for any other array, and for a matcher of another type; nothing was written.
        ValueError: for an array with too few rows or words.

    """
    try:
        rows = list(matchers)
    except TypeError:
        raise checks.wrong("matchers", "a sequence of llamay_grammar.Matcher", matchers) from None
    try:
        _grammar._fill_masks([m._native for m in rows], out)
    except (TypeError, AttributeError) as error:
        for i, each in enumerate(rows):
            checks.instance(f"matchers[{i}]", each, Matcher)
        raise TypeError(f"{error}, not {checks.described(out)}") from None
