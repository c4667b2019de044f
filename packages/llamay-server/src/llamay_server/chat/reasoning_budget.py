"""A budget for reasoning: after that many tokens the server closes the reasoning, and the model answers."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from llamay_models.answers import THINK
from llamay_server.chat.framing import constraint_of
from llamay_server.pipeline.events import TextDelta
from llamay_server.pipeline.run import Run
from llamay_server.pipeline.totals import Totals

if TYPE_CHECKING:
    from llamay_models import Request
    from llamay_models.answers import Event, Reader
    from llamay_server.chat.framing import Framing
    from llamay_server.chat.request import ChatRequest


async def within_budget(
    request: ChatRequest, run: Run, framing: Framing, parser: Reader, prompt: Sequence[int], totals: Totals
) -> AsyncGenerator[Event, None]:
    """Yield the events of one choice; its reasoning is closed once `run` has written the tokens that the budget allows.

    The prompt, the tokens generated so far, and the mark that closes the reasoning are then the prompt of a second
    generation, which writes the answer.

    Args:
        request: the chat request; it has the constraint of the answer.
        run: the run of the first generation, which begins with the reasoning.
        framing: how its output is constrained and parsed.
        parser: the parser of the choice.
        prompt: the tokens that the first generation continues.
        totals: the numbers of the chat request, of both generations together.

    """
    budget = run.delivery.reasoning_budget
    assert budget is not None
    written: list[int] = []
    async with contextlib.aclosing(run.text_events()) as events:
        async for event in events:
            if isinstance(event, TextDelta):
                written += event.tokens
                parsed = parser.feed(event.text, event.scores, event.tokens)
            else:
                totals.reasoning_tokens = parser.reasoning_tokens
                parsed = parser.finish(event.reason, event.stop_sequence)
            for item in parsed:
                yield item
            if parser.thinking and len(written) >= budget and isinstance(event, TextDelta):
                break
        else:
            return
    first = run.usage()
    marks = framing.written.reasoning or THINK
    end = f"\n{marks[1]}\n\n"
    for item in parser.feed(end):
        yield item
    limit = run.request.max_tokens
    left = None if limit is None else limit - len(written)
    if left is not None and left <= 0:
        for item in parser.finish("length", None):
            yield item
        return
    closing = run.model.encode(end, add_special=False, parse_special=True)
    answer = Run(
        run.model,
        _rest(run, [*prompt, *written, *closing], left),
        replace(run.delivery, constraint=constraint_of(request, framing.written)),
        run.exchange,
        run.admission,
        Totals(),
    )
    async with contextlib.aclosing(answer.text_events()) as events:
        async for event in events:
            if isinstance(event, TextDelta):
                parsed = parser.feed(event.text, event.scores, event.tokens)
            else:
                totals.reasoning_tokens = parser.reasoning_tokens
                parsed = parser.finish(event.reason, event.stop_sequence)
            for item in parsed:
                yield item
    totals.prompt_tokens, totals.cached_tokens = first.prompt_tokens, first.cached_tokens
    totals.completion_tokens = len(written) + answer.totals.completion_tokens
    totals.decode += answer.totals.prefill + answer.totals.decode


def _rest(run: Run, prompt: list[int], max_tokens: int | None) -> Request:
    """Return the run's request for the answer after the reasoning, with the remaining time."""
    timeout = None if run.deadline is None else max(0.0, run.deadline - time.monotonic())
    return replace(run.request, prompt=prompt, max_tokens=max_tokens, timeout=timeout)
