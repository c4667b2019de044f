"""The body of POST /v1/responses."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from llamay_server.openai.objects import PromptCacheOptions, StreamOptions
from llamay_server.pipeline.sampling import SamplingFields

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


class ReasoningOptions(Struct):
    """The effort of the model's reasoning, and the form in which it is delivered."""

    effort: Effort | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None
    generate_summary: str | None = None


class TextOptions(Struct):
    """The format of the text."""

    format: dict[str, Any] | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class ResponsesRequest(SamplingFields, kw_only=True):
    """Body of POST /v1/responses."""

    input: str | list[dict[str, Any]] | None = None
    instructions: str | None = None
    model: str | None = None
    previous_response_id: str | None = None
    store: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    background: bool | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    max_tool_calls: int | None = None
    max_output_tokens: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    text: TextOptions | None = None
    reasoning: ReasoningOptions | None = None
    include: list[str] | None = None
    truncation: Literal["auto", "disabled"] | None = None
    metadata: dict[str, Any] | None = None
    conversation: Any = None
    context: str | None = None
    prompt: Any = None
    user: str | None = None
    safety_identifier: str | None = None
    service_tier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_options: PromptCacheOptions | None = None
    prompt_cache_retention: str | None = None
    timings_per_token: bool | None = None
    return_progress: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
