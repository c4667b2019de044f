"""Texts embedded per second: `python benchmarks/embeddings.py MODEL.gguf [--texts N] [--words N] [--json]`.

With `--peer PYTHON`, a Python that has xllamacpp, llama.cpp embeds the same texts on the same threads in the same run.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import time
from pathlib import Path

import llamay

PEER = """
import json, sys, time
import xllamacpp
path, texts, threads, rounds = json.loads(sys.stdin.read())
p = xllamacpp.CommonParams()
p.model.path, p.embedding, p.pooling_type = path, True, xllamacpp.llama_pooling_type(3)
p.n_ctx = p.n_batch = p.n_ubatch = 2048
p.n_parallel, p.cpuparams.n_threads = 1, threads
server, best = xllamacpp.Server(p), float("inf")
for _ in range(rounds):
    begin = time.perf_counter()
    out = server.handle_embeddings({"input": texts, "encoding_format": "base64"})
    best = min(best, time.perf_counter() - begin)
    assert len(out["data"]) == len(texts)
print(json.dumps(best))
"""
TEXT = "the cat sat on a warm mat while rain fell over quiet hills and trains went by every hour"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--texts", type=int, default=64)
    parser.add_argument("--words", type=int, default=48)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer", help="a Python that has xllamacpp")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    chosen = random.Random(0)
    texts = [" ".join(chosen.choices(TEXT.split(), k=args.words)) for _ in range(args.texts)]
    seconds: dict[str, float] = {}
    with llamay.load(args.model, threads=args.threads) as model:
        tokens = sum(len(model.encode(text)) for text in texts)
        best = float("inf")
        for _ in range(args.rounds):
            begin = time.perf_counter()
            model.embed(texts, "last")
            best = min(best, time.perf_counter() - begin)
        seconds["llamay"] = best
    if args.peer:
        given = json.dumps([str(args.model), texts, args.threads, args.rounds])
        out = subprocess.run(
            [args.peer, "-c", PEER], input=given, capture_output=True, text=True, check=True, timeout=600
        )
        seconds["llama.cpp"] = json.loads(out.stdout.splitlines()[-1])
    rates = {name: {"texts/s": args.texts / s, "tokens/s": tokens / s} for name, s in seconds.items()}
    if args.json:
        print(json.dumps({"texts": args.texts, "tokens": tokens, "threads": args.threads, "rates": rates}))
        return
    print(f"{args.model.name}: {args.texts} texts, {tokens} tokens, {args.threads} threads")
    for name, rate in rates.items():
        print(f"{name:10} {rate['texts/s']:8.1f} texts/s {rate['tokens/s']:9.0f} tokens/s")


if __name__ == "__main__":
    main()
