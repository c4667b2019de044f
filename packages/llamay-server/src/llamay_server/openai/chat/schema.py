"""The body of POST /v1/chat/completions, with the extensions that local servers agree on."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from llamay_server.openai.messages import ChatMessage
from llamay_server.openai.objects import PromptCacheOptions, StreamOptions
from llamay_server.pipeline.sampling import SamplingFields


class ChatCompletionRequest(SamplingFields, kw_only=True):
    """Body of POST /v1/chat/completions."""

    messages: list[ChatMessage]
    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None
    max_tokens: Annotated[int, Meta(ge=-1, le=2**63 - 1)] | None = None
    max_completion_tokens: Annotated[int, Meta(ge=-1, le=2**63 - 1)] | None = None
    stop: str | list[str] | None = None
    include_stop_str_in_output: bool | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    prompt_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    response_format: dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    functions: list[dict[str, Any]] | None = None
    function_call: str | dict[str, Any] | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    enable_thinking: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    chat_template: str | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    echo: bool | None = None
    return_token_ids: bool | None = None
    timings_per_token: bool | None = None
    return_progress: bool | None = None
    context: str | None = None
    modalities: list[str] | None = None
    audio: dict[str, Any] | None = None
    user: str | None = None
    metadata: dict[str, Any] | None = None
    store: bool | None = None
    service_tier: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_options: PromptCacheOptions | None = None
    prompt_cache_retention: str | None = None
    prediction: dict[str, Any] | None = None
    web_search_options: dict[str, Any] | None = None
    verbosity: str | None = None
    moderation: Any = None
    truncate: bool | None = None
