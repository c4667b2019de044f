"""POST /v1/completions: text in, text out, several prompts and several choices in one request."""

from __future__ import annotations

import contextlib
import math
import secrets
import time
from collections.abc import AsyncGenerator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from litestar import Request, post
from litestar.types import ASGIApp

from llamay_server.chat.profile import fill, limit, stops
from llamay_server.engine.protocol import Model
from llamay_server.http.answers import Blank, Streamed, Whole, read_json, sse
from llamay_server.http.call import Call, call_of
from llamay_server.http.errors import invalid
from llamay_server.openai.logprobs import legacy_logprobs, prompt_logprobs
from llamay_server.openai.objects import DONE, PING, prompt_progress, timings, usage
from llamay_server.openai.schema import CompletionRequest
from llamay_server.pipeline.infill import can_fill, fill_prompt
from llamay_server.pipeline.run import Delta, End, Reading, Run, Spec, Totals, in_order, read_through
from llamay_server.pipeline.sampling import bound, sampling, stop_list, time_limit, unsupported, urgency
from llamay_server.services import Services, services

if TYPE_CHECKING:
    from llamay_server.engine.protocol import TokenScore
    from llamay_server.models.registry import Entry


def read_prompts(
    value: str | list[Any], model: Model, where: str = "prompt", *, parse_special: bool = True
) -> list[list[int]]:
    """Prompts as ids: text, texts, ids, lists of ids, or a mixture."""
    if isinstance(value, list) and value and all(isinstance(v, int) for v in value):
        items: list[Any] = [value]
        single = True
    else:
        items, single = (value, False) if isinstance(value, list) else ([value], True)
    if not items:
        raise invalid(f"{where}: it is empty", where)
    prompts = []
    for i, item in enumerate(items):
        at = where if single else f"{where}[{i}]"
        if isinstance(item, str):
            ids = model.encode(item, add_special=True, parse_special=parse_special)
        elif isinstance(item, int):
            raise invalid(
                f"{at}: token ids and texts are mixed in one list; put the ids in a list of their own", at
            )
        else:
            ids = item
            size = model.info.vocab_size
            if bad := [t for t in ids if not 0 <= t < size]:
                raise invalid(f"{at}: {bad[0]} is not a token of this model (0 to {size - 1})", at)
        if not ids:
            raise invalid(f"{at}: it is empty", at)
        prompts.append(list(ids))
    return prompts


