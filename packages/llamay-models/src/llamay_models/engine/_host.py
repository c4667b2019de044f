"""`Host`: what a context asks of the model that it belongs to."""

from __future__ import annotations

from collections.abc import Collection, Mapping, MutableSet, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import llamay_kv as kv
from llamay_models.engine._constraint import TokenConstraint
from llamay_models.engine._text import StreamDecoder

if TYPE_CHECKING:
    from llamay_models.engine._context import Context
    from llamay_models.engine._engine import Engine


class Vocabulary(Protocol):
    """What the engine asks of a tokenizer."""

    @property
    def eog(self) -> frozenset[int]: ...
    def stream_decoder(self, *, skip_special: bool = False, keep: Collection[int] = ()) -> StreamDecoder: ...
    def token_bytes(self, token: int) -> bytes: ...
    def encode(
        self, text: str | bytes, *, add_special: bool = True, parse_special: bool = False
    ) -> Sequence[int]: ...


class Host(Protocol):
    """A model, as its contexts see it."""

    name: str
    pool: kv.Pool
    engine: Engine
    context_size: int

    @property
    def _contexts(self) -> MutableSet[Context]: ...
    @property
    def tokenizer(self) -> Any: ...
    @property
    def chat_template(self) -> Any: ...
    @property
    def vocab_size(self) -> int: ...
    @property
    def identity(self) -> kv.Identity: ...
    def encode(
        self, text: str, *, add_special: bool = True, parse_special: bool = False, continuation: bool = False
    ) -> list[int]: ...
    def decode(self, tokens: Sequence[int]) -> str: ...
    def constraint(
        self,
        *,
        schema: Mapping[str, Any] | bool | str | None = None,
        regex: str | None = None,
        grammar: str | None = None,
    ) -> TokenConstraint: ...
