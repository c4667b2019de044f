"""`Request`: one generation to run."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from llamay_models.arguments import flag, number, text, whole
from llamay_models.engine.requests.channel import Channel
from llamay_models.engine.requests.token_constraint import TokenConstraint
from llamay_models.engine.sampling import Sampling
from llamay_models.engine.state.context_state import State
from llamay_models.errors import PromptError

MAX_PRIORITY = 1 << 31
"""Priorities are from minus this to this."""


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
        stop: a string or several that end the text; they are not part of it. None for none.
        constraint: decides which tokens may come next.
        ignore_eos: never choose an end token.
        special: control tokens that appear in the text by their names; other control tokens are not part of it.
        random_stream: the number of the seed's random stream to draw from, so that equal prompts with one seed can
            differ; None takes the stream of the context, which is 0 for a new one.
        tenant: the tenant of the request. Prefixes of one tenant are never found by another; prefixes without a
            tenant are found by all. A context has its own, which the request cannot change.
        shared: how many tokens from the start belong to no tenant although the rest has one, rounded down to pages:
            a system prompt that is no secret.
        reuse: whether cached prefixes may be used, and this text be added to them. The text is the same either way.
        priority: requests of higher priority come first in the queue, in prefill, and in keeping their pages. Waiting
            for 10 seconds counts as one step of priority, so that no request waits for ever. At most 2**31.
        timeout: seconds from now after which the text ends as it is, with `finish_reason` "timeout".
        speculate: whether tokens may be drafted and confirmed several at a time. The text is the
            same either way.

    Raises PromptError for a value of a wrong type or out of range.

    """

    prompt: Sequence[int] | ContinuedContext
    sampling: Sampling | None = None
    max_tokens: int | None = None
    stop: str | Sequence[str] | None = field(default=())
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
        wrong = PromptError
        plain: dict[str, object] = {
            "tenant": text("tenant", self.tenant, error=wrong),
            "shared": whole("shared", self.shared, 0, error=wrong),
            "priority": whole("priority", self.priority, -MAX_PRIORITY, MAX_PRIORITY, error=wrong),
        }
        for name in ("ignore_eos", "reuse", "speculate"):
            plain[name] = flag(name, getattr(self, name), error=wrong)
        if self.max_tokens is not None:
            plain["max_tokens"] = whole("max_tokens (None for no limit)", self.max_tokens, 0, error=wrong)
        if self.random_stream is not None:
            plain["random_stream"] = whole("random_stream", self.random_stream, 0, (1 << 32) - 1, error=wrong)
        if self.timeout is not None:
            plain["timeout"] = number("timeout", self.timeout, 0, error=wrong)
        for name, value in plain.items():
            object.__setattr__(self, name, value)
        if self.stop is None:  # as clients of other engines write it
            object.__setattr__(self, "stop", ())
        elif not isinstance(self.stop, Sequence) or not all(isinstance(each, str) for each in self.stop):
            raise PromptError(f"stop must be a string or several, not {self.stop!r}")
        else:
            texts = (self.stop,) if isinstance(self.stop, str) else self.stop
            object.__setattr__(self, "stop", tuple(str.__str__(each) for each in texts))  # no subclass of str
        if self.sampling is not None and not isinstance(self.sampling, Sampling):
            raise PromptError(f"sampling must be a Sampling or None, not {self.sampling!r:.80}")
        if self.constraint is not None and not isinstance(self.constraint, TokenConstraint):
            raise PromptError(
                f"constraint must be a token constraint, with fill_mask and accept, as "
                f"`Model.constraint` returns it, not {self.constraint!r:.80}"
            )
        if not isinstance(self.special, Collection) or isinstance(self.special, str | bytes):
            raise PromptError(f"special must be a collection of token ids, not {self.special!r:.80}")

    @property
    def stops(self) -> Sequence[str]:
        """The strings that end the text."""
        return (self.stop,) if isinstance(self.stop, str) else self.stop or ()