class CompletionWriter:
    """Writes one completion answer, whole or as chunks."""

    def __init__(
        self, service: Services, data: CompletionRequest, call: Call, entry: Entry, model: Model
    ) -> None:
        fill(data, entry.profile)
        if data.stop is None:
            data.stop = stops(entry.profile)
        if data.max_tokens is None:
            data.max_tokens = limit(entry.profile)
        if data.context:
            raise unsupported("context")
        if data.prompt_logprobs is not None and data.stream:
            raise unsupported("prompt_logprobs", "a stream does not tell them")
        if data.suffix and not can_fill(model):
            raise unsupported("suffix", "this model was not trained to fill in the middle")
        if data.suffix and not isinstance(data.prompt, str):
            raise invalid("suffix: it needs a prompt that is one text", "suffix")
        n = data.n or 1
        tried = data.best_of or n
        if tried < n:
            raise invalid("best_of: it must not be less than n", "best_of")
        if tried > n and data.stream:
            raise invalid(
                "best_of: which choices are best is known when all are there; do not stream", "best_of"
            )
        most = 16 if data.max_tokens is None else data.max_tokens
        if data.suffix and isinstance(data.prompt, str):
            reserve = max(1, most)
            self.prompts = [fill_prompt(model, data.prompt, data.suffix, reserve=reserve, call=call)]
        else:
            self.prompts = read_prompts(data.prompt, model)
        if tried * len(self.prompts) > service.config.max_n:
            field = "n" if tried == n else "best_of"
            raise invalid(f"{field}: at most {service.config.max_n} choices over all prompts", field)
        self.data, self.model = data, model
        self.n, self.wanted = tried, n
        self.call, self.admission = call, service.admission
        self.prompt_scores: list[list[TokenScore]] = []
        self.totals = Totals()
        self.base = {
            "id": f"cmpl-{secrets.token_hex(12)}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": entry.name,
            "system_fingerprint": f"llamay-{model.info.fingerprint}",
        }
        options = sampling(data, model)
        limits = bound(data, data.response_format)
        self.runs = [
            Run(
                model,
                Spec(
                    prompt=prompt,
                    sampling=options,
                    n=tried,
                    max_tokens=None if most < 0 else most,
                    stop=stop_list(data.stop),
                    include_stop=bool(data.include_stop_str_in_output),
                    bound=limits,
                    ignore_eos=bool(data.ignore_eos),
                    logprobs=0 if data.logprobs is None and tried > n else data.logprobs,
                    reuse=data.cache_prompt is not False,
                    priority=urgency(data),
                    timeout=time_limit(data),
                    tenant=service.tenant(call, data.cache_salt),
                    progress=bool(data.return_progress and data.stream),
                    first_index=i * tried,
                ),
                call,
                service.admission,
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
        """With echo, or where it is asked for, the prompt's own tokens are told with their probabilities too."""
        tops = [self.data.prompt_logprobs, self.data.logprobs if self.data.echo else None]
        top = max((n for n in tops if n is not None), default=None)
        if top is None:
            return
        model, prompts = self.model, self.prompts
        self.prompt_scores = await read_through(
            self.admission,
            self.call,
            lambda progress: [model.score(ids, top=top, progress=progress) for ids in prompts],
        )

    async def whole(self) -> dict[str, Any]:
        """The complete object."""
        count = self.n * len(self.prompts)
        await self._score_prompts()
        texts = [[self._echo(i)] for i in range(count)]
        scores: list[list[Any]] = [list(self._echoed(i)) for i in range(count)]
        tokens: list[list[int]] = [[] for _ in range(count)]
        ends = ["stop"] * count
        async with contextlib.aclosing(in_order(self.runs)) as events:
            async for event in events:
                if isinstance(event, End):
                    ends[event.index] = event.reason
                elif isinstance(event, Delta):
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
        """Those of each prompt that are given: all, or the likeliest by the mean log-probability of a token."""
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
        """The chunks as server-sent events."""
        with_usage = bool(self.data.stream_options and self.data.stream_options.include_usage)
        offsets: dict[int, int] = {}
        beside: dict[str, Any] = {"usage": None} if with_usage else {}

        def written(text: str, index: int) -> dict[str, Any]:
            choice = {"text": text, "index": index, "logprobs": None, "finish_reason": None}
            return {**self.base, "choices": [choice], **beside}

        blanks = [Blank(partial(written, index=i)) for i in range(self.n * len(self.prompts))]
        plain = self.data.logprobs is None and not self.data.return_token_ids

        def frame(event: Delta | End) -> bytes:
            if plain and isinstance(event, Delta) and event.text and event.index in offsets:
                return blanks[event.index].fill(event.text)
            choice = self._choice(event, offsets)
            return b"" if choice is None else sse({**self.base, "choices": [choice], **beside})

        await self._score_prompts()
        if len(self.runs) == 1:
            self.runs[0].shape(frame)
        async with contextlib.aclosing(in_order(self.runs)) as events:
            async for event in events:
                if isinstance(event, Reading):
                    yield sse({**written("", event.index), "prompt_progress": prompt_progress(event)})
                elif out := frame(event):
                    yield out
        if with_usage:
            yield sse({**self.base, "choices": [], "usage": usage(self.totals)}) + DONE
        else:
            yield DONE

    def _choice(self, event: Delta | End, offsets: dict[int, int]) -> dict[str, Any] | None:
        i = event.index
        begins = i not in offsets
        text = self._echo(i) if begins else ""
        echoed = self._echoed(i) if begins else []
        offset = offsets.get(i, len(text))
        if isinstance(event, End):
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


async def _holding(service: Services, data: CompletionRequest, call: Call) -> AsyncGenerator[bytes, None]:
    async with service.models.use(data.model, call, data.lora) as (entry, model):
        writer = CompletionWriter(service, data, call, entry, model)
        async with contextlib.aclosing(writer.frames()) as frames:
            async for frame in frames:
                yield frame


@post(["/v1/completions"], status_code=200)
async def completions(request: Request[Any, Any, Any]) -> ASGIApp:
    """Continue one or several texts."""
    service, call = services(request), call_of(request.scope)
    data = await read_json(request, CompletionRequest)
    if data.stream:
        frames = _holding(service, data, call)
        return await Streamed.start(
            frames, media="text/event-stream", ping=PING, interval=service.config.ping_interval
        )
    async with service.models.use(data.model, call, data.lora) as (entry, model):
        return Whole(await CompletionWriter(service, data, call, entry, model).whole())


HANDLERS = [completions]
