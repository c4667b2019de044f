"""llama.cpp's own routes: health, props, tokens, templates, slots, and its /completion."""

from __future__ import annotations

import contextlib
import math
from collections.abc import AsyncGenerator
from typing import Annotated, Any

from litestar import Request, get, post
from litestar.types import ASGIApp
from msgspec import Meta, Struct

from ._call import Call, call_of
from ._chat import ChatRequest, render
from ._errors import ApiError, invalid
from ._http import Streamed, Whole, read_json, sse
from ._openai_chat import PING, read_messages, timings
from ._openai_completions import read_prompts
from ._openai_schema import ChatMessage
from ._options import SamplingFields, bound, sampling, stop_list, time_limit, unsupported, urgency
from ._protocol import Model
from ._run import Delta, End, Run, Spec, Totals, in_order
from ._scores import chat_logprobs
from ._services import Services, services
from ._tools import openai_choice, openai_tools


@get(["/health", "/v1/health"])
async def health(request: Request[Any, Any, Any]) -> ASGIApp:
    """Whether the server can answer; 503 while the default model loads."""
    entry = next(iter(services(request).models.entries.values()), None)
    if entry is not None and entry.loading is not None:
        error = {"code": 503, "message": "Loading model", "type": "unavailable_error"}
        return Whole({"error": error}, status=503)
    return Whole({"status": "ok"})


@get("/metrics")
async def metrics(request: Request[Any, Any, Any]) -> ASGIApp:
    """Prometheus text."""
    service = services(request)
    if not service.config.metrics:
        raise ApiError("not_supported", "Metrics are off; start the server with --metrics.")
    started = {"process-start-time-unix": str(int(service.started))}
    return Whole(service.metrics.text(), headers=started, media="text/plain; version=0.0.4; charset=utf-8")


class TokenizeRequest(Struct, kw_only=True):
    """Body of POST /tokenize."""

    content: str
    model: str | None = None
    add_special: bool | None = None
    parse_special: bool | None = None
    with_pieces: bool | None = None


@post(["/tokenize", "/v1/tokenize"], status_code=200)
async def tokenize(request: Request[Any, Any, Any]) -> ASGIApp:
    """Text to token ids."""
    data = await read_json(request, TokenizeRequest)
    async with services(request).models.use(data.model, call_of(request.scope)) as (_, model):
        parse = data.parse_special is not False
        ids = model.encode(data.content, add_special=bool(data.add_special), parse_special=parse)
        if not data.with_pieces:
            return Whole({"tokens": ids})
        return Whole({"tokens": [{"id": token, "piece": _piece(model, token)} for token in ids]})


def _piece(model: Model, token: int) -> str | list[int]:
    raw = model.token_bytes(token)
    try:
        return raw.decode() if raw else model.token_name(token)
    except UnicodeDecodeError:
        return list(raw)


class DetokenizeRequest(Struct, kw_only=True):
    """Body of POST /detokenize."""

    tokens: list[int]
    model: str | None = None


@post(["/detokenize", "/v1/detokenize"], status_code=200)
async def detokenize(request: Request[Any, Any, Any]) -> ASGIApp:
    """Token ids to text."""
    data = await read_json(request, DetokenizeRequest)
    async with services(request).models.use(data.model, call_of(request.scope)) as (_, model):
        tokens = read_prompts(list(data.tokens), model, "tokens")[0] if data.tokens else []
        return Whole({"content": model.decode(tokens)})


class TemplateRequest(Struct, kw_only=True):
    """Body of POST /apply-template."""

    messages: list[ChatMessage]
    model: str | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    add_generation_prompt: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None


def _template_request(data: TemplateRequest) -> ChatRequest:
    messages = read_messages(data.messages)
    ends_open = bool(messages) and messages[-1]["role"] == "assistant" and not data.add_generation_prompt
    box = openai_choice(data.tool_choice, openai_tools(data.tools), None)
    return ChatRequest(messages=messages, sampling={}, box=box, continue_final=ends_open)


