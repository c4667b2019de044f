"""The bodies of POST /api/generate and /api/chat."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from llamay_server.pipeline.sampling import Int64, Unit

KeepAlive = float | str
Effort = Literal["low", "medium", "high", "max"]


class Options(Struct, kw_only=True):
    """`options`: sampling fields, and settings of Ollama's runner, which have no effect here."""

    num_ctx: Annotated[int, Meta(ge=0)] | None = None
    num_predict: Annotated[int, Meta(ge=-2)] | None = None
    seed: Int64 | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_k: Annotated[int, Meta(ge=-1)] | None = None
    top_p: Unit | None = None
    min_p: Unit | None = None
    typical_p: Unit | None = None
    repeat_last_n: Annotated[int, Meta(ge=-1)] | None = None
    repeat_penalty: Annotated[float, Meta(gt=0, le=10)] | None = None
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    mirostat: Annotated[int, Meta(ge=0, le=2)] | None = None
    mirostat_tau: Annotated[float, Meta(ge=0, le=1000)] | None = None
    mirostat_eta: Annotated[float, Meta(ge=0, le=1000)] | None = None
    tfs_z: float | None = None
    stop: list[str] | None = None
    num_keep: int | None = None
    num_batch: int | None = None
    num_gpu: int | None = None
    main_gpu: int | None = None
    num_thread: int | None = None
    use_mmap: bool | None = None
    use_mlock: bool | None = None
    numa: bool | None = None
    low_vram: bool | None = None
    vocab_only: bool | None = None
    f16_kv: bool | None = None
    penalize_newline: bool | None = None
    ignore_eos: bool | None = None


class CommonFields(Struct, kw_only=True):
    """The fields that both bodies have."""

    model: str | None = None
    format: Any = None
    options: Options | None = None
    stream: bool | None = None
    keep_alive: KeepAlive | None = None
    think: bool | Effort | None = None
    truncate: bool | None = None
    shift: bool | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None


class GenerateRequest(CommonFields, kw_only=True):
    """Body of POST /api/generate."""

    prompt: str | None = None
    suffix: str | None = None
    system: str | None = None
    template: str | None = None
    context: list[int] | None = None
    raw: bool | None = None
    images: list[str] | None = None


class OllamaMessage(Struct):
    """One message of a conversation."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str | None = None
    thinking: str | None = None
    images: list[str] | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None


class OllamaChatRequest(CommonFields, kw_only=True):
    """Body of POST /api/chat."""

    messages: list[OllamaMessage] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
