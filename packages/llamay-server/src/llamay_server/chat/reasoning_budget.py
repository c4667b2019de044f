"""A budget for reasoning: after so many tokens it is closed for the model, which then answers."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import TYPE_CHECKING

from llamay_server.chat.framing import constraint_of
from llamay_server.pipeline.events import TextDelta
from llamay_server.pipeline.run import Run
from llamay_server.pipeline.totals import Totals

if TYPE_CHECKING:
    from llamay_models import Request
    from llamay_models.answers import Event
    from llamay_server.chat.framing import Framing
    from llamay_server.chat.run import ChatRun


async def within_budget(chat: ChatRun, run: Run, framing: Framing) -> AsyncGenerator[Event, None]:
    """The events of one choice whose reasoning is closed once `run` has written as many tokens as the budget allows.

    What is written so far, and the mark that closes the reasoning, are then the prompt of a second generation, of the
    answer.
    """
    budget = run.delivery.reasoning_budget
    assert budget is not None
    parser = chat.parsers[0]
    written: list[int] = []
    async with contextlib.aclosing(run.text_events()) as events:
        async for event in events:
            if isinstance(event, TextDelta):
                written += event.tokens
                parsed = parser.feed(event.text, event.scores, event.tokens)
            else:
                chat.totals.reasoning_tokens = parser.reasoning_tokens
                parsed = parser.finish(event.reason, event.stop_sequence)
            for item in parsed:
                yield item
            if parser.thinking and len(written) >= budget and isinstance(event, TextDelta):
                break
        else:
            return
    first = run.usage()
    end = f"\n{framing.marks[1]}\n\n"
    for item in parser.feed(end):
        yield item
    limit = run.request.max_tokens
    left = None if limit is None else limit - len(written)
    if left is not None and left <= 0:
        for item in parser.finish("length", None):
            yield item
        return
    closing = chat.model.encode(end, add_special=False, parse_special=True)
    prompt = [*chat.rendered.prompt.tokens, *written, *closing] if chat.rendered is not None else []
    answer = Run(
        chat.model,
        _rest(run, prompt, left),
        replace(run.delivery, constraint=constraint_of(chat.request, framing.form)),
        chat.exchange,
        chat.admission,
        Totals(),
    )
    async with contextlib.aclosing(answer.text_events()) as events:
        async for event in events:
            if isinstance(event, TextDelta):
                parsed = parser.feed(event.text, event.scores, event.tokens)
            else:
                chat.totals.reasoning_tokens = parser.reasoning_tokens
                parsed = parser.finish(event.reason, event.stop_sequence)
            for item in parsed:
                yield item
    totals = answer.totals
    chat.totals.prompt_tokens, chat.totals.cached_tokens = first.prompt_tokens, first.cached_tokens
    chat.totals.completion_tokens = len(written) + totals.completion_tokens
    chat.totals.decode += totals.prefill + totals.decode


def _rest(run: Run, prompt: list[int], max_tokens: int | None) -> Request:
    """The run's request for what comes after the reasoning, with the time that is left."""
    timeout = None if run.deadline is None else max(0.0, run.deadline - time.monotonic())
    return replace(run.request, prompt=prompt, max_tokens=max_tokens, timeout=timeout)