@post("/apply-template", status_code=200)
async def apply_template(request: Request[Any, Any, Any]) -> ASGIApp:
    """The prompt that a chat request with this body reads."""
    data = await read_json(request, TemplateRequest)
    async with services(request).models.use(data.model, call_of(request.scope)) as (_, model):
        return Whole({"prompt": render(model, _template_request(data)).prompt.text})


@post(["/chat/completions/input_tokens", "/v1/chat/completions/input_tokens"], status_code=200)
async def input_tokens(request: Request[Any, Any, Any]) -> ASGIApp:
    """How many tokens a chat request with this body has as input."""
    data = await read_json(request, TemplateRequest)
    async with services(request).models.use(data.model, call_of(request.scope)) as (_, model):
        return Whole({"input_tokens": len(render(model, _template_request(data)).prompt.tokens)})


@get("/props")
async def props(request: Request[Any, Any, Any]) -> ASGIApp:
    """What the default model and the server are; never keys, and paths only where the operator shows them."""
    service = services(request)
    async with service.models.use(request.query_params.get("model"), call_of(request.scope)) as (
        entry,
        model,
    ):
        info = model.info
        path = str(info.path) if service.config.expose_paths and info.path else entry.name
        return Whole(
            {
                "default_generation_settings": {
                    "n_ctx": info.context_length,
                    "params": {
                        "temperature": 1.0,
                        "top_k": 0,
                        "top_p": 1.0,
                        "min_p": 0.0,
                        "seed": -1,
                        "n_predict": -1,
                    },
                },
                "total_slots": service.config.max_streams or service.config.max_queue,
                "model_alias": entry.name,
                "model_path": path,
                "chat_template": info.chat_template or "",
                "bos_token": info.bos_token,
                "eos_token": info.eos_token,
                "modalities": {"vision": False, "audio": False},
                "build_info": f"llamay {service.version}",
            }
        )


@post("/props", status_code=200)
async def set_props(request: Request[Any, Any, Any]) -> ASGIApp:
    """Changing properties at run time is not offered."""
    raise ApiError("not_supported", "Properties cannot be changed while the server runs.")


