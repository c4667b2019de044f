"""`VocabularyCheck`: refuses constraints that were compiled for other tokens than the model's."""

from __future__ import annotations

import contextlib
import weakref
from typing import Any

from llamay_models.engine.decoding.vocabulary import Vocabulary
from llamay_models.engine.requests.token_constraint import TokenConstraint
from llamay_models.errors import ConstraintError


class VocabularyCheck:
    """Compares the vocabulary that a constraint was compiled for with the model's.

    A constraint tells its vocabulary by the attribute `vocabulary`, which has a length and `bytes_of(token)`, as those
    of llamay_grammar have; one without the attribute is taken as it is. A vocabulary is compared when a constraint
    first brings it, in time O(tokens), and remembered as long as it lives.
    """

    def __init__(self, words: Vocabulary | None, size: int) -> None:
        self._words = words
        self._size = size
        self._equal: weakref.WeakSet[Any] = weakref.WeakSet()

    def check(self, constraint: TokenConstraint) -> None:
        """Raise ConstraintError if the constraint is one of another vocabulary. Any thread may call."""
        vocabulary = getattr(constraint, "vocabulary", None)
        if vocabulary is None or not hasattr(vocabulary, "bytes_of") or self._known(vocabulary):
            return
        if len(vocabulary) != self._size:
            raise ConstraintError(
                f"the constraint was compiled for a vocabulary of {len(vocabulary)} tokens, but this model has "
                f"{self._size}; compile it for this model"
            )
        if self._words is not None and (token := self._difference(self._words, vocabulary)) is not None:
            raise ConstraintError(
                f"the constraint was compiled for another vocabulary: token {token} is "
                f"{vocabulary.bytes_of(token)!r} there, and {self._words.token_bytes(token)!r} in this model; "
                f"compile it for this model"
            )
        with contextlib.suppress(TypeError):  # one that cannot be remembered is compared again
            self._equal.add(vocabulary)

    def _known(self, vocabulary: Any) -> bool:
        try:
            return vocabulary in self._equal
        except TypeError:
            return False

    def _difference(self, words: Vocabulary, vocabulary: Any) -> int | None:
        """Return the first token that stands for other text; None where there is none.

        Control tokens stand for no text, and how their names are kept differs.
        """
        ours, theirs = words.token_bytes, vocabulary.bytes_of
        for token in range(words.vocab_size):
            mine, other = ours(token), theirs(token)
            if mine != other and mine and other and not words.is_special(token):
                return token
        return None
