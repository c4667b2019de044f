"""The body of a response, read into a `ChatRequest`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from llamay_server.chat.conversation import Conversation, template_options
from llamay_server.chat.profile import behind_profile, fill_from_profile, profile_max_tokens, profile_stop
from llamay_server.chat.request import ChatRequest
from llamay_server.http.errors import invalid, unsupported
from llamay_server.openai.chat.reading import uses_cache
from llamay_server.openai.responses.items import read_input, read_tools
from llamay_server.openai.tools import openai_choice
from llamay_server.pipeline.constraints import output_constraint
from llamay_server.pipeline.delivery import Delivery, generation_request, stop_list
from llamay_server.pipeline.sampling import sampling_options

if TYPE_CHECKING:
    from llamay_server.chat.conversation import Message
    from llamay_server.chat.kept import KeptAnswer
    from llamay_server.engine.protocol import Model
    from llamay_server.http.exchange import Exchange
    from llamay_server.openai.responses.schema import ResponsesRequest
    from llamay_server.services import Services
    from llamay_server.store import Profile

_LOGPROBS = "message.output_text.logprobs"


@dataclass(frozen=True, slots=True)
class ResponseInput:
    """The parts of a response: the request in no dialect, its input items, and the response that it continues."""

    request: ChatRequest
    items: list[dict[str, Any]]
    previous: KeptAnswer | None


def read_request(
    data: ResponsesRequest, profile: Profile, model: Model, service: Services, exchange: Exchange
) -> ResponseInput:
    """Return the parts of a response. Raises a 400 for a field that cannot be honoured, and a 404 for lost items."""
    fill_from_profile(data, profile)
    if data.max_output_tokens is None:
        data.max_output_tokens = profile_max_tokens(profile)
    for name in ("conversation", "prompt"):
        if getattr(data, name) is not None:
            raise unsupported(name)
    if data.background and data.store is False:
        raise invalid("background: it needs store to be true", "background")
    if data.background and data.stream:
        raise unsupported("background", "a background response cannot be streamed")
    previous = None
    if data.previous_response_id:
        previous = service.responses.get(
            data.previous_response_id, exchange.owner, param="previous_response_id"
        )
    messages, items = _messages(data, previous, service, exchange)
    template = template_options(data.chat_template_kwargs)
    think = None
    if data.reasoning is not None and data.reasoning.effort is not None:
        template.setdefault("reasoning_effort", data.reasoning.effort)
        think = False if data.reasoning.effort == "none" else None
    conversation = Conversation(
        messages=messages if previous is not None else behind_profile(messages, profile),
        toolbox=openai_choice(data.tool_choice, read_tools(data.tools, exchange), data.parallel_tool_calls),
        think=think,
        template_options=template,
        drop_turns=data.truncation == "auto",
    )
    scored = _LOGPROBS in (data.include or ()) or bool(data.top_logprobs)
    generation = generation_request(
        data,
        sampling_options(data, model),
        max_tokens=0 if prewarms(data) else data.max_output_tokens,
        stop=stop_list(profile_stop(profile)),
        logprobs=(data.top_logprobs or 0) if scored else None,
        reuse=uses_cache(data.prompt_cache_options, _marks_prompt(items)),
        tenant=service.tenant(exchange, data.cache_salt),
    )
    delivery = Delivery(
        constraint=output_constraint(
            data, data.text.format if data.text is not None else None, "text.format"
        ),
        progress=bool(data.return_progress and data.stream),
        bind_calls=service.config.bind_calls,
        calls_in_parts=True,
    )
    return ResponseInput(ChatRequest(conversation, generation, delivery), items, previous)


def _messages(
    data: ResponsesRequest, previous: KeptAnswer | None, service: Services, exchange: Exchange
) -> tuple[list[Message], list[dict[str, Any]]]:
    """Return the messages of the conversation, and the items of its input."""
    earlier = previous.messages if previous is not None else []
    # Without input the turn is an empty one, as at OpenAI.
    given = "" if data.input is None and not earlier else data.input
    new, items = read_input(given, lambda item_id: service.responses.item(item_id, exchange.owner))
    messages = [*earlier, *new]
    if not messages:
        raise invalid("input: it is missing", "input")
    if data.instructions:
        messages.insert(0, {"role": "system", "content": data.instructions})
    return messages, items


def _marks_prompt(items: Sequence[Mapping[str, Any]]) -> bool:
    parts = [part for item in items if isinstance(item.get("content"), list) for part in item["content"]]
    return any(isinstance(part, Mapping) and part.get("prompt_cache_breakpoint") for part in parts)


def prewarms(data: ResponsesRequest) -> bool:
    """Return whether the request asks only for a prefill of its prompt."""
    return data.prompt_cache_options is not None and data.prompt_cache_options.prewarm is True
