"""`Request`: one generation to run."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Protocol, runtime_checkable

from llamay_models.engine.requests.channel import Channel
from llamay_models.engine.requests.token_constraint import TokenConstraint
from llamay_models.engine.sampling import Sampling
from llamay_models.engine.state.context_state import State
from llamay_models.errors import PromptError


@runtime_checkable
class ContinuedContext(Protocol):
    """A context that a request continues: the engine acquires it for one generation, and releases it."""

    def __len__(self) -> int: ...
    def _acquire(self, channel: Channel | None) -> State: ...
    def _release(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Request:
    """One generation to run.

    Attributes:
        prompt: token ids, or a context, which is then continued in place.
        sampling: how tokens are chosen; None takes the sampling of the context's last generation, or the defaults.
        max_tokens: the most tokens to generate; None until the text ends or the context is full.
        stop: a string or several that end the text; they are not part of it.
        constraint: decides which tokens may come next.
        ignore_eos: never choose an end token.
        special: control tokens that appear in the text by their names; other control tokens are not part of it.
        random_stream: the number of the seed's random stream to draw from, so that equal prompts with one seed can
            differ; None takes the stream of the context, which is 0 for a new one.
        tenant: the tenant of the request. Prefixes of one tenant are never found by another; prefixes without a
            tenant are found by all.
        shared: how many tokens from the start belong to no tenant although the rest has one, rounded down to pages:
            a system prompt that is no secret.
        reuse: whether cached prefixes may be used, and this text be added to them. The text is the same either way.
        priority: requests of higher priority come first in the queue, in prefill, and in keeping their pages. Waiting
            for 10 seconds counts as one step of priority, so that no request waits for ever.
        timeout: seconds from now after which the text ends as it is, with `finish_reason` "timeout".
        speculate: whether tokens may be drafted and confirmed several at a time. The text is the
            same either way.

    """

    prompt: Sequence[int] | ContinuedContext
    sampling: Sampling | None = None
    max_tokens: int | None = None
    stop: str | Sequence[str] = field(default=())
    constraint: TokenConstraint | None = None
    ignore_eos: bool = False
    random_stream: int | None = None
    tenant: str = ""
    shared: int = 0
    reuse: bool = True
    priority: int = 0
    timeout: float | None = None
    speculate: bool = True
    special: Collection[int] = ()

    def __post_init__(self) -> None:
        most = self.max_tokens
        if most is not None and (not isinstance(most, Integral) or most < 0):
            raise PromptError(f"max_tokens must be a number of tokens, or None for no limit, not {most!r}")
        if not isinstance(self.stop, Sequence) or not all(isinstance(each, str) for each in self.stop):
            raise PromptError(f"stop must be a string or several, not {self.stop!r}")
        if self.timeout is not None and not self.timeout >= 0:
            raise PromptError(f"timeout must be a number of seconds, not {self.timeout!r}")
        if self.shared < 0:
            raise PromptError(f"shared must be a number of tokens, not {self.shared!r}")

    @property
    def stops(self) -> Sequence[str]:
        """The strings that end the text."""
        return (self.stop,) if isinstance(self.stop, str) else self.stop
