"""The body of a message, read into a `ChatRequest`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from llamay_server.anthropic.content import read_messages
from llamay_server.chat.conversation import Conversation
from llamay_server.chat.profile import behind_profile, fill_from_profile, profile_max_tokens, profile_stop
from llamay_server.chat.request import ChatRequest
from llamay_server.chat.tools import Tool, Toolbox, choose, make_tool
from llamay_server.http.bodies import boolean
from llamay_server.http.errors import ApiError, invalid, unsupported
from llamay_server.pipeline.constraints import format_constraint
from llamay_server.pipeline.delivery import Delivery, generation_request, stop_list
from llamay_server.pipeline.sampling import SamplingFields, sampling_options

if TYPE_CHECKING:
    from llamay_server.anthropic.schema import CountTokensRequest, MessagesRequest
    from llamay_server.chat.conversation import Message
    from llamay_server.chat.kept import KeptAnswer
    from llamay_server.engine.constraint import OutputConstraint
    from llamay_server.engine.protocol import Model
    from llamay_server.http.exchange import Exchange
    from llamay_server.services import Services
    from llamay_server.store import Profile


@dataclass(frozen=True, slots=True)
class MessageInput:
    """The part of a body that counting tokens and answering read alike.

    Attributes:
        conversation: in no dialect.
        thread: the kept conversation that this one continues.
        tools: the tools as the client sent them, with this request or with the one that created the thread.

    """

    conversation: Conversation
    thread: KeptAnswer | None
    tools: list[dict[str, Any]]


def read_input(
    data: CountTokensRequest, profile: Profile, service: Services, exchange: Exchange
) -> MessageInput:
    """Return the conversation of a body. Raises a 400 for a wrong field, and a 404 for a thread that is not kept."""
    thread = _thread(data, service, exchange)
    if not data.messages:
        raise invalid("messages: at least one message is required", "messages")
    if data.mcp_servers:
        raise unsupported("mcp_servers")
    earlier: list[Message] = thread.messages if thread is not None else []
    tools = thread.items if thread is not None else list(data.tools or ())
    call_ids = {call["id"] for m in earlier for call in m.get("tool_calls", ())}
    new = read_messages(data.messages, data.system, call_ids)
    messages = [*earlier, *new] if thread is not None else behind_profile(new, profile)
    effort = None if data.output_config is None else data.output_config.effort
    conversation = Conversation(
        messages=messages,
        toolbox=_choice(data.tool_choice, _tools(tools, exchange)),
        think=None if data.thinking is None else data.thinking.type != "disabled",
        template_options={} if effort is None else {"reasoning_effort": effort},
        continue_final=messages[-1]["role"] == "assistant",
    )
    return MessageInput(conversation, thread, tools)


def read_request(
    data: MessagesRequest,
    given: MessageInput,
    profile: Profile,
    model: Model,
    service: Services,
    exchange: Exchange,
) -> ChatRequest:
    """Return the request in no dialect, for a body whose conversation has been read."""
    thinking = data.thinking
    budget = None
    if thinking and thinking.type == "enabled" and thinking.budget_tokens and model.info.template_thinks:
        budget = thinking.budget_tokens
    fields = SamplingFields(
        temperature=data.temperature,
        top_p=data.top_p,
        top_k=data.top_k,
        min_p=data.min_p,
        seed=data.seed,
        ignore_eos=data.ignore_eos,
    )
    generation = generation_request(
        fields,
        sampling_options(fill_from_profile(fields, profile), model),
        max_tokens=profile_max_tokens(profile) if data.max_tokens is None else data.max_tokens,
        stop=stop_list(
            profile_stop(profile) if data.stop_sequences is None else data.stop_sequences, "stop_sequences"
        ),
        tenant=service.tenant(exchange, data.cache_salt),
    )
    eager = [boolean(tool, "eager_input_streaming", f"tools[{n}]") for n, tool in enumerate(given.tools)]
    delivery = Delivery(
        constraint=_constraint(data),
        reasoning_budget=budget,
        bind_calls=service.config.bind_calls or any(eager),
        calls_in_parts=True,
    )
    return ChatRequest(given.conversation, generation, delivery)


def _constraint(data: CountTokensRequest) -> OutputConstraint | None:
    if data.output_format is not None:
        return format_constraint(data.output_format, "output_format")
    form = None if data.output_config is None else data.output_config.format
    return format_constraint(form, "output_config.format")


def _tools(tools: Sequence[dict[str, Any]] | None, exchange: Exchange) -> list[Tool]:
    out = []
    for n, item in enumerate(tools or ()):
        kind = item.get("type") or "custom"
        if kind != "custom":
            # These tools run on Anthropic's own machines. Agents always list some; they are left out with a warning.
            exchange.warn(f"tools of type {kind} are not available and were left out")
            continue
        out.append(
            make_tool(
                item.get("name"),
                item.get("description"),
                item.get("input_schema"),
                f"tools[{n}]",
                item.get("strict"),
            )
        )
    return out


def _choice(value: dict[str, Any] | None, tools: Sequence[Tool]) -> Toolbox:
    given = value or {}
    kind = given.get("type", "auto")
    parallel = not boolean(given, "disable_parallel_tool_use", "tool_choice")
    if kind == "auto":
        return choose(tools, "auto", None, parallel, "tool_choice")
    if kind == "any":
        return choose(tools, "required", None, parallel, "tool_choice")
    if kind == "none":
        return Toolbox(tuple(tools), "none", parallel)
    if kind == "tool":
        name = given.get("name")
        if not isinstance(name, str):
            raise invalid("tool_choice.name: it is missing", "tool_choice.name")
        return choose(tools, "required", [name], parallel, "tool_choice.name")
    raise invalid(
        f"tool_choice.type: {str(kind)[:40]!r} is unknown; use auto, any, tool or none", "tool_choice.type"
    )


def _thread(data: CountTokensRequest, service: Services, exchange: Exchange) -> KeptAnswer | None:
    """Return the kept conversation that a request continues; None for one that continues none."""
    thread = data.thread
    if thread is None or thread.type == "create":
        return None
    if not thread.previous_message_id:
        raise invalid("thread.previous_message_id: it is missing", "thread.previous_message_id")
    found = service.threads.find(thread.previous_message_id, exchange.owner)
    if found is None:
        message = f"There is no message {thread.previous_message_id[:80]!r} to go on from."
        raise ApiError("not_found", message, param="thread.previous_message_id", code="thread_not_found")
    for name in ("system", "tools"):
        if getattr(data, name) is not None:
            raise invalid(f"{name}: a thread keeps what it was created with", name)
    return found
