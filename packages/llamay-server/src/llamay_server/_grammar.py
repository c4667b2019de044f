"""Token constraints by llamay_grammar, compiled once for each text of a schema and vocabulary."""

from __future__ import annotations

from typing import Any

from . import _protocol as p


class Grammars:
    """The constraints of one vocabulary."""

    def __init__(self, tokenizer: Any, vocab_size: int) -> None:
        self._tokenizer, self._vocab_size = tokenizer, vocab_size

    def constraint(self, kind: str, value: Any) -> Any:
        """A fresh constraint. Raises `UnsupportedConstraint` for what cannot be enforced exactly."""
        raise p.UnsupportedConstraint("structured output is not available in this installation")
