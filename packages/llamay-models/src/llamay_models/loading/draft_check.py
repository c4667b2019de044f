"""`check_draft`: a model may draft for another one if its tokens mean the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llamay_models.errors import ModelError

if TYPE_CHECKING:
    from llamay_models.model import Model
    from llamay_models.tokenizer import Tokenizer

# Files of one family pad their vocabularies to different sizes; llama.cpp allows so much.
_PADDING = 128


def check_draft(tokenizer: Tokenizer | None, draft: Model, vocab: int) -> None:
    """Raise ModelError, naming the first difference, unless a draft's vocabulary is that of `tokenizer`.

    A draft in another vocabulary would never be right, so it would only cost time.
    """
    if not draft.writes:
        raise ModelError(f"{draft.name} cannot draft for this model: it is an encoder and writes no text")
    other = draft.tokenizer
    if tokenizer is None or other is None or tokenizer.digest() == other.digest():
        return
    if abs(draft.vocab_size - vocab) > _PADDING or tokenizer.kind != other.kind:
        raise ModelError(
            f"{draft.name} cannot draft for this model: its vocabulary is {other.kind} of {draft.vocab_size} "
            f"tokens, this model's {tokenizer.kind} of {vocab}; use a draft of the same family"
        )
    for token in range(min(tokenizer.vocab_size, other.vocab_size)):
        if tokenizer.token_bytes(token) != other.token_bytes(token):
            raise ModelError(
                f"{draft.name} cannot draft for this model: token {token} is {other.token_text(token)!r} in its "
                f"vocabulary, but {tokenizer.token_text(token)!r} in this one's; use a draft of the same family"
            )
