"""The llama.cpp side of a comparison: a process that measures on request."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from process_memory import peak, resident
from worker import answers, arguments, requests, wait


def main() -> None:
    options = arguments(variants=True)
    say = answers()

    import xllamacpp  # type: ignore[import-not-found, unused-ignore]

    base = resident()
    attention = xllamacpp.llama_flash_attn_type
    layout, _, rest = options.variant.partition("+")
    params = xllamacpp.CommonParams()
    params.model.path = options.model
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = options.threads
    params.flash_attn_type = (
        attention.LLAMA_FLASH_ATTN_TYPE_DISABLED if rest else attention.LLAMA_FLASH_ATTN_TYPE_ENABLED
    )
    params.no_extra_bufts = layout == "plain"
    params.n_ctx = options.context * options.parallel
    params.n_parallel = options.parallel
    params.cache_prompt = False
    params.cache_ram_mib = 0
    params.fit_params = False
    params.warmup = not options.once
    params.verbosity = -1
    server = xllamacpp.Server(params)

    def complete(prompt: Any, count: int, keep: bool = False) -> dict[str, Any]:
        request = {
            "prompt": prompt,
            "n_predict": count,
            "cache_prompt": keep,
            "ignore_eos": True,
            "temperature": 0.0,
            "samplers": ["top_k"],
            "top_k": 1,
        }
        answer = server.handle_completions(request)
        answer = json.loads(answer) if isinstance(answer, str | bytes) else answer
        if "timings" not in answer:
            raise SystemExit(f"llama.cpp answers {answer}")
        return dict(answer["timings"])

    if options.once:
        complete("The", 1)
        say({"first": True, "base": base, "peak": peak()})
        wait()
        return
    say({"system": xllamacpp.get_system_info()})
    for what, request in requests():
        if what == "prefill":
            timings = complete(request["tokens"], 1)
            say({"rate": timings["prompt_n"] / timings["prompt_ms"] * 1e3})
        elif what == "decode":
            # A long prompt is kept from one request to the next. The clock of decoding starts with the first token,
            # so one less than were made took that time.
            timings = complete(request["tokens"], request["count"], keep=True)
            say({"rate": (timings["predicted_n"] - 1) / timings["predicted_ms"] * 1e3})
        elif what == "streams":
            prompts, count = request["prompts"], request["count"]
            with ThreadPoolExecutor(len(prompts)) as pool:
                found = list(pool.map(complete, prompts, [count] * len(prompts)))
            slowest = max(timings["predicted_ms"] for timings in found)
            say({"rate": sum(timings["predicted_n"] - 1 for timings in found) / slowest * 1e3})
        else:
            raise SystemExit(f"llama.cpp has no way to measure {what}")


if __name__ == "__main__":
    main()
