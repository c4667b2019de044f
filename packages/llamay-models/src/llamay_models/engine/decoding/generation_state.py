"""`GenerationState`: what a sequence that generates has beside its context."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from llamay_models.engine.decoding.constraint_state import ConstraintState
from llamay_models.engine.decoding.drafter import Drafter
from llamay_models.engine.decoding.text_stream import TextStream
from llamay_models.engine.decoding.token_sampler import TokenSampler
from llamay_models.engine.requests.results import TokenScore


class GenerationState:
    """How a sequence goes on once its prompt is read.

    `ends` are the tokens that end the text; `make_constraint_state` is called when the first token is chosen;
    `drafter` drafts the next tokens. `stops`, `special` and `forbidden` are the stop strings, the
    control tokens that are shown, and the tokens that are never chosen, kept for branches.
    """

    __slots__ = (
        "constraint_state",
        "drafter",
        "ends",
        "forbidden",
        "limit",
        "make_constraint_state",
        "sampler",
        "scores",
        "special",
        "stops",
        "text",
        "tokens",
    )

    def __init__(
        self,
        sampler: TokenSampler,
        text: TextStream,
        ends: frozenset[int],
        limit: int,
        make_constraint_state: Callable[[], ConstraintState] | None,
        drafter: Drafter | None = None,
        *,
        stops: Iterable[str] = (),
        special: Collection[int] = (),
        forbidden: frozenset[int] = frozenset(),
    ) -> None:
        self.sampler = sampler
        self.text = text
        self.ends = ends
        self.limit = limit
        self.make_constraint_state = make_constraint_state
        self.drafter = drafter
        self.stops = stops
        self.special = special
        self.forbidden = forbidden
        self.constraint_state: ConstraintState | None = None
        self.tokens: list[int] = []
        self.scores: list[TokenScore] = []
