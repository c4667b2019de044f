"""One model, the engines that run it, and the requests to them."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engines.process import Engine, EngineError, environment

STREAMS, BRANCHES, DEPTH, SHORT = 8, 32, 2048, 8
PATIENCE = 2
"""How often an engine may die or hang on a model before it is left out of it."""


@dataclass(frozen=True)
class Sizes:
    """Tokens of each measure."""

    prefill: int = 512
    decode: int = 128
    deep: int = 64
    streams: int = 64
    branches: int = 32


QUICK = Sizes(decode=48, deep=24, streams=24, branches=8)
BUDGET = Sizes(deep=48, streams=32, branches=12)


@dataclass
class Peer:
    """An engine that can be imported, and the Python that has it."""

    name: str
    python: str
    version: str
    script: str


@dataclass
class Cell:
    """One model at one number of threads: its engines, started when they are needed and again when they died."""

    model: str
    kind: str
    path: Path
    threads: int
    peers: list[Peer]
    context: int
    options: argparse.Namespace
    running: dict[tuple[str, str, int], Engine] = field(default_factory=dict)
    best: dict[tuple[str, str], str] = field(default_factory=dict)
    broken: dict[tuple[str, str, int], str] = field(default_factory=dict)
    deaths: dict[tuple[str, str, int], int] = field(default_factory=dict)
    flash: set[tuple[str, str]] = field(default_factory=set)
    """Peers and measures for which flash attention is known to be faster with this shape: in any format."""

    def arguments(self) -> list[str]:
        """Return the arguments of every engine."""
        return ["--model", str(self.path), "--threads", str(self.threads), "--context", str(self.context)]

    def engine(self, name: str, variant: str = "", parallel: int = 1) -> Engine:
        """Return an engine; raises EngineError where it could not be started, or died too often."""
        key = (name, variant, parallel)
        if key in self.broken:
            raise EngineError(self.broken[key])
        if key not in self.running:
            try:
                self.running[key] = self._start(name, variant, parallel)
            except EngineError as error:
                self.broken[key] = str(error)
                raise
        return self.running[key]

    def _start(self, name: str, variant: str, parallel: int) -> Engine:
        timeout = self.options.timeout
        if name == "llamay":
            return Engine(sys.executable, "llamay_worker.py", *self.arguments(), timeout=timeout)
        peer = next(p for p in self.peers if p.name == name)
        more = ["--variant", variant, "--parallel", str(parallel)]
        return Engine(peer.python, peer.script, *self.arguments(), *more, timeout=timeout)

    def ask(self, name: str, variant: str, parallel: int, request: dict[str, Any]) -> dict[str, Any]:
        """Ask an engine; one that died or hangs is started again for the next request, but not for ever."""
        engine = self.engine(name, variant, parallel)
        try:
            if self.options.clock == "wall" or request["what"] == "limits":
                return engine.ask(**request)
            before = processor_seconds(engine.process.pid)
            engine.ask(**request)
            return {"rate": computed(request) / (processor_seconds(engine.process.pid) - before)}
        except EngineError as error:
            key = (name, variant, parallel)
            del self.running[key]
            self.deaths[key] = self.deaths.get(key, 0) + 1
            if name != "llamay" and self.deaths[key] >= PATIENCE:
                self.broken[key] = str(error)
            raise

    def probe(self) -> dict[str, Any]:
        """Return the machine's limits now; nothing where the clock is processor time, which they do not bound."""
        return {} if self.options.clock == "cpu" else self.ask("llamay", "", 1, {"what": "limits"})

    def keep(self, parallel: int) -> None:
        """End the engines that another number of sequences needs no more: each holds the whole model."""
        for key in [k for k in self.running if k[0] != "llamay" and k[2] != parallel]:
            self.running.pop(key).close()

    def keep_best(self, name: str, parallel: int, variant: str) -> None:
        """End the variants of a peer that were not the fastest at anything yet."""
        wanted = {v for (peer, _), v in self.best.items() if peer == name} | {variant}
        for key in [k for k in self.running if k[0] == name and k[2] == parallel and k[1] not in wanted]:
            self.running.pop(key).close()

    def close(self) -> None:
        """End all engines."""
        for engine in self.running.values():
            engine.close()
        self.running.clear()

    def command_start(self) -> float:
        """Return seconds from starting `llamay run` to the end of an answer of one token."""
        command = [sys.executable, "-m", "llamay_cli", "run", str(self.path), "--raw", "-p", "The", "-n", "1"]
        command += ["--ignore-eos", "--threads", str(self.threads), "--ctx-size", str(self.context)]
        began = time.perf_counter()
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=self.options.timeout, env=environment()
            )
        except subprocess.TimeoutExpired:
            raise EngineError(f"llamay run did not end in {self.options.timeout:.0f} s") from None
        if done.returncode:
            words = done.stderr.strip().splitlines() or ["no word"]
            raise EngineError(f"llamay run ended with {done.returncode}: {words[-1]}")
        return time.perf_counter() - began


def processor_seconds(pid: int) -> float:
    """Return the processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def computed(request: dict[str, Any]) -> int:
    """Return the tokens that a request computes, its prompt where that is short and read each time included."""
    prompts = request.get("prompts") or [request["tokens"]]
    if request["what"] == "prefill":
        return len(prompts[0])
    return len(prompts) * int(request["count"]) * int(request.get("number", 1))


def request_for(measure: str, cell: Cell, sizes: Sizes, vocabulary: int) -> tuple[dict[str, Any], int, int]:
    """Return a measure's request, how many sequences it needs, and the tokens before its first step."""

    def tokens(count: int, seed: int = 0) -> list[int]:
        return [(i * 7919 + 13 + seed * 104729) % (vocabulary - 512) + 300 for i in range(count)]

    depth = min(DEPTH, cell.context - max(sizes.deep, sizes.branches) - 1)
    match measure:
        case "prefill":
            return {"what": "prefill", "tokens": tokens(sizes.prefill)}, 1, 0
        case "prefill-long":
            return {"what": "prefill", "tokens": tokens(depth)}, 1, 0
        case "decode":
            return {"what": "decode", "tokens": tokens(SHORT), "count": sizes.decode}, 1, SHORT
        case "depth":
            return {"what": "decode", "tokens": tokens(depth), "count": sizes.deep}, 1, depth
        case "streams":
            prompts = [tokens(SHORT, i) for i in range(STREAMS)]
            return {"what": "streams", "prompts": prompts, "count": sizes.streams}, STREAMS, SHORT
        case "branches":
            asked = {"what": "branches", "tokens": tokens(depth), "number": BRANCHES, "count": sizes.branches}
            return asked, BRANCHES, depth
    raise ValueError(measure)


def shortened(request: dict[str, Any]) -> dict[str, Any]:
    """Return a quarter of a request, which tells a peer's fastest variant from the others."""
    short = dict(request)
    if "count" in short:
        short["count"] = max(8, short["count"] // 4)
    elif "tokens" in short:
        short["tokens"] = short["tokens"][: max(128, len(short["tokens"]) // 4)]
    return short
