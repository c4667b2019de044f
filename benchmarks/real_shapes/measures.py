"""The measures of shapes.py: rounds in which every engine computes the same, with the machine's limits around them."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from engines.process import EngineError, cold_start
from real_shapes.budget import Share
from real_shapes.cell import BRANCHES, Cell, Peer, Sizes, request_for, shortened

PLAIN_ATTENTION = "+plain-attention"
VARIANTS = ("repacked", "plain", f"repacked{PLAIN_ATTENTION}")


def measure(name: str, cell: Cell, sizes: Sizes, share: Share, say: Callable[[str], None]) -> dict[str, Any]:
    """Measure one row: every engine in each round, and the limits around it."""
    ours = cell.engine("llamay")
    request, parallel, before = request_for(name, cell, sizes, ours.hello["vocabulary"])
    cell.keep(parallel)
    failed: dict[str, str] = {}
    cell.ask("llamay", "", 1, request)
    variants = {}
    for peer in cell.peers:
        if parallel == BRANCHES and peer.name == "llama.cpp":
            failed[peer.name] = "its server has no way to branch a sequence"
            continue
        variant = fastest(peer, name, cell, request, parallel, failed, say)
        if variant is not None:
            variants[peer.name] = variant
    found: list[dict[str, Any]] = []
    order = ["llamay", *variants]
    limits = cell.probe()
    took = 0.0
    for number in range(cell.options.rounds):
        if number and not share.allows(took):
            break
        began = time.monotonic()
        one: dict[str, Any] = {}
        for engine in order[number % len(order) :] + order[: number % len(order)]:
            try:
                count = 1 if engine == "llamay" else parallel
                one[engine] = cell.ask(engine, variants.get(engine, ""), count, request)["rate"]
            except EngineError as error:
                if engine == "llamay":
                    raise
                failed[engine] = str(error)
        # The limits after one round are also the limits before the next.
        after = cell.probe()
        one["limits"] = {key: max(limits[key], after[key]) for key in limits}
        limits = after
        found.append(one)
        order = [engine for engine in order if engine in one]
        took = time.monotonic() - began
        say(f"    round {number + 1}: " + ", ".join(f"{e} {one[e]:.1f}" for e in order))
    hello = {k: v for k, v in ours.hello.items() if k != "vocabulary"}
    count = request.get("count", 0)
    length = len(request.get("tokens", ())) or before
    return {
        "rounds": found,
        "variants": variants,
        "failed": failed,
        "bounds": {**hello, "positions": before + count // 2},
        "tokens": [length, count],
    }


def fastest(
    peer: Peer,
    name: str,
    cell: Cell,
    request: dict[str, Any],
    parallel: int,
    failed: dict[str, str],
    say: Callable[[str], None],
) -> str | None:
    """Return the variant of a peer that does a measure fastest; None, and why in `failed`, where none does it.

    In a short run the variant that was best at a like measure is taken, and others are told apart by a quarter of the
    request.
    """
    options, rates = cell.options, {}
    short = options.quick or bool(options.budget)
    like = {"prefill-long": "prefill", "depth": "decode", "streams": "decode", "branches": "decode"}
    known = cell.best.get((peer.name, like.get(name, name))) if short else None
    variants = [known] if known else list(options.variants)
    if options.budget and (peer.name, name) in cell.flash:
        variants = [v for v in variants if not v.endswith(PLAIN_ATTENTION)]
    # The known variant may support one sequence but not several: then the others are tried.
    variants += [v for v in VARIANTS if known and parallel > 1 and v != known]
    for variant in variants:
        try:
            if short:
                rates[variant] = cell.ask(peer.name, variant, parallel, shortened(request))["rate"]
            else:
                rates[variant] = max(
                    cell.ask(peer.name, variant, parallel, request)["rate"] for _ in range(2)
                )
        except EngineError as error:
            failed[peer.name] = str(error)
            continue
        if known:
            break
    if not rates:
        return None
    failed.pop(peer.name, None)
    best = cell.best[peer.name, name] = max(rates, key=lambda variant: rates[variant])
    say(f"    {peer.name}: " + ", ".join(f"{v} {rate:.1f}" for v, rate in rates.items()) + " tokens/s")
    if len(rates) == len(options.variants) and not best.endswith(PLAIN_ATTENTION):
        cell.flash.add((peer.name, name))
    if options.budget and name != "prefill":  # after which decode tries them all again
        cell.keep_best(peer.name, parallel, best)
    return best


def start(cell: Cell, share: Share, say: Callable[[str], None]) -> dict[str, Any]:
    """Measure seconds from starting a process to its first token, and its memory then."""
    starts: list[tuple[str, str, list[str]]] = [("llamay", sys.executable, ["llamay_worker.py"])]
    for peer in cell.peers:
        starts.append((peer.name, peer.python, [peer.script, "--variant", "plain"]))
    failed: dict[str, str] = {}
    found: list[dict[str, Any]] = []
    took = 0.0
    cell.command_start()  # afterwards its caches are written, and its files are in the page cache
    for number in range(cell.options.rounds):
        if number and not share.allows(took):
            break
        began = time.monotonic()
        one: dict[str, Any] = {"llamay run": cell.command_start()}
        for name, python, (script, *more) in starts[number % len(starts) :] + starts[: number % len(starts)]:
            try:
                one[name], hello = cold_start(
                    python, script, *cell.arguments(), *more, timeout=cell.options.timeout
                )
                one[f"{name} memory"] = {key: value for key, value in hello.items() if key != "first"}
            except EngineError as error:
                failed[name] = str(error)
        found.append(one)
        took = time.monotonic() - began
        say(
            "    "
            + ", ".join(f"{key} {value:.2f} s" for key, value in one.items() if isinstance(value, float))
        )
    return {"rounds": found, "failed": failed, "file": cell.path.stat().st_size}


def around(cell: Cell, sizes: Sizes, share: Share, say: Callable[[str], None]) -> dict[str, Any]:
    """Measure the overhead of a step of llamay beside the model's work."""
    found: list[dict[str, Any]] = []
    took = 0.0
    for number in range(cell.options.rounds):
        if number and not share.allows(took):
            break
        began = time.monotonic()
        found.append(cell.ask("llamay", "", 1, {"what": "around", "count": sizes.decode}))
        took = time.monotonic() - began
    say("    " + ", ".join(f"{100 * one['fraction']:.1f} %" for one in found) + " of a step")
    return {"rounds": found, "failed": {}}
