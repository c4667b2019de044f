"""The tables of shapes.py, from its rows."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

Row = dict[str, Any]
Rows = list[Row]
PEERS = ("llama.cpp", "ik_llama.cpp")
BEGIN, END = "<!-- shapes: begin -->", "<!-- shapes: end -->"
_NONE = "-"


def put_into(page: Path, tables: str) -> None:
    """Replace the text between the page's two marks."""
    old = page.read_text()
    if old.count(BEGIN) != 1 or old.count(END) != 1:
        raise SystemExit(f"error: {page} needs one line {BEGIN} and one line {END}")
    head, tail = old.partition(BEGIN)[0], old.partition(END)[2]
    page.write_text(f"{head}{BEGIN}\n{tables.strip()}\n{END}{tail}")


def text(rows: Rows) -> str:
    """Return the tables for a terminal."""
    return re.sub(r"\*\*|\| --- .*\n", "", markdown(rows))


def markdown(rows: Rows) -> str:
    """Return the tables as Markdown."""
    if not rows:
        return "Nothing was measured."
    most = max(row["threads"] for row in rows)
    parts = [_heading(rows), _rates(rows, most), _scaling(rows, most), _costs(rows, most), _failures(rows)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _heading(rows: Rows) -> str:
    machines = sorted({row["machine"] for row in rows})
    versions = sorted({f"{k} as {v}" for row in rows for k, v in row["versions"].items()})
    most = max(len(row["rounds"]) for row in rows)
    clocks = {row["clock"] for row in rows}
    clock = "; seconds are of processor time" if "cpu" in clocks else ""
    sets = sorted({row["bounds"]["isa"] for row in rows if "bounds" in row})
    return (
        f"{'; '.join(machines)}; llamay's kernel set: {', '.join(sets)}; {', '.join(versions) or 'no peers'}; "
        f"medians of up to {most} rounds, smallest and largest in brackets{clock}."
    )


def _rates(rows: Rows, threads: int) -> str:
    """Return decode and prefill of every model."""
    head = ["model", "format"]
    for what in ("decode", "prefill"):
        head += [f"{what}, tokens/s", "of limit", *(f"x {peer}" for peer in PEERS)]
    lines = []
    for model, kind in _models(rows):
        line = [model, kind]
        for what in ("decode", "prefill"):
            row = _find(rows, model, kind, threads, what)
            line += [_rate(row), _fraction(row, what), *(_ratio(row, peer) for peer in PEERS)]
        if set(line[2:]) != {_NONE}:
            lines.append(line)
    return _table(head, lines)


def _scaling(rows: Rows, threads: int) -> str:
    """Return the effect of depth, length, several sequences and threads on the rates of llamay, and of the peers."""
    head = ["model", "format", "at depth", *(f"x {p}" for p in PEERS), "long prefill", "8 streams"]
    head += [*(f"x {p}" for p in PEERS), "32 branches", "1 thread: decode", "prefill"]
    lines = []
    for model, kind in _models(rows):

        def get(what: str, count: int = threads, m: str = model, k: str = kind) -> Row | None:
            return _find(rows, m, k, count, what)

        decode, prefill, depth = get("decode"), get("prefill"), get("depth")
        line = [model, kind, _of(depth, decode, percent=True), *(_ratio(depth, p) for p in PEERS)]
        line += [_of(get("prefill-long"), prefill, percent=True), _of(get("streams"), decode)]
        line += [*(_ratio(get("streams"), p) for p in PEERS), _of(get("branches"), decode)]
        line += (
            [_of(get("decode", 1), decode), _of(get("prefill", 1), prefill)] if threads > 1 else [_NONE] * 2
        )
        if set(line[2:]) != {_NONE}:
            lines.append(line)
    return _table(head, lines)


def _costs(rows: Rows, threads: int) -> str:
    """Return cold start, memory, and the overhead of a step beside the model."""
    head = ["model", "format", "`llamay run`, s", *(f"x {p}" for p in PEERS), "peak memory / (file + K/V)"]
    head += ["before loading, MB", "around a step", "sampling, µs"]
    lines = []
    for model, kind in _models(rows):
        start, around = (_find(rows, model, kind, threads, what) for what in ("start", "around"))
        line = [model, kind, _NONE, _NONE, _NONE, _NONE, _NONE, _NONE, _NONE]
        if start and start["rounds"]:
            line[2] = f"{_median(start, lambda one: one['llamay run']):.2f}"
            line[3:5] = [_ratio(start, peer, ours="llamay run", less_is_more=True) for peer in PEERS]
            memory = [one["llamay memory"] for one in start["rounds"] if "llamay memory" in one]
            if memory and memory[0]["peak"]:
                peak = statistics.median(m["peak"] / (start["file"] + m["state"]) for m in memory)
                line[5], line[6] = f"{peak:.2f}", f"{statistics.median(m['base'] for m in memory) / 1e6:.0f}"
        if around and around["rounds"]:
            line[7] = f"{100 * _median(around, lambda one: one['fraction']):.1f} %"
            line[8] = f"{1e6 * _median(around, lambda one: one['parts']['sample']):.0f}"
        if set(line[2:]) != {_NONE}:
            lines.append(line)
    return _table(head, lines)


def _failures(rows: Rows) -> str:
    """Return the measurements that failed, once each."""
    found = {f"{name} is not there: {reason}" for row in rows for name, reason in row["missing"].items()}
    seen: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        for name, reason in row["failed"].items():
            seen.setdefault((name, reason), []).append(f"{row['model']} {row['kind']} {row['measure']}")
    found |= {
        f"{name}: {reason} ({', '.join(dict.fromkeys(where))})" for (name, reason), where in seen.items()
    }
    return "Not measured:\n\n" + "\n".join(f"* {line}" for line in sorted(found)) if found else ""


def _models(rows: Rows) -> Iterable[tuple[str, str]]:
    return dict.fromkeys((row["model"], row["kind"]) for row in rows)


def _find(rows: Rows, model: str, kind: str, threads: int, measure: str) -> Row | None:
    wanted = (model, kind, threads, measure)
    found = [r for r in rows if (r["model"], r["kind"], r["threads"], r["measure"]) == wanted]
    return found[-1] if found else None


def _median(row: Row, value: Callable[[dict[str, Any]], float]) -> float:
    return statistics.median(value(one) for one in row["rounds"])


def _rate(row: Row | None) -> str:
    return f"{_median(row, lambda one: one['llamay']):,.0f}" if row and row["rounds"] else _NONE


def _fraction(row: Row | None, what: str) -> str:
    """Return how much of the machine's limit llamay reached, the limit being probed around each figure."""
    if row is None or not row["rounds"]:
        return _NONE
    bounds = row["bounds"]
    if row["clock"] == "cpu":
        return _NONE  # the limits are probed by the clock on the wall
    if what == "prefill":
        if not bounds["integer"]:
            return _NONE  # unquantized weights are not multiplied by the integer instructions
        moved, limit = bounds["operations"], "int8_ops"
    else:
        moved, limit = bounds["weight_bytes"] + bounds["state_bytes"] * bounds["positions"], "read_bandwidth"
    return f"{100 * _median(row, lambda one: one['llamay'] * moved / one['limits'][limit]):.0f} %"


def _ratio(row: Row | None, peer: str, ours: str = "llamay", *, less_is_more: bool = False) -> str:
    """Return the median of the ratios within a round, and how far they spread."""
    pairs = [(one[ours], one[peer]) for one in row["rounds"] if peer in one] if row else []
    if not pairs:
        return _NONE
    ratios = sorted(theirs / mine if less_is_more else mine / theirs for mine, theirs in pairs)
    spread = f" ({ratios[0]:.2f} to {ratios[-1]:.2f})" if len(ratios) > 1 else ""
    return f"**{statistics.median(ratios):.2f}**{spread}"


def _of(row: Row | None, base: Row | None, *, percent: bool = False) -> str:
    if row is None or base is None or not row["rounds"] or not base["rounds"]:
        return _NONE
    ratio = _median(row, lambda one: one["llamay"]) / _median(base, lambda one: one["llamay"])
    return f"{100 * ratio:.0f} %" if percent else f"{ratio:.2f} x"


def _table(head: list[str], lines: list[list[str]]) -> str:
    if not lines:
        return ""
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *lines])