@get("/slots")
async def slots(request: Request[Any, Any, Any]) -> ASGIApp:
    """One entry for each generation that runs or waits; never anybody's prompt."""
    service = services(request)
    if not service.config.slots:
        raise ApiError("not_supported", "Slots are off; start the server with --slots.")
    admission = service.admission
    busy = admission.waiting + admission.running
    total = service.config.max_streams or service.config.max_queue
    if request.query_params.get("fail_on_no_slot") and busy >= total:
        raise ApiError("unavailable", "no slot available")
    entry = next(iter(service.models.entries.values()), None)
    length = entry.model.info.context_length if entry and entry.model else 0
    shown = max(busy, 1)
    return Whole([{"id": i, "n_ctx": length, "is_processing": i < busy} for i in range(shown)])


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
        name: str,
        model: Model,
        prompt: list[int],
        index: int = 0,
    ) -> None:
        if data.return_progress:
            raise unsupported("return_progress")
        limit = data.n_predict if data.n_predict is not None else data.max_tokens
        self.data, self.model, self.name, self.prompt = data, model, name, prompt
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
        self.n_predict = -1 if limit is None else limit
        spec = Spec(
            prompt=self.prompt,
            first_index=index,
            sampling=self.options,
            max_tokens=None if self.n_predict < 0 else self.n_predict,
            stop=stop_list(data.stop),
            bound=bound(data),
            ignore_eos=bool(data.ignore_eos),
            logprobs=data.n_probs or None,
            reuse=data.cache_prompt is not False,
            priority=urgency(data),
            timeout=time_limit(data),
            tenant=service.tenant(call, data.cache_salt),
        )
        self.run = Run(model, spec, call, service.admission, self.totals)

    def final(self) -> dict[str, Any]:
        """The whole object; of a stream, what the parts have told is not in it again."""
        end, streamed = self.end, bool(self.data.stream)
        text = "".join(self.parts)
        tokens = [] if streamed else self.tokens
        scores = [] if streamed else self.scores
        kind = "limit" if end.reason == "length" else "word" if end.stop_sequence is not None else "eos"
        settings = {k: v for k, v in self.options.items() if k != "logit_bias"} | {
            "n_predict": self.n_predict
        }
        out = {
            "index": self.index,
            "content": "" if streamed else text,
            "tokens": tokens if self.data.return_tokens else [],
            "id_slot": 0,
            "stop": True,
            "model": self.name,
            "tokens_predicted": self.totals.completion_tokens,
            "tokens_evaluated": self.totals.prompt_tokens,
            "generation_settings": settings,
            "prompt": self.model.decode(self.prompt),
            "has_new_line": "\n" in text,
            "truncated": False,
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

    def take(self, event: Delta | End) -> dict[str, Any] | None:
        """The partial object for a piece; None for the end."""
        if isinstance(event, End):
            self.end = event
            return None
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
        return part


def native_prompts(value: Any, model: Model) -> list[list[int]]:
    """Prompts as llama.cpp takes them: text, ids, texts and ids in one list, an object, or a list of such."""
    if isinstance(value, list) and not any(isinstance(v, int) for v in value):
        if not value:
            raise invalid("prompt: it is empty", "prompt")
        return [_native_prompt(item, model, f"prompt[{i}]") for i, item in enumerate(value)]
    return [_native_prompt(value, model, "prompt")]


def _native_prompt(value: Any, model: Model, where: str) -> list[int]:
    if isinstance(value, dict):
        if value.get("multimodal_data"):
            raise invalid(f"{where}.multimodal_data: this model reads text only", f"{where}.multimodal_data")
        if not isinstance(value := value.get("prompt_string"), str):
            raise invalid(f"{where}.prompt_string: it must be text", f"{where}.prompt_string")
    if not isinstance(value, list) or not any(isinstance(v, str) for v in value):
        return read_prompts([value] if isinstance(value, list) else value, model, where)[0]
    ids: list[int] = []
    for i, item in enumerate(value):
        if isinstance(item, str):
            ids += model.encode(item, add_special=i == 0, parse_special=True)
        elif isinstance(item, int):
            ids += read_prompts([item], model, where)[0]
        else:
            raise invalid(f"{where}[{i}]: it must be text or a token id", f"{where}[{i}]")
    return ids


async def native_frames(writers: list[NativeWriter]) -> AsyncGenerator[dict[str, Any], None]:
    """A partial object for each piece, and the whole one of each prompt at the end."""
    async with contextlib.aclosing(in_order([writer.run for writer in writers])) as events:
        async for event in events:
            if (part := writers[event.index].take(event)) is not None:
                yield part
    for writer in writers:
        yield writer.final()


def _writers(
    service: Services, data: NativeRequest, call: Call, name: str, model: Model
) -> list[NativeWriter]:
    prompts = native_prompts(data.prompt, model)
    if len(prompts) > service.config.max_n:
        raise invalid(f"prompt: at most {service.config.max_n} prompts, not {len(prompts)}", "prompt")
    return [NativeWriter(service, data, call, name, model, ids, i) for i, ids in enumerate(prompts)]


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
    async with service.models.use(data.model, call) as (entry, model):
        writers = _writers(service, data, call, entry.name, model)
        async with contextlib.aclosing(native_frames(writers)) as frames:
            async for frame in frames:
                yield sse(frame)


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
    async with service.models.use(data.model, call) as (entry, model):
        writers = _writers(service, data, call, entry.name, model)
        async with contextlib.aclosing(native_frames(writers)) as parts:
            answers = [part async for part in parts][-len(writers) :]
        return Whole(answers if len(answers) > 1 else answers[0])


HANDLERS = [
    health,
    metrics,
    tokenize,
    detokenize,
    apply_template,
    input_tokens,
    props,
    set_props,
    slots,
    completion,
]
