"""llama.cpp's POST /completion: one or several prompts in, its own object out."""

from __future__ import annotations

import contextlib
import math
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Annotated, Any

from litestar import Request, post
from litestar.types import ASGIApp
from msgspec import Meta

from llamay_server.chat.profile import fill, limit, stops
from llamay_server.engine.protocol import Model
from llamay_server.http.answers import Streamed, Whole, read_json, sse
from llamay_server.http.call import Call, call_of
from llamay_server.http.errors import invalid
from llamay_server.openai.completions import read_prompts
from llamay_server.openai.logprobs import chat_logprobs
from llamay_server.openai.objects import PING, prompt_progress, reading_timings, timings
from llamay_server.pipeline.run import Delta, End, Reading, Run, Spec, Totals, in_order
from llamay_server.pipeline.sampling import (
    SamplingFields,
    bound,
    sampling,
    stop_list,
    time_limit,
    unsupported,
    urgency,
)
from llamay_server.services import Services, services

if TYPE_CHECKING:
    from llamay_server.models.registry import Entry


class NativeRequest(SamplingFields, kw_only=True):
    """Body of POST /completion."""

    prompt: str | list[str | int | list[int | str] | dict[str, Any]] | dict[str, Any]
    model: str | None = None
    n_predict: Annotated[int, Meta(ge=-2, le=2**31 - 1)] | None = None
    max_tokens: Annotated[int, Meta(ge=-1, le=2**31 - 1)] | None = None
    stop: str | list[str] | None = None
    stream: bool | None = None
    n_probs: Annotated[int, Meta(ge=0, le=100)] | None = None
    post_sampling_probs: bool | None = None
    return_tokens: bool | None = None
    return_progress: bool | None = None
    response_fields: list[str] | None = None
    timings_per_token: bool | None = None


