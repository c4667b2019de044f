"""The bodies of POST /completion and /infill."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from llamay_server.pipeline.infill import Extra
from llamay_server.pipeline.sampling import SamplingFields


class NativeRequest(SamplingFields, kw_only=True):
    """Body of POST /completion."""

    prompt: str | list[str | int | list[int | str] | dict[str, Any]] | dict[str, Any]
    model: str | None = None
    n_predict: Annotated[int, Meta(ge=-2, le=2**31 - 1)] | None = None
    max_tokens: Annotated[int, Meta(ge=-1, le=2**31 - 1)] | None = None
    stop: str | list[str] | None = None
    stream: bool | None = None
    n_probs: Annotated[int, Meta(ge=0, le=100)] | None = None
    post_sampling_probs: bool | None = None
    return_tokens: bool | None = None
    return_progress: bool | None = None
    response_fields: list[str] | None = None
    timings_per_token: bool | None = None


class InfillRequest(NativeRequest, kw_only=True):
    """Body of POST /infill: the text around the gap, and pieces of other files; `prompt` begins the middle."""

    prompt: str | list[str | int | list[int | str] | dict[str, Any]] | dict[str, Any] = ""
    input_prefix: str = ""
    input_suffix: str = ""
    input_extra: list[Extra] | None = None
