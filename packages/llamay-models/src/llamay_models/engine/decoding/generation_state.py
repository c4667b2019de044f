"""`GenerationState`: how a sequence generates, with the tokens that are not emitted yet."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from llamay_models.engine.decoding.constraint_state import ConstraintState
from llamay_models.engine.decoding.drafter import Drafter
from llamay_models.engine.decoding.text_stream import TextStream
from llamay_models.engine.decoding.token_sampler import TokenSampler
from llamay_models.engine.requests.results import TokenScore


class GenerationState:
    """The state of a sequence that generates, once its prompt is computed.

    Attributes:
        sampler: chooses the tokens.
        text: decodes the tokens, and searches the text for stop strings.
        ends: the tokens that end the text.
        limit: the most tokens that are generated.
        make_constraint_state: makes the constraint's state when the first token is chosen; None without a constraint.
        constraint_state: that state; None until then.
        drafter: drafts the next tokens; None for none.
        stops, special, forbidden: the stop strings, the control tokens that are part of the text, and the tokens that
            are never chosen, kept for branches.
        tokens, scores: those of the text that is not emitted yet.

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
