"""`TextPass`: one text that is computed for its outputs, not to be continued."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import llamay_kv as kv
from llamay_models.arguments import text
from llamay_models.backend import RowInputs
from llamay_models.errors import PromptError
from llamay_models.plan import Floats

PassKind = Literal["hidden", "logits", "rows", "pooled"]
"""The outputs of a pass: of a decoder the hidden state or the logits of each row; of an encoder, whose texts are one
step each, the hidden state of each row, or one for the text."""


class TextPass:
    """One text: its tokens, and the function that takes its outputs.

    `on_outputs(begin, rows)` is called with the outputs of tokens begin, begin + 1, ... from number `first` on, in
    order, on the engine's thread. The function has to copy the rows that it keeps. `first` advances with the outputs
    that were handed over. The tokens before `first` need not be computed where their K/V is known: from texts of the
    `tenant`, or of no tenant; with a tenant of None nothing is reused or kept. `inputs` are the inputs of the rows
    other than tokens, of a text that is one step.
    """

    __slots__ = (
        "abandoned",
        "context",
        "done",
        "error",
        "first",
        "inputs",
        "kind",
        "on_outputs",
        "tenant",
        "tokens",
    )

    def __init__(
        self,
        kind: PassKind,
        tokens: list[int],
        first: int,
        on_outputs: Callable[[int, Floats], None],
        tenant: str | None = "",
        inputs: RowInputs | None = None,
    ) -> None:
        self.kind = kind
        self.inputs = inputs
        self.tokens = tokens
        self.first = first
        self.on_outputs = on_outputs
        self.tenant = None if tenant is None else text("tenant", tenant, error=PromptError)
        self.context: kv.Context | None = None
        self.error: Exception | None = None
        self.done = False
        self.abandoned = False

    @property
    def single_step(self) -> bool:
        """Whether the text must be one step, and nothing of it is kept."""
        return self.kind in ("rows", "pooled")

    def end(self, error: Exception | None = None) -> None:
        """Mark the pass as done, and give its pages back."""
        self.release_pages()
        self.error, self.done = error, True

    def release_pages(self) -> None:
        """Give the pages back. The pass can go on later from the prefix that is known then."""
        if self.context is not None:
            self.context.close()
            self.context = None
