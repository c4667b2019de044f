"""The patterns of a format, by which its calls are found in text."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .calls import Step

NAMED = '{"name": "'
NUMBERED = '{"tool_call_id": "'
# White space and order in a call's own JSON are the model's to choose.
_OBJECTS = ('{"name"', '{ "name"', '{"type"', '{ "type"')
_KINDS = ("name", "arguments", "parameters", "values", "id", "count", "text", "special")
PARTS = ("before", "call", "between", "after", "say", "then")


def rows(pieces: Iterable[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    """Yield the ways to go through pieces of which some are optional and some have alternatives; the shortest first."""
    ways: list[list[list[Mapping[str, Any]]]] = []
    for piece in pieces:
        if "optional" in piece:
            ways.append([[], *rows(piece["optional"])])
        elif "any" in piece:
            ways.append([row for each in piece["any"] for row in rows(each)])
        else:
            ways.append([[piece]])
    for row in itertools.product(*ways):
        yield list(itertools.chain.from_iterable(row))


def literals(pieces: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the texts that pieces can spell, each once, the shortest first; of a special token, its name."""
    texts = ("".join(p.get("text", p.get("special", "")) for p in row) for row in rows(pieces))
    return tuple(dict.fromkeys(texts)) if pieces else ()


def stripped(pieces: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the literals without the white space around them, those of white space alone left out."""
    return tuple(text for each in literals(pieces) if (text := each.strip()))


def openings(pieces: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the texts by which the beginning of a call is found, one or more for each way through its pieces."""
    for row in rows(pieces):
        first = row[0]
        if first.get("text") in (NAMED, NUMBERED):
            yield from _OBJECTS
        elif "text" in first and "special" in row[1]:  # a mark with a special token inside
            texts = (p.get("special") or p["text"] for p in itertools.takewhile(_is_text, row))
            yield "".join(texts).partition("\n")[0].strip()
        else:
            yield first.get("special") or first["text"].strip()


def _is_text(piece: Mapping[str, Any]) -> bool:
    return "text" in piece or "special" in piece


def steps_of(row: Iterable[Mapping[str, Any]]) -> tuple[Step, ...]:
    """Return a way to write a call, with neighbouring texts as one."""
    steps: list[list[str]] = []
    for piece in row:
        kind = next(k for k in _KINDS if k in piece)
        literal = piece[kind] if kind in ("text", "special") else ""
        if literal and steps and steps[-1][0] == "text":
            steps[-1][1] += literal
        else:
            steps.append(["text" if literal else kind, literal])
    kinds = [kind for kind, _ in steps]
    if "parameters" in kinds:  # where lines break is the model's to choose
        return tuple(
            (kind, part.strip())
            for kind, literal in steps
            for part in literal.split("\n")
            if kind != "text" or part.strip()
        )
    at = kinds.index("name")
    object_at = next((n for n, (_, text) in enumerate(steps[:at]) if text.endswith((NAMED, NUMBERED))), None)
    if object_at is not None:
        closing, opening = steps[-1][1], steps[object_at]
        opening[1] = opening[1].removesuffix(NAMED).removesuffix(NUMBERED)
        steps[object_at + 1 :] = [["object", ""], ["text", closing[closing.index("}") + 1 :]]]
    elif kinds[at + 1 : at + 3] == ["text", "count"]:
        steps[at : at + 3] = [["counted", ""]]
    out = []
    for n, (kind, literal) in enumerate(steps):
        # A name may end with the line.
        keep = literal.strip() or (literal if n and steps[n - 1][0] in ("name", "id", "counted") else "")
        if kind != "text" or keep:
            out.append((kind, keep))
    return tuple(out)
