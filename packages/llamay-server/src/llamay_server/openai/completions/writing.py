"""A completion as OpenAI's clients read it: one object, or chunks."""

from __future__ import annotations

import contextlib
import math
import secrets
import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from llamay_server.http.frames import EventTemplate, sse
from llamay_server.openai.logprobs import legacy_logprobs, prompt_logprobs
from llamay_server.openai.objects import DONE, prompt_progress, timings, usage
from llamay_server.pipeline.admission import run_on_texts
from llamay_server.pipeline.events import ChoiceEnd, PrefillProgress, TextDelta
from llamay_server.pipeline.run import Run, merged_events
from llamay_server.pipeline.totals import Totals

if TYPE_CHECKING:
    from llamay_models import TokenScore
    from llamay_server.engine.protocol import Model
    from llamay_server.http.exchange import Exchange
    from llamay_server.openai.completions.reading import Completion
    from llamay_server.openai.completions.schema import CompletionRequest
    from llamay_server.pipeline.admission import AdmissionControl


class CompletionWriter:
    """Writes one completion, whole or as chunks."""

    def __init__(
        self,
        completion: Completion,
        data: CompletionRequest,
        name: str,
        model: Model,
        exchange: Exchange,
        admission: AdmissionControl,
    ) -> None:
        """`name` is the model's in the answer."""
        self.data, self.model, self.exchange, self.admission = data, model, exchange, admission
        self.prompts, self.wanted = completion.prompts, completion.wanted
        self.n = completion.delivery.choices
        self.prompt_scores: list[list[TokenScore]] = []
        self.totals = Totals()
        self.base = {
            "id": f"cmpl-{secrets.token_hex(12)}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": name,
            "system_fingerprint": f"llamay-{model.info.fingerprint}",
        }
        self.runs = [
            Run(
                model,
                replace(completion.generation, prompt=prompt),
                replace(completion.delivery, first_index=i * self.n),
                exchange,
                admission,
                self.totals,
            )
            for i, prompt in enumerate(self.prompts)
        ]

    def _echo(self, index: int) -> str:
        return self.model.decode(self.prompts[index // self.n]) if self.data.echo else ""

    def _scores(self, scores: Any, offset: int) -> Any:
        if self.data.logprobs is None:
            return None
        return legacy_logprobs(scores, self.model, offset, self.data.logprobs)

    def _echoed(self, index: int) -> list[TokenScore]:
        return self.prompt_scores[index // self.n] if self.prompt_scores and self.data.echo else []

    async def _score_prompts(self) -> None:
        """Score the prompts' own tokens, with `echo` or where the request asks for their scores."""
        tops = [self.data.prompt_logprobs, self.data.logprobs if self.data.echo else None]
        top = max((n for n in tops if n is not None), default=None)
        if top is None:
            return
        model, prompts = self.model, self.prompts
        self.prompt_scores = await run_on_texts(
            self.admission,
            self.exchange,
            lambda progress: [model.score(ids, top=top, progress=progress) for ids in prompts],
        )

    async def whole(self) -> dict[str, Any]:
        """Return the complete object."""
        count = self.n * len(self.prompts)
        await self._score_prompts()
        texts = [[self._echo(i)] for i in range(count)]
        scores: list[list[Any]] = [list(self._echoed(i)) for i in range(count)]
        tokens: list[list[int]] = [[] for _ in range(count)]
        ends = ["stop"] * count
        async with contextlib.aclosing(merged_events(self.runs)) as events:
            async for event in events:
                if isinstance(event, ChoiceEnd):
                    ends[event.index] = event.reason
                elif isinstance(event, TextDelta):
                    texts[event.index].append(event.text)
                    scores[event.index] += event.scores
                    tokens[event.index] += event.tokens
        choices: list[dict[str, Any]] = []
        for index, i in enumerate(self._best(scores)):
            choice = {
                "text": "".join(texts[i]),
                "index": index,
                "logprobs": self._scores(scores[i], 0 if self._echoed(i) else len(texts[i][0])),
                "finish_reason": ends[i],
            }
            if self.data.return_token_ids:
                choice["token_ids"] = tokens[i]
            if self.data.prompt_logprobs is not None:
                choice["prompt_logprobs"] = prompt_logprobs(self.prompt_scores[i // self.n], self.model)
            choices.append(choice)
        out = {**self.base, "choices": choices, "usage": usage(self.totals)}
        if self.data.timings_per_token:
            out["timings"] = timings(self.totals)
        return out

    def _best(self, scores: Sequence[Sequence[TokenScore]]) -> list[int]:
        """Return the choices of each prompt that are given: all, or the likeliest by a token's mean log-probability."""
        if self.wanted == self.n:
            return list(range(len(scores)))

        def mean(i: int) -> float:
            own = [score.logprob for score in scores[i][len(self._echoed(i)) :]]
            return sum(own) / len(own) if own else -math.inf

        firsts = range(0, len(scores), self.n)
        return [
            i for k in firsts for i in sorted(range(k, k + self.n), key=mean, reverse=True)[: self.wanted]
        ]

    async def frames(self) -> AsyncGenerator[bytes, None]:
        """Yield the chunks as server-sent events."""
        with_usage = bool(self.data.stream_options and self.data.stream_options.include_usage)
        offsets: dict[int, int] = {}
        beside: dict[str, Any] = {"usage": None} if with_usage else {}

        def written(text: str, index: int) -> dict[str, Any]:
            choice = {"text": text, "index": index, "logprobs": None, "finish_reason": None}
            return {**self.base, "choices": [choice], **beside}

        templates = [EventTemplate(partial(written, index=i)) for i in range(self.n * len(self.prompts))]
        plain = self.data.logprobs is None and not self.data.return_token_ids

        def frame(event: TextDelta | ChoiceEnd) -> bytes:
            if plain and isinstance(event, TextDelta) and event.text and event.index in offsets:
                return templates[event.index].fill(event.text)
            choice = self._choice(event, offsets)
            return b"" if choice is None else sse({**self.base, "choices": [choice], **beside})

        await self._score_prompts()
        if len(self.runs) == 1:
            self.runs[0].write_with(frame)
        async with contextlib.aclosing(merged_events(self.runs)) as events:
            async for event in events:
                if isinstance(event, PrefillProgress):
                    yield sse({**written("", event.index), "prompt_progress": prompt_progress(event)})
                elif out := frame(event):
                    yield out
        if with_usage:
            yield sse({**self.base, "choices": [], "usage": usage(self.totals)}) + DONE
        else:
            yield DONE

    def _choice(self, event: TextDelta | ChoiceEnd, offsets: dict[int, int]) -> dict[str, Any] | None:
        i = event.index
        begins = i not in offsets
        text = self._echo(i) if begins else ""
        echoed = self._echoed(i) if begins else []
        offset = offsets.get(i, len(text))
        if isinstance(event, ChoiceEnd):
            told = self._scores(echoed, 0) if echoed else None
            return {"text": text, "index": i, "logprobs": told, "finish_reason": event.reason}
        offsets[i] = offset + len(event.text)
        if not event.text and not event.scores and not text:
            return None
        choice = {
            "text": text + event.text,
            "index": i,
            "logprobs": self._scores([*echoed, *event.scores], 0 if echoed else offset),
            "finish_reason": None,
        }
        if self.data.return_token_ids:
            choice["token_ids"] = list(event.tokens)
        return choice