class NativeWriter:
    """Writes llama.cpp's completion object."""

    def __init__(
        self,
        service: Services,
        data: NativeRequest,
        call: Call,
        entry: Entry,
        model: Model,
        prompt: list[int],
        index: int = 0,
    ) -> None:
        fill(data, entry.profile)
        most = data.n_predict if data.n_predict is not None else data.max_tokens
        if most is None:
            most = limit(entry.profile)
        self.data, self.model, self.name, self.prompt = data, model, entry.name, prompt
        self.index = index
        self.parts: list[str] = []
        self.tokens: list[int] = []
        self.scores: list[Any] = []
        self.end = End(index, "stop")
        self.totals = Totals()
        self.options = sampling(data, model)
        if data.post_sampling_probs:
            if "post_sampling_logprobs" not in model.info.sampling_options:
                raise unsupported("post_sampling_probs")
            self.options["post_sampling_logprobs"] = True
        self.n_predict = -1 if most is None else most
        spec = Spec(
            prompt=self.prompt,
            first_index=index,
            sampling=self.options,
            max_tokens=None if self.n_predict < 0 else self.n_predict,
            stop=stop_list(stops(entry.profile) if data.stop is None else data.stop),
            bound=bound(data),
            ignore_eos=bool(data.ignore_eos),
            logprobs=data.n_probs or None,
            reuse=data.cache_prompt is not False,
            priority=urgency(data),
            timeout=time_limit(data),
            tenant=service.tenant(call, data.cache_salt),
            progress=bool(data.return_progress and data.stream),
        )
        self.run = Run(model, spec, call, service.admission, self.totals)

    def final(self) -> dict[str, Any]:
        """The whole object; of a stream, what the parts have told is not in it again."""
        end, streamed = self.end, bool(self.data.stream)
        text = "".join(self.parts)
        tokens = [] if streamed else self.tokens
        scores = [] if streamed else self.scores
        kind = "limit" if end.reason == "length" else "word" if end.stop_sequence is not None else "eos"
        out = {
            "index": self.index,
            "content": "" if streamed else text,
            "tokens": tokens if self.data.return_tokens else [],
            "id_slot": 0,
            "stop": True,
            "model": self.name,
            "tokens_predicted": self.totals.completion_tokens,
            "tokens_evaluated": self.totals.prompt_tokens,
            "generation_settings": self._settings(),
            "prompt": self.model.decode(self.prompt),
            "has_new_line": "\n" in text,
            "truncated": self._full(),
            "stop_type": kind,
            "stopping_word": end.stop_sequence or "",
            "tokens_cached": self.totals.prompt_tokens + self.totals.completion_tokens,
            "timings": timings(self.totals),
        }
        if self.data.n_probs:
            out["completion_probabilities"] = self._probabilities(scores)
        if self.data.response_fields:
            return _pick(out, self.data.response_fields)
        return out

    def _settings(self) -> dict[str, Any]:
        """How it was generated. A bias of null bans a token, as the end tokens are banned by `ignore_eos`."""
        biases = dict(self.options.get("logit_bias", {}))
        if self.data.ignore_eos:
            end = self.model.encode(self.model.info.eos_token, add_special=False, parse_special=True)
            biases |= dict.fromkeys(end[:1], -math.inf)
        told = [{"token": t, "bias": None if math.isinf(bias) else bias} for t, bias in biases.items()]
        return {
            **self.options,
            "logit_bias": told,
            "n_predict": self.n_predict,
            "ignore_eos": bool(self.data.ignore_eos),
            "n_probs": self.data.n_probs or 0,
            "stop": list(self.run.spec.stop),
            "stream": bool(self.data.stream),
        }

    def _full(self) -> bool:
        """Whether the context rather than the request's limit ended the text."""
        made = self.totals.completion_tokens
        full = self.totals.prompt_tokens + made >= self.model.info.context_length
        return self.end.reason == "length" and full and (self.n_predict < 0 or made < self.n_predict)

    def _probabilities(self, scores: list[Any]) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = chat_logprobs(scores, self.model)["content"]
        for entry, score in zip(entries, scores, strict=True):
            entry["id"] = score.token
            for top, (token, _) in zip(entry["top_logprobs"], score.top, strict=True):
                top["id"] = token
        if not self.data.post_sampling_probs:
            return entries
        # Of what was left after sampling, llama.cpp tells probabilities, not their logarithms.
        return [{**_probable(e), "top_probs": [_probable(top) for top in e["top_logprobs"]]} for e in entries]

    def take(self, event: Delta | End | Reading) -> dict[str, Any] | None:
        """The partial object for a piece; None for the end."""
        if isinstance(event, End):
            self.end = event
            return None
        if isinstance(event, Reading):
            told = {"index": self.index, "content": "", "tokens": [], "stop": False, "id_slot": 0}
            told["prompt_progress"] = prompt_progress(event)
            if self.data.timings_per_token:
                told["timings"] = reading_timings(event)
            return told
        self.parts.append(event.text)
        self.tokens += event.tokens
        self.scores += event.scores
        part = {
            "index": self.index,
            "content": event.text,
            "tokens": list(event.tokens),
            "stop": False,
            "id_slot": 0,
        }
        if self.data.n_probs:
            part["completion_probabilities"] = self._probabilities(list(event.scores))
        if self.data.timings_per_token:
            part["timings"] = timings(self.run.totals_now())
        return part


def native_prompts(
    value: Any, model: Model, where: str = "prompt", *, parse_special: bool = True
) -> list[list[int]]:
    """Prompts as llama.cpp takes them: text, ids, texts and ids in one list, an object, or a list of such."""
    if isinstance(value, list) and not any(isinstance(v, int) for v in value):
        if not value:
            raise invalid(f"{where}: it is empty", where)
        items = enumerate(value)
        return [_native_prompt(v, model, f"{where}[{i}]", parse_special=parse_special) for i, v in items]
    return [_native_prompt(value, model, where, parse_special=parse_special)]


