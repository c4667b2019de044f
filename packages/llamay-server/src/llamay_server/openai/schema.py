"""Requests of OpenAI's chat, completions and embeddings routes, with the extensions that local servers agree on."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from llamay_server.pipeline.sampling import Count, SamplingFields


class TextPart(Struct, tag_field="type", tag="text"):
    """Words."""

    text: str
    prompt_cache_breakpoint: dict[str, Any] | None = None


class RefusalPart(Struct, tag_field="type", tag="refusal"):
    """An earlier refusal, replayed."""

    refusal: str


class ImagePart(Struct, tag_field="type", tag="image_url"):
    """A picture."""

    image_url: dict[str, Any] | str


class AudioPart(Struct, tag_field="type", tag="input_audio"):
    """A sound."""

    input_audio: dict[str, Any]


class FilePart(Struct, tag_field="type", tag="file"):
    """A document."""

    file: dict[str, Any]


class ThinkingPart(Struct, tag_field="type", tag="thinking"):
    """Reasoning, replayed inside content."""

    thinking: str


Part = TextPart | RefusalPart | ImagePart | AudioPart | FilePart | ThinkingPart


class ChatMessage(Struct):
    """One message of a conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[Part] | None = None
    name: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None
    function_call: dict[str, Any] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    audio: dict[str, Any] | None = None


class StreamOptions(Struct):
    """What a stream says beside its text."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None
    continuous_usage_stats: bool | None = None


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
    prompt_cache_options: dict[str, Any] | None = None
    prompt_cache_retention: str | None = None
    prediction: dict[str, Any] | None = None
    web_search_options: dict[str, Any] | None = None
    verbosity: str | None = None
    moderation: Any = None
    truncate: bool | None = None


class CompletionRequest(SamplingFields, kw_only=True):
    """Body of POST /v1/completions."""

    prompt: str | list[str | int | list[int]]
    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None
    best_of: Count | None = None
    max_tokens: Annotated[int, Meta(ge=-1, le=2**63 - 1)] | None = None
    stop: str | list[str] | None = None
    include_stop_str_in_output: bool | None = None
    logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    prompt_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    response_format: dict[str, Any] | None = None
    echo: bool | None = None
    suffix: str | None = None
    return_token_ids: bool | None = None
    timings_per_token: bool | None = None
    return_progress: bool | None = None
    context: str | None = None
    user: str | None = None
    metadata: dict[str, Any] | None = None


class EmbeddingRequest(Struct, kw_only=True):
    """Body of POST /v1/embeddings."""

    input: str | list[str | int | list[str | int] | dict[str, Any]] | dict[str, Any]
    model: str | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None
    user: str | None = None
