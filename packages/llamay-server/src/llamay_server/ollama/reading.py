"""The bodies of /api/generate and /api/chat, read into a `ChatRequest`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from llamay_server.chat.conversation import Conversation
from llamay_server.chat.request import ChatRequest
from llamay_server.engine.constraint import OutputConstraint
from llamay_server.http.errors import ApiError, invalid
from llamay_server.ollama.messages import read_messages
from llamay_server.ollama.schema import OllamaMessage, Options
from llamay_server.openai.tools import openai_choice, openai_tools
from llamay_server.pipeline.delivery import Delivery, generation_request, stop_list
from llamay_server.pipeline.sampling import SamplingFields, sampling_options
from llamay_server.settings import parse_seconds

if TYPE_CHECKING:
    from llamay_server.chat.conversation import Message
    from llamay_server.chat.tools import Toolbox
    from llamay_server.engine.protocol import Model
    from llamay_server.http.exchange import Exchange
    from llamay_server.models.entry import Entry
    from llamay_server.ollama.schema import CommonFields, KeepAlive, OllamaChatRequest
    from llamay_server.services import Services

# Ollama's own defaults; clients that compare answers rely on them.
DEFAULTS: Mapping[str, Any] = {
    "temperature": 0.8,
    "top_k": 40,
    "top_p": 0.9,
    "min_p": 0.0,
    "repeat_penalty": 1.1,
    "repeat_last_n": 64,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}
_SAMPLED = [
    name
    for name in Options.__struct_fields__
    if name in SamplingFields.__struct_fields__ and name != "ignore_eos"
]


def read_chat(
    data: OllamaChatRequest, entry: Entry, model: Model, service: Services, exchange: Exchange
) -> ChatRequest:
    """Return the request of /api/chat in no dialect. Raises a 400 for a field that is wrong or cannot be honoured."""
    messages = read_messages(data.messages or [])
    has_system = bool(messages) and messages[0]["role"] == "system"
    messages = [*profile_messages(entry, "" if has_system else None), *messages]
    toolbox = openai_choice(data.tool_choice, openai_tools(data.tools), None)
    return read_request(data, messages, entry, model, service, exchange, toolbox=toolbox)


def read_request(
    data: CommonFields,
    messages: list[Message],
    entry: Entry,
    model: Model,
    service: Services,
    exchange: Exchange,
    *,
    toolbox: Toolbox | None = None,
) -> ChatRequest:
    """Return the request for these messages in no dialect; without messages, one whose prompt is still to be set."""
    options = _options(entry, data.options)
    fields = SamplingFields(
        **{name: getattr(options, name) for name in _SAMPLED if getattr(options, name) is not None},
        ignore_eos=options.ignore_eos,
    )
    if fields.seed == -1:
        fields.seed = None
    if data.think and not model.info.template_thinks:
        raise ApiError("invalid", f'"{entry.name}" does not support thinking', param="think")
    if options.num_ctx and options.num_ctx > model.info.context_length:
        size = model.info.context_length
        exchange.warn(f"num_ctx has no effect; this model was loaded with {size} tokens of context")
    conversation = Conversation(
        messages=messages,
        think=None if data.think is None else bool(data.think),
        template_options={"reasoning_effort": data.think} if isinstance(data.think, str) else {},
        drop_turns=data.truncate is not False,
    )
    if toolbox is not None:
        conversation.toolbox = toolbox
        conversation.continue_final = messages[-1]["role"] == "assistant"
    generation = generation_request(
        fields,
        sampling_options(fields, model, DEFAULTS),
        max_tokens=options.num_predict,
        stop=stop_list(options.stop, "options.stop"),
        logprobs=(data.top_logprobs or 0) if data.logprobs or data.top_logprobs else None,
        tenant=service.tenant(exchange),
    )
    delivery = Delivery(constraint=_constraint(data.format), bind_calls=service.config.bind_calls)
    return ChatRequest(conversation, generation, delivery)


def _options(entry: Entry, given: Options | None) -> Options:
    """Return the model's own parameters, overridden by the request's options."""
    own = msgspec.convert(dict(entry.profile.parameters), Options)
    for name in Options.__struct_fields__:
        if given is not None and (value := getattr(given, name)) is not None:
            setattr(own, name, value)
    return own


def profile_messages(entry: Entry, system: str | None) -> list[Message]:
    """Return the messages of the model's profile before a conversation; None for `system` takes its system prompt."""
    system = entry.profile.system if system is None else system
    own = read_messages(msgspec.convert(list(entry.profile.messages), list[OllamaMessage]))
    if system and not (own and own[0]["role"] == "system"):
        own.insert(0, {"role": "system", "content": system})
    return own


def _constraint(form: Any) -> OutputConstraint | None:
    if form is None or form == "":
        return None
    if form == "json":
        return OutputConstraint("json_object", None, "format")
    if isinstance(form, dict):
        return OutputConstraint("json_schema", form, "format")
    raise invalid('invalid format: it must be "json" or a JSON schema', "format")


def keep_alive_seconds(value: KeepAlive) -> float:
    """Return the seconds that a model stays loaded; negative for ever. Raises a 400 for a text that is no duration."""
    if isinstance(value, str):
        try:
            return parse_seconds(value)
        except ValueError:
            raise invalid(f"invalid duration in keep_alive: {value[:40]!r}", "keep_alive") from None
    return value
