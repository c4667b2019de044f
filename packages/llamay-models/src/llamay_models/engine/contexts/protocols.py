"""The model of a context, and its engine, as far as the context uses them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableSet, Sequence
from typing import Any, Protocol, TypeVar

import numpy.typing as npt

import llamay_kv as kv
from llamay_models.engine.decoding.constraint_state import ConstraintState
from llamay_models.engine.decoding.sequence import EngineSequence
from llamay_models.engine.requests.channel import Channel
from llamay_models.engine.requests.generation import Generation
from llamay_models.engine.requests.request import Request
from llamay_models.engine.requests.token_constraint import TokenConstraint
from llamay_models.engine.state.context_state import State
from llamay_models.engine.state.vectors import Vectors
from llamay_models.progress import Progress

T = TypeVar("T")


class OpenContext(Protocol):
    """A context, as its model holds on to it."""

    @property
    def closed(self) -> bool:
        """Whether the context gave its pages back."""

    def close(self) -> None:
        """Give the context's pages back."""


class ContextEngine(Protocol):
    """An engine, as the contexts of its model and their branches see it; `Engine` describes each member."""

    @property
    def ctx_size(self) -> int:
        """The most tokens that a context may have."""

    @property
    def closed(self) -> bool:
        """Whether the engine was closed."""

    @property
    def is_current(self) -> bool:
        """Whether the engine's own thread asks."""

    def check_thread(self) -> None:
        """Raise ContextError on the engine's own thread."""

    @property
    def end_tokens(self) -> frozenset[int]:
        """The tokens that end a text."""

    def checked_tokens(self, tokens: Sequence[int]) -> list[int]:
        """Return the tokens as a list of plain integers. Raises PromptError, PromptTooLongError."""

    def vectors(
        self, begin: int, values: npt.ArrayLike, digest: bytes, positions: npt.ArrayLike | None
    ) -> Vectors:
        """Return rows for a context of `begin` tokens that are vectors."""

    def submit(self, request: Request) -> Generation:
        """Queue a generation."""

    def prefill(
        self, state: State, channel: Channel, release: Callable[[], None], progress: Progress | None
    ) -> None:
        """Compute the pending tokens of a context, and the logits after them."""

    def prefill_all(self, sequences: Sequence[EngineSequence]) -> None:
        """Compute the pending tokens of several contexts, in the same steps."""

    def constraint_state(self, constraint: TokenConstraint) -> ConstraintState:
        """Return the state of a constraint at the beginning of a text of this model."""

    def ends(self, tokens: Sequence[int]) -> bool:
        """Return whether the last of these tokens ends a text."""

    def call(self, function: Callable[[], T]) -> T:
        """Run a function between two steps, and return its result."""

    def wake(self) -> None:
        """Make the engine's thread look for changes."""


class ContextModel(Protocol):
    """A model, as its contexts see it."""

    name: str
    pool: kv.Pool
    context_size: int

    @property
    def _contexts(self) -> MutableSet[OpenContext]: ...

    @property
    def engine(self) -> ContextEngine:
        """The engine that computes for the model."""

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
