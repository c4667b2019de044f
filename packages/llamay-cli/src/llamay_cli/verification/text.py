"""The text that models are checked and measured on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import WrongUsageError

if TYPE_CHECKING:
    from llamay_models import Model

TEXT = """The engine reads a text, and what it computes is kept. Someone asks it to go on, and it goes on;
someone else asks for another end of the same story, and it takes a branch, and neither knows of the other. At
night the lamp is put out and everything is written to a file: 1,048,576 numbers, none rounded on the way. In
the morning, in another house, the file is opened, and the story goes on in the middle of the sentence.
"""


def text_tokens(model: Model, asked: int | None) -> list[int]:
    """Return so many tokens of text, by default past the sliding window where there is one."""
    window = max((group.window for group in model.pool.layout.groups), default=0)
    wanted = asked or max(160, window + 96 if window else 0)
    limit = model.context_size - 64
    if asked and asked > limit:
        raise WrongUsageError(f"--tokens {asked} leaves no room in a context of {model.context_size}")
    wanted = max(2, min(wanted, limit))
    if model.tokenizer is None:
        return [(i * 7919 + 13) % model.vocab_size for i in range(wanted)]
    tokens: list[int] = model.encode(TEXT)
    while len(tokens) < wanted:
        tokens += model.encode(TEXT, add_special=False)
    return tokens[:wanted]
