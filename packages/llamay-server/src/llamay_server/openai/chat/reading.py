"""The body of a chat completion, read into a `ChatRequest`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from llamay_server.chat.conversation import Conversation, template_options
from llamay_server.chat.profile import behind_profile, fill_from_profile, profile_max_tokens, profile_stop
from llamay_server.chat.request import ChatRequest
from llamay_server.http.errors import invalid, unsupported
from llamay_server.openai.messages import TextPart, read_messages
from llamay_server.openai.tools import openai_choice, openai_tools
from llamay_server.pipeline.constraints import output_constraint
from llamay_server.pipeline.delivery import Delivery, generation_request, stop_list
from llamay_server.pipeline.sampling import sampling_options

if TYPE_CHECKING:
    from llamay_server.chat.conversation import Message
    from llamay_server.engine.protocol import Model
    from llamay_server.http.exchange import Exchange
    from llamay_server.openai.chat.schema import ChatCompletionRequest
    from llamay_server.openai.messages import ChatMessage
    from llamay_server.openai.objects import PromptCacheOptions
    from llamay_server.services import Services
    from llamay_server.store import Profile


def read_request(
    data: ChatCompletionRequest, profile: Profile, model: Model, service: Services, exchange: Exchange
) -> ChatRequest:
    """Return the request in no dialect. Raises a 400 for a field that is wrong or cannot be honoured."""
    fill_from_profile(data, profile)
    if data.stop is None:
        data.stop = profile_stop(profile)
    if data.max_tokens is None and data.max_completion_tokens is None:
        data.max_tokens = profile_max_tokens(profile)
    _refuse_unsupported(data)
    conversation = _conversation(data, profile)
    n = data.n or 1
    if n > service.config.max_n:
        raise invalid(f"n: at most {service.config.max_n} choices, not {n}", "n")
    most = data.max_completion_tokens if data.max_completion_tokens is not None else data.max_tokens
    return ChatRequest(
        conversation,
        generation_request(
            data,
            sampling_options(data, model),
            max_tokens=most,
            stop=stop_list(data.stop),
            logprobs=(data.top_logprobs or 0) if data.logprobs else None,
            reuse=uses_cache(data.prompt_cache_options, _marks_prompt(data.messages)),
            tenant=service.tenant(exchange, data.cache_salt),
        ),
        Delivery(
            choices=n,
            constraint=output_constraint(data, data.response_format),
            include_stop=bool(data.include_stop_str_in_output),
            progress=bool(data.return_progress and data.stream),
            bind_calls=service.config.bind_calls,
            calls_in_parts=True,
        ),
    )


def _refuse_unsupported(data: ChatCompletionRequest) -> None:
    if data.chat_template:
        raise unsupported("chat_template")
    if data.prompt_logprobs is not None and data.stream:
        raise unsupported("prompt_logprobs", "a stream does not tell them")
    if data.echo:
        raise unsupported("echo", "a chat answer does not repeat its prompt")
    if "audio" in (data.modalities or ()):
        raise unsupported("modalities", "this model writes text only")
    if data.top_logprobs is not None and not data.logprobs and data.top_logprobs > 0:
        raise invalid("top_logprobs: it needs logprobs to be true", "top_logprobs")
    if data.continue_final_message and data.add_generation_prompt:
        raise invalid(
            "continue_final_message: it cannot go with add_generation_prompt; set one",
            "continue_final_message",
        )


def _conversation(data: ChatCompletionRequest, profile: Profile) -> Conversation:
    messages: list[Message] = read_messages(data.messages)
    if not messages:
        raise invalid("messages: it is empty; send at least one message", "messages")
    ends_open = messages[-1]["role"] == "assistant"
    if ends_open and len(messages) > 1 and messages[-2]["role"] == "assistant":
        raise invalid(
            "messages: two assistant messages at the end; which one to go on from is unclear", "messages"
        )
    if data.continue_final_message and not ends_open:
        raise invalid(
            "continue_final_message: the last message is not the assistant's", "continue_final_message"
        )
    template, think = template_options(data.chat_template_kwargs), data.enable_thinking
    if data.reasoning_effort is not None:
        template.setdefault("reasoning_effort", data.reasoning_effort)
        if think is None and data.reasoning_effort == "none":
            think = False
    choice = data.tool_choice
    if choice is None and data.functions and data.function_call is not None:
        choice = data.function_call
    parallel = data.parallel_tool_calls if not data.functions else False
    return Conversation(
        messages=behind_profile(messages, profile),
        toolbox=openai_choice(choice, openai_tools(data.tools, data.functions), parallel),
        think=think,
        template_options=template,
        continue_final=ends_open
        and not data.add_generation_prompt
        and data.continue_final_message is not False,
        open_turn=data.add_generation_prompt is not False,
        drop_turns=bool(data.truncate),
    )


def uses_cache(options: PromptCacheOptions | None, marked: bool) -> bool:
    """Return whether the prefix cache may be used: in the mode "explicit" only for a prompt with a breakpoint."""
    return marked or options is None or options.mode != "explicit"


def _marks_prompt(messages: Sequence[ChatMessage]) -> bool:
    parts = [part for m in messages if isinstance(m.content, list) for part in m.content]
    return any(isinstance(part, TextPart) and part.prompt_cache_breakpoint for part in parts)
