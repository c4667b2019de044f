"""Usage and rates of an answer, and its JSON form."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llamay_models import Generation, Piece

    from .answer import WrittenAnswer
    from .prefill import Prefill

Timings = dict[str, float | int | None]


def rate(tokens: float, seconds: float) -> float | None:
    """Return tokens a second; None where nothing was measured."""
    return tokens / seconds if tokens > 0 and seconds > 0 else None


def timings(generation: Generation, prefill: Prefill, load: float | None = None) -> Timings:
    """Return tokens, seconds and rates of the prefill and of the finished generation that followed."""
    usage, spent = generation.usage, generation.timings
    return {
        "load_seconds": load,
        "prompt_tokens": prefill.cached + prefill.tokens,
        "cached_tokens": prefill.cached,
        "prompt_seconds": prefill.seconds,
        "prompt_tokens_per_second": rate(prefill.tokens, prefill.seconds),
        "completion_tokens": usage.completion_tokens,
        "decode_seconds": spent.decode,
        # The first token comes out of the prefill; the clock of decoding starts with it.
        "decode_tokens_per_second": rate(usage.completion_tokens - 1, spent.decode),
    }


def timing_lines(numbers: Timings) -> Iterable[str]:
    """Return the timings as lines for people."""
    if numbers["load_seconds"] is not None:
        yield f"load    {numbers['load_seconds']:8.3f} s"
    cached = f", {numbers['cached_tokens']} of them cached" if numbers["cached_tokens"] else ""
    yield f"prompt  {numbers['prompt_seconds']:8.3f} s  {numbers['prompt_tokens']:6d} tokens{cached}" + _rate(
        numbers["prompt_tokens_per_second"]
    )
    yield f"answer  {numbers['decode_seconds']:8.3f} s  {numbers['completion_tokens']:6d} tokens" + _rate(
        numbers["decode_tokens_per_second"]
    )


def _rate(value: float | None) -> str:
    return f"  {value:.1f} tokens/s" if value is not None else ""


def document(
    model: str, generation: Generation, prefill: Prefill, written: WrittenAnswer, load: float | None
) -> dict[str, Any]:
    """Return the JSON form of an answer."""
    pieces: list[Piece] = written.pieces
    result: dict[str, Any] = {
        "model": model,
        "text": written.text,
        **({"thinking": written.reasoning} if written.reasoning else {}),
        "tokens": [token for piece in pieces for token in piece.tokens],
        "finish_reason": generation.finish_reason,
        "stop_sequence": generation.stop_sequence,
        "seed": generation.sampling.seed,
        "usage": {
            "prompt_tokens": prefill.cached + prefill.tokens,
            "cached_tokens": prefill.cached,
            "completion_tokens": generation.usage.completion_tokens,
        },
        "timings": timings(generation, prefill, load),
    }
    scores = [score for piece in pieces for score in piece.logprobs]
    if scores:
        result["logprobs"] = [
            {
                "token": score.token,
                "logprob": score.logprob,
                "top": [{"token": token, "logprob": logprob} for token, logprob in score.top],
            }
            for score in scores
        ]
    return result
