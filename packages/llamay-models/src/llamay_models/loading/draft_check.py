"""Whether a model may guess for another: its tokens must mean the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llamay_models.errors import ModelError

if TYPE_CHECKING:
    from llamay_models.model import Model
    from llamay_models.tokenizer import Tokenizer

# Files of one family pad their vocabularies to different sizes; llama.cpp allows so much.
_PADDING = 128


def check_draft(words: Tokenizer | None, draft: Model, vocab: int) -> None:
    """Raise ModelError, naming the first difference, unless a draft's vocabulary is that of `words`.

    A guess of another vocabulary would never be right, so it would only cost time.
    """
    if not draft.writes:
        raise ModelError(f"{draft.name} cannot guess for this model: it is an encoder and writes no text")
    other = draft.tokenizer
    if words is None or other is None or words.digest() == other.digest():
        return
    if abs(draft.vocab_size - vocab) > _PADDING or words.kind != other.kind:
        raise ModelError(
            f"{draft.name} cannot guess for this model: its vocabulary is {other.kind} of {draft.vocab_size} "
            f"tokens, this model's {words.kind} of {vocab}; use a draft of the same family"
        )
    for token in range(min(words.vocab_size, other.vocab_size)):
        if words.token_bytes(token) != other.token_bytes(token):
            raise ModelError(
                f"{draft.name} cannot guess for this model: token {token} is {other.token_text(token)!r} in its "
                f"vocabulary, but {words.token_text(token)!r} in this one's; use a draft of the same family"
            )
