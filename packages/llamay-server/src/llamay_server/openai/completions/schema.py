"""The body of POST /v1/completions, with the extensions that local servers agree on."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from llamay_server.openai.objects import StreamOptions
from llamay_server.pipeline.sampling import Count, SamplingFields


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
