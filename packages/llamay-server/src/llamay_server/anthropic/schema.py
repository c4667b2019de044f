"""The bodies of Anthropic's Messages API."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from llamay_server.pipeline.sampling import Count, Int64, Unit


class CacheControl(Struct):
    """A breakpoint of the prompt cache."""

    type: Literal["ephemeral"] = "ephemeral"
    ttl: Literal["5m", "1h"] | None = None


class Diagnostics(Struct):
    """Asks why the prompt did not find the K/V of an earlier message in the prefix cache."""

    previous_message_id: str | None = None


class _Block(Struct, kw_only=True):
    cache_control: CacheControl | None = None
    """Says that later prompts will begin like this one up to the end of this block."""


class TextBlock(_Block, tag_field="type", tag="text"):
    """Text."""

    text: str


class ImageBlock(_Block, tag_field="type", tag="image"):
    """An image."""

    source: dict[str, Any]


class DocumentBlock(_Block, tag_field="type", tag="document"):
    """A document; only plain text can be read."""

    source: dict[str, Any]
    title: str | None = None
    context: str | None = None


class ToolUseBlock(_Block, tag_field="type", tag="tool_use"):
    """A call that the assistant made."""

    id: str
    name: str
    input: dict[str, Any] | None = None


class ToolResultBlock(_Block, tag_field="type", tag="tool_result"):
    """The result of a call."""

    tool_use_id: str
    content: str | list[dict[str, Any]] | None = None
    is_error: bool | None = None


class ThinkingBlock(Struct, tag_field="type", tag="thinking"):
    """The reasoning of an earlier answer, replayed."""

    thinking: str
    signature: str | None = None


class RedactedThinkingBlock(Struct, tag_field="type", tag="redacted_thinking"):
    """Reasoning that is encrypted for Anthropic; it does not become part of the prompt."""

    data: str


class SearchResultBlock(_Block, tag_field="type", tag="search_result"):
    """A search hit as context."""

    content: list[dict[str, Any]]
    title: str | None = None
    source: str | None = None


Block = (
    TextBlock
    | ImageBlock
    | DocumentBlock
    | ToolUseBlock
    | ToolResultBlock
    | ThinkingBlock
    | RedactedThinkingBlock
    | SearchResultBlock
)


class InputMessage(Struct):
    """One message of a conversation."""

    role: Literal["user", "assistant", "system"]
    content: str | list[Block]


class Thinking(Struct):
    """The request's wishes for reasoning: whether the model reasons, with how many tokens, and how that is shown."""

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: Count | None = None
    display: Literal["omitted", "summarized", "full"] | None = None


class Thread(Struct):
    """A conversation that the server keeps: one is created, or continued after the message `previous_message_id`."""

    type: Literal["create", "continue"]
    previous_message_id: str | None = None


class OutputConfig(Struct):
    """The effort of the answer, and its form."""

    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    format: dict[str, Any] | None = None


class CountTokensRequest(Struct, kw_only=True):
    """Body of POST /v1/messages/count_tokens."""

    messages: list[InputMessage]
    model: str | None = None
    system: str | list[TextBlock] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: dict[str, Any] | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    output_format: dict[str, Any] | None = None
    thread: Thread | None = None
    mcp_servers: list[Any] | None = None


class MessagesRequest(CountTokensRequest, kw_only=True):
    """Body of POST /v1/messages."""

    max_tokens: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    stop_sequences: list[str] | None = None
    stream: bool | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Unit | None = None
    top_k: Annotated[int, Meta(ge=-1, le=2**31 - 1)] | None = None
    min_p: Unit | None = None
    seed: Int64 | None = None
    metadata: dict[str, Any] | None = None
    service_tier: str | None = None
    container: Any = None
    context_management: dict[str, Any] | None = None
    cache_control: CacheControl | None = None
    diagnostics: Diagnostics | None = None
    ignore_eos: bool | None = None
    context: str | None = None
    cache_salt: Annotated[str, Meta(max_length=512)] | None = None
