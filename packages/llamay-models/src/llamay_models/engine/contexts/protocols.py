"""`Host`: what a context asks of the model that it belongs to."""

from __future__ import annotations

from collections.abc import Mapping, MutableSet, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import llamay_kv as kv
from llamay_models.engine.requests.token_constraint import TokenConstraint

if TYPE_CHECKING:
    from llamay_models.engine.contexts.context import Context
    from llamay_models.engine.engine import Engine


class Host(Protocol):
    """A model, as its contexts see it."""

    name: str
    pool: kv.Pool
    engine: Engine
    context_size: int

    @property
    def _contexts(self) -> MutableSet[Context]: ...

    @property
    def tokenizer(self) -> Any:
        """The tokenizer; None in a model without one."""

    @property
    def chat_template(self) -> Any:
        """The chat template; None in a model without one."""

    @property
    def vocab_size(self) -> int:
        """The number of tokens."""

    @property
    def identity(self) -> kv.Identity:
        """All that the model's K/V depends on."""

    def encode(
        self, text: str, *, add_special: bool = True, parse_special: bool = False, continuation: bool = False
    ) -> list[int]:
        """Return the token ids of a text."""

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of token ids."""

    def constraint(
        self,
        *,
        schema: Mapping[str, Any] | bool | str | None = None,
        regex: str | None = None,
        grammar: str | None = None,
    ) -> TokenConstraint:
        """Return a constraint that keeps a text to a JSON schema, a regex or a grammar."""
