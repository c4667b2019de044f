"""Token scores as OpenAI's clients read them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llamay_models import TokenScore
    from llamay_server.engine.protocol import Model

# JSON has no infinity; OpenAI sends this number for a token that cannot come.
_FLOOR = -9999.0


def _finite(value: float) -> float:
    return min(0.0, value) if value > _FLOOR else _FLOOR


def _spelled(raw: bytes, name: str) -> str:
    """Return a token as text; where its bytes are no whole characters, an escape that tells the bytes."""
    if not raw:
        return name
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{b:02x}" for b in raw)


def chat_logprobs(scores: Sequence[TokenScore], model: Model) -> dict[str, Any]:
    """Return `choices[].logprobs` of chat/completions."""

    def entry(token: int, logprob: float) -> dict[str, Any]:
        raw = model.token_bytes(token)
        return {
            "token": _spelled(raw, model.token_name(token)),
            "logprob": _finite(logprob),
            "bytes": list(raw),
        }

    content = [{**entry(s.token, s.logprob), "top_logprobs": [entry(t, p) for t, p in s.top]} for s in scores]
    return {"content": content, "refusal": None}


def legacy_logprobs(scores: Sequence[TokenScore], model: Model, offset: int, count: int) -> dict[str, Any]:
    """Return `choices[].logprobs` of completions; `offset` is where the first token's text begins.

    A token without a probability, as the first of a prompt is, has null.
    """
    tokens, chances, offsets = [], [], []
    tops: list[dict[str, float] | None] = []
    for s in scores:
        raw = model.token_bytes(s.token)
        text = _spelled(raw, model.token_name(s.token))
        tokens.append(text)
        known = not math.isnan(s.logprob)
        chances.append(_finite(s.logprob) if known else None)
        rivals = s.top[:count]
        best = {_spelled(model.token_bytes(t), model.token_name(t)): _finite(p) for t, p in rivals}
        if known:
            best.setdefault(text, _finite(s.logprob))
            tops.append(best if count else {text: _finite(s.logprob)})
        else:
            tops.append(None)
        offsets.append(offset)
        offset += len(text) if not text.startswith("bytes:") else 0
    return {"tokens": tokens, "token_logprobs": chances, "top_logprobs": tops, "text_offset": offsets}


def prompt_logprobs(scores: Sequence[TokenScore], model: Model) -> list[dict[str, Any] | None]:
    """Return vLLM's `prompt_logprobs`: each token of a prompt with its likeliest alternatives; null for the first.

    The rank of a token that is not among these alternatives is null.
    """

    def entry(token: int, logprob: float, rank: int | None) -> dict[str, Any]:
        text = _spelled(model.token_bytes(token), model.token_name(token))
        return {"logprob": _finite(logprob), "rank": rank, "decoded_token": text}

    out: list[dict[str, Any] | None] = []
    for s in scores:
        if math.isnan(s.logprob):
            out.append(None)
            continue
        best = {str(t): entry(t, p, rank) for rank, (t, p) in enumerate(s.top, 1)}
        out.append({str(s.token): entry(s.token, s.logprob, None)} | best)
    return out
