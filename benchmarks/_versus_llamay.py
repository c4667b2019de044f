"""The llamay side of versus_llamacpp.py: a process that measures when it is told to."""

from __future__ import annotations

import argparse
import json
import sys
import time


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("--model", "--threads", "--prefill", "--decode"):
        parser.add_argument(name, required=True)
    parser.add_argument("--once", action="store_true")
    options = parser.parse_args()

    import llamay_models
    from llamay_models import Sampling

    count, greedy = int(options.decode), Sampling(temperature=0.0, seed=0)
    model = llamay_models.load(
        options.model, threads=int(options.threads), ctx_size=int(options.prefill) + count + 64
    )
    if options.once:
        model.context("The").generate(greedy, max_tokens=1, ignore_eos=True).wait()
        print(json.dumps({"first": True}), flush=True)
        sys.stdin.read()
        return

    import llamay_kernels
    from llamay_cli.measure import decode_bytes, matrix_parameters

    state = model.pool.layout.position_bytes * (count // 2)
    hello = {
        "vocabulary": model.vocab_size,
        "operations": 2 * matrix_parameters(model),
        "decode_bytes": decode_bytes(model) + state,
    }
    threads = llamay_kernels.Threads(int(options.threads))
    print(json.dumps(hello), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        answer: dict[str, float] = {}
        if request["do"] == "limits":
            limits = llamay_kernels.limits(threads)
            answer = {"read_bandwidth": limits.read_bandwidth, "int8_ops": limits.int8_ops}
        elif request["do"] == "prefill":
            began = time.perf_counter()
            with model.context(request["tokens"]) as context:
                context.logits  # noqa: B018 - the peer's figure ends with them too
                answer["rate"] = len(request["tokens"]) / (time.perf_counter() - began)
        else:
            with model.context(request["tokens"][:8]) as context:
                generation = context.generate(greedy, max_tokens=count, ignore_eos=True)
                generation.wait()
                answer["rate"] = (count - 1) / generation.timings.decode
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
