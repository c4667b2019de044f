"""The llama.cpp side of versus_llamacpp.py: a process that measures when it is told to."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("--model", "--threads", "--prefill", "--decode", "--layout"):
        parser.add_argument(name, required=True)
    parser.add_argument("--once", action="store_true")
    options = parser.parse_args()
    # llama.cpp logs to stdout or stderr as it likes; the answers get a channel of their own.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)

    import xllamacpp  # type: ignore[import-not-found, unused-ignore]

    params = xllamacpp.CommonParams()
    params.model.path = options.model
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = int(options.threads)
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_ENABLED
    params.no_extra_bufts = options.layout == "plain"
    params.n_ctx = int(options.prefill) + int(options.decode) + 64
    params.n_parallel = 1
    params.cache_prompt = False
    params.cache_ram_mib = 0
    params.fit_params = False
    params.warmup = not options.once
    params.verbosity = -1
    server = xllamacpp.Server(params)

    def complete(prompt: Any, count: int) -> dict[str, Any]:
        request = {
            "prompt": prompt,
            "n_predict": count,
            "cache_prompt": False,
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

    def say(answer: dict[str, Any]) -> None:
        print(json.dumps(answer), file=answers, flush=True)

    if options.once:
        complete("The", 1)
        say({"first": True})
        sys.stdin.read()
        return
    say({"system": xllamacpp.get_system_info()})
    count = int(options.decode)
    for line in sys.stdin:
        request = json.loads(line)
        if request["do"] == "prefill":
            timings = complete(request["tokens"], 1)
            say({"rate": timings["prompt_n"] / timings["prompt_ms"] * 1e3})
        else:
            # The clock of decoding starts with the first token, so one less than were made took that time.
            timings = complete(request["tokens"][:8], count)
            say({"rate": (timings["predicted_n"] - 1) / timings["predicted_ms"] * 1e3})


if __name__ == "__main__":
    main()
