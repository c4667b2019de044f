"""Embeddings in no dialect: texts as ids, and one embedding of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from llamay_server.http.errors import ApiError, invalid
from llamay_server.pipeline.admission import run_on_texts
from llamay_server.pipeline.prompts import read_native_prompts

if TYPE_CHECKING:
    from llamay_server.engine.protocol import Floats, Model
    from llamay_server.http.exchange import Exchange
    from llamay_server.pipeline.admission import AdmissionControl

MAX_TEXTS = 2048
"""Texts in one request, as at OpenAI."""


def read_texts(value: Any, model: Model, where: str) -> list[list[int]]:
    """Return the ids of texts, in which control tokens that a text spells out are plain text."""
    many = isinstance(value, list) and not any(isinstance(v, int) for v in value)
    if many and len(value) > MAX_TEXTS:
        raise invalid(f"{where}: at most {MAX_TEXTS} texts in one request, not {len(value)}", where)
    if many:
        value = [_content_text(each, f"{where}[{i}]") for i, each in enumerate(value)]
    return read_native_prompts(_content_text(value, where), model, where, parse_special=False)


def _content_text(value: Any, where: str) -> Any:
    """Return the text of an object with `content`, which llama.cpp takes beside texts; other values as they are."""
    if not isinstance(value, dict) or "content" not in value:
        return value
    where = f"{where}.content"
    parts = value["content"]
    if not isinstance(parts, list) or not parts:
        raise invalid(f"{where}: it must be a list of parts with a type", where)
    for i, part in enumerate(parts):
        if not isinstance(part, dict) or part.get("type") != "text":
            raise invalid(f"{where}[{i}].type: this model reads text only", f"{where}[{i}].type")
        if not isinstance(part.get("text"), str):
            raise invalid(f"{where}[{i}].text: it must be text", f"{where}[{i}].text")
    return "".join(part["text"] for part in parts)


async def embed(
    admission: AdmissionControl,
    exchange: Exchange,
    model: Model,
    texts: Sequence[Sequence[int]],
    **options: Any,
) -> tuple[Floats, int]:
    """Return one embedding of each text, float32 (n, dimensions), and the number of tokens in all.

    `options` are those of `Model.embed`. Raises a 400 for a text that is longer than the model's context.
    """
    limit = model.info.context_length
    for i, ids in enumerate(texts):
        if len(ids) > limit:
            raise ApiError(
                "overflow",
                f"Text {i} is too large to embed: it has {len(ids)} tokens, and this model's maximum context "
                f"length is {limit} tokens, so it exceeds the available context size.",
                param="input",
                code="context_length_exceeded",
                extra={"n_prompt_tokens": len(ids), "n_ctx": limit},
            )
    vectors = await run_on_texts(
        admission, exchange, lambda progress: model.embed(texts, progress=progress, **options)
    )
    tokens = sum(map(len, texts))
    admission.metrics.prompt_tokens.labels(model.info.name).inc(tokens)
    exchange.phase = None
    return vectors, tokens


def check_dimensions(dimensions: int | None, model: Model) -> None:
    """Refuse a number of dimensions that the model's embeddings do not have."""
    width = model.info.embedding_length
    if dimensions is not None and not 1 <= dimensions <= width:
        raise invalid(
            f"dimensions: this model's embeddings have 1 to {width}, not {dimensions}", "dimensions"
        )
