"""The bodies of /v1/contexts."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from llamay_server.openai.messages import ChatMessage
from llamay_server.pipeline.sampling import SamplingFields

Name = Annotated[str, Meta(max_length=256)]


class PromptFields(Struct, kw_only=True):
    """A prompt: text, token ids, or a conversation."""

    prompt: str | None = None
    tokens: list[int] | None = None
    messages: list[ChatMessage] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    add_generation_prompt: bool | None = None


class CreateContext(PromptFields, kw_only=True):
    """Body of POST /v1/contexts."""

    model: str | None = None
    label: Name | None = None
    marking: Name | None = None


class ExtendContext(PromptFields, kw_only=True):
    """Body of POST /v1/contexts/{id}/extend."""


class ExplainMiss(PromptFields, kw_only=True):
    """Body of POST /v1/contexts/{id}/explain-miss."""


class ForkContext(Struct, kw_only=True):
    """Body of POST /v1/contexts/{id}/fork, which may be left out."""

    n: int | None = None
    label: Name | None = None


class TruncateContext(Struct, kw_only=True):
    """Body of POST /v1/contexts/{id}/truncate."""

    tokens: Annotated[int, Meta(ge=1)]


class GenerateFromContext(SamplingFields, kw_only=True):
    """Body of POST /v1/contexts/{id}/generate."""

    prompt: str | None = None
    tokens: list[int] | None = None
    messages: list[ChatMessage] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    max_tokens: Annotated[int, Meta(ge=-1, le=2**63 - 1)] | None = None
    stop: str | list[str] | None = None
    stream: bool | None = None
    n: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None
    choose: Literal["mean_logprob", "sum_logprob"] | None = None
    commit: bool | None = None
    response_format: dict[str, Any] | None = None
