"""The choice of tokens that are drawn with a step; the others wait for the mask of their constraint."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from llamay_models.engine.decoding.constraint_state import ConstraintState, fill_all_masks
from llamay_models.engine.decoding.token_sampler import BatchedDraws, TokenSampler
from llamay_models.engine.failures import wrapped
from llamay_models.engine.scheduling.batch_entry import BatchEntry

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

LateDraw: TypeAlias = tuple[TokenSampler, int, int, ConstraintState]
"""A draw that has to wait for its mask: the sampler, the output, the position of the token, the constraint."""


def lay_out(batch: list[BatchEntry], draws: BatchedDraws) -> list[LateDraw]:
    """Add the draws that follow the run directly to `draws`, and return those whose masks are not known yet."""
    late: list[LateDraw] = []
    at = 0
    for entry in batch:
        row, at = at, at + entry.wanted
        sequence = entry.sequence
        generation = sequence.generation
        if sequence.ending is not None:  # the text ended after this step had begun
            continue
        if row == at or generation is None or sequence.channel.completion_tokens >= generation.limit:
            continue
        constraint = generation.constraint_state
        if constraint is None and generation.make_constraint_state is not None:
            try:
                constraint = generation.constraint_state = generation.make_constraint_state()
            except Exception as error:
                sequence.ending = ("error", wrapped(error))
                continue
        if constraint is not None and constraint.stale:
            late.append((generation.sampler, row, entry.begin + entry.n, constraint))
        else:
            draws.add(generation.sampler, row, entry.begin + entry.n, constraint)
    return late


class MaskThread:
    """A thread that computes masks while the plan runs; it is started when it is first needed."""

    def __init__(self) -> None:
        self._executor: ThreadPoolExecutor | None = None

    def fill(self, late: list[LateDraw]) -> Future[None]:
        """Compute the masks of draws on the thread."""
        if self._executor is None:
            from concurrent.futures import ThreadPoolExecutor  # slow to import, and seldom needed

            self._executor = ThreadPoolExecutor(1, "llamay masks")
        return self._executor.submit(fill_all_masks, [constraint for _, _, _, constraint in late])

    def close(self) -> None:
        """End the thread."""
        if self._executor is not None:
            self._executor.shutdown()
