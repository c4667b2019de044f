"""Objects that several routes of OpenAI's and llama.cpp's share: stream options, usage, timings and progress."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from llamay_server.pipeline.events import PrefillProgress
from llamay_server.pipeline.totals import Totals

DONE = b"data: [DONE]\n\n"
"""The frame that ends a stream of OpenAI's."""


class StreamOptions(Struct):
    """Options of a stream: chunks beside those with its text."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None
    continuous_usage_stats: bool | None = None


class PromptCacheOptions(Struct):
    """The way a request uses the prefix cache.

    In the mode "explicit" only a prompt with a breakpoint is looked up and kept. `prewarm` prefills the prompt and
    generates nothing. `comparison_response_id` asks why the prompt does not continue that response's.
    """

    mode: str | None = None
    prewarm: bool | None = None
    comparison_response_id: str | None = None


def usage(totals: Totals) -> dict[str, Any]:
    """Return OpenAI's usage object."""
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
    """Return llama.cpp's timings object, in milliseconds.

    The rate of generation does not count the first token, which the last step of the prefill gives.
    """
    computed = totals.prompt_tokens - totals.cached_tokens
    prompt_ms, predicted_ms = totals.prefill * 1e3, totals.decode * 1e3
    generated = totals.completion_tokens
    steps = max(generated - 1, 0)
    return {
        "cache_n": totals.cached_tokens,
        "prompt_n": computed,
        "prompt_ms": prompt_ms,
        "prompt_per_token_ms": prompt_ms / computed if computed else 0.0,
        "prompt_per_second": 1e3 * computed / prompt_ms if prompt_ms else 0.0,
        "predicted_n": generated,
        "predicted_ms": predicted_ms,
        "predicted_per_token_ms": predicted_ms / steps if steps else 0.0,
        "predicted_per_second": 1e3 * steps / predicted_ms if predicted_ms else 0.0,
    }


def prompt_progress(report: PrefillProgress) -> dict[str, Any]:
    """Return llama.cpp's prompt_progress object."""
    return {
        "total": report.total,
        "cache": report.cached,
        "processed": report.processed,
        "time_ms": report.seconds * 1e3,
    }


def prefill_timings(report: PrefillProgress) -> dict[str, Any]:
    """Return llama.cpp's timings object during the prefill."""
    return timings(
        Totals(prompt_tokens=report.processed, cached_tokens=report.cached, prefill=report.seconds)
    )
