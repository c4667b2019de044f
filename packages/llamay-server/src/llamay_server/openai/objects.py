"""Objects that several routes of OpenAI's and llama.cpp's write alike: usage, times, and the frames around a stream."""

from __future__ import annotations

from typing import Any

from llamay_server.pipeline.run import Reading, Totals

DONE = b"data: [DONE]\n\n"
PING = b":\n\n"


def usage(totals: Totals) -> dict[str, Any]:
    """OpenAI's usage object."""
    return {
        "prompt_tokens": totals.prompt_tokens,
        "completion_tokens": totals.completion_tokens,
        "total_tokens": totals.prompt_tokens + totals.completion_tokens,
        "prompt_tokens_details": {
            "cached_tokens": totals.cached_tokens,
            "cache_write_tokens": totals.written_tokens,
        },
        "completion_tokens_details": {"reasoning_tokens": totals.reasoning_tokens},
    }


def timings(totals: Totals) -> dict[str, Any]:
    """llama.cpp's timings object; milliseconds. No rate has the first token: it comes with the prompt's last step."""
    read = totals.prompt_tokens - totals.cached_tokens
    prompt_ms, predicted_ms = totals.prefill * 1e3, totals.decode * 1e3
    made = totals.completion_tokens
    steps = max(made - 1, 0)
    return {
        "cache_n": totals.cached_tokens,
        "prompt_n": read,
        "prompt_ms": prompt_ms,
        "prompt_per_token_ms": prompt_ms / read if read else 0.0,
        "prompt_per_second": 1e3 * read / prompt_ms if prompt_ms else 0.0,
        "predicted_n": made,
        "predicted_ms": predicted_ms,
        "predicted_per_token_ms": predicted_ms / steps if steps else 0.0,
        "predicted_per_second": 1e3 * steps / predicted_ms if predicted_ms else 0.0,
    }


def prompt_progress(reading: Reading) -> dict[str, Any]:
    """llama.cpp's prompt_progress object."""
    return {
        "total": reading.total,
        "cache": reading.cached,
        "processed": reading.processed,
        "time_ms": reading.seconds * 1e3,
    }


def reading_timings(reading: Reading) -> dict[str, Any]:
    """llama.cpp's timings while the prompt is read."""
    return timings(
        Totals(prompt_tokens=reading.processed, cached_tokens=reading.cached, prefill=reading.seconds)
    )
