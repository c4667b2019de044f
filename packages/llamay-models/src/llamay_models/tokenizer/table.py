"""The tokens of a model as a list, for a grammar compiler."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple, Protocol


class TableTokenizer(Protocol):
    """A tokenizer, as the table is made of it; `Tokenizer` is one."""

    @property
    def vocab_size(self) -> int:
        """The number of tokens."""

    @property
    def eog(self) -> Collection[int]:
        """The ids of the tokens that end a generation."""

    def token_bytes(self, token: int, /) -> bytes:
        """Return the bytes that a token stands for."""

    def token_text(self, token: int, /) -> str:
        """Return the token as the vocabulary spells it."""

    def is_special(self, token: int, /) -> bool:
        """Return whether a token is a control token."""


class TokenTable(NamedTuple):
    """Every token in order of its id, for ``llamay_grammar.Vocabulary(tokens, special=special, end=end)``.

    Attributes:
        tokens: the bytes that each stands for; none for outputs of the model that are no token.
        special: the names of the control tokens by id; "" for outputs that are no token, which nothing may choose.
        end: the tokens that end a text.

    """

    tokens: list[bytes]
    special: dict[int, str]
    end: tuple[int, ...]


def token_table(tokenizer: TableTokenizer, size: int | None = None) -> TokenTable:
    """Return the tokens of a model with `size` outputs (`Model.vocab_size`), which may be more than it has tokens."""
    known = range(tokenizer.vocab_size)
    spare = range(tokenizer.vocab_size, tokenizer.vocab_size if size is None else size)
    return TokenTable(
        [*map(tokenizer.token_bytes, known), *(b"" for _ in spare)],
        {t: tokenizer.token_text(t) for t in known if tokenizer.is_special(t)} | dict.fromkeys(spare, ""),
        tuple(tokenizer.eog),
    )