def _native_prompt(value: Any, model: Model, where: str, *, parse_special: bool) -> list[int]:
    if isinstance(value, dict):
        if value.get("multimodal_data"):
            raise invalid(f"{where}.multimodal_data: this model reads text only", f"{where}.multimodal_data")
        if not isinstance(value := value.get("prompt_string"), str):
            raise invalid(f"{where}.prompt_string: it must be text", f"{where}.prompt_string")
    if not isinstance(value, list) or all(isinstance(v, int) for v in value):
        one = value if value or isinstance(value, str) else [value]
        return read_prompts(one, model, where, parse_special=parse_special)[0]
    ids: list[int] = []
    for i, item in enumerate(value):
        if isinstance(item, str):
            ids += model.encode(item, add_special=i == 0, parse_special=parse_special)
        elif isinstance(item, int):
            ids += read_prompts([item], model, f"{where}[{i}]")[0]
        else:
            raise invalid(f"{where}[{i}]: it must be text or a token id", f"{where}[{i}]")
    return ids


async def native_frames(writers: list[NativeWriter]) -> AsyncGenerator[bytes, None]:
    """A frame for each piece, and the whole object of each prompt at the end."""
    if len(writers) == 1:
        writers[0].run.shape(lambda delta: sse(writers[0].take(delta)))
    async with contextlib.aclosing(native_parts(writers)) as parts:
        async for part in parts:
            yield sse(part)


async def native_parts(writers: list[NativeWriter]) -> AsyncGenerator[dict[str, Any], None]:
    """A partial object for each piece, and the whole one of each prompt at the end."""
    async with contextlib.aclosing(in_order([writer.run for writer in writers])) as events:
        async for event in events:
            if (part := writers[event.index].take(event)) is not None:
                yield part
    for writer in writers:
        yield writer.final()


def _writers(
    service: Services, data: NativeRequest, call: Call, entry: Entry, model: Model
) -> list[NativeWriter]:
    prompts = native_prompts(data.prompt, model)
    if len(prompts) > service.config.max_n:
        raise invalid(f"prompt: at most {service.config.max_n} prompts, not {len(prompts)}", "prompt")
    return [NativeWriter(service, data, call, entry, model, ids, i) for i, ids in enumerate(prompts)]


def _probable(entry: dict[str, Any]) -> dict[str, Any]:
    kept = {key: entry[key] for key in ("id", "token", "bytes")}
    return {**kept, "prob": math.exp(entry["logprob"])}


def _pick(value: dict[str, Any], paths: list[str]) -> dict[str, Any]:
    """Only the keys asked for; a slash goes one level down."""
    out: dict[str, Any] = {}
    for path in paths:
        node: Any = value
        for key in path.split("/"):
            if not isinstance(node, dict) or key not in node:
                break
            node = node[key]
        else:
            out[path] = node
    return out


async def _holding(service: Services, data: NativeRequest, call: Call) -> AsyncGenerator[bytes, None]:
    async with service.models.use(data.model, call, data.lora) as (entry, model):
        writers = _writers(service, data, call, entry, model)
        async with contextlib.aclosing(native_frames(writers)) as frames:
            async for frame in frames:
                yield frame


@post(["/completion", "/completions"], status_code=200)
async def completion(request: Request[Any, Any, Any]) -> ASGIApp:
    """llama.cpp's completion."""
    service, call = services(request), call_of(request.scope)
    data = await read_json(request, NativeRequest)
    if data.stream:
        frames = _holding(service, data, call)
        return await Streamed.start(
            frames, media="text/event-stream", ping=PING, interval=service.config.ping_interval
        )
    async with service.models.use(data.model, call, data.lora) as (entry, model):
        writers = _writers(service, data, call, entry, model)
        async with contextlib.aclosing(native_parts(writers)) as parts:
            answers = [part async for part in parts][-len(writers) :]
        return Whole(answers if len(answers) > 1 else answers[0])


HANDLERS = [completion]
