"""Calls as the formats' own data says they are written."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any

import pytest

from llamay_grammar import tool_formats
from llamay_models.answers import Envelope, Event, Reader

from ..borrowed import borrowed

tagged = borrowed("llamay-grammar", "helpers").tagged

FORMATS = sorted(tool_formats())
TAGGED = [f for f in FORMATS if any("parameters" in piece for piece in tool_formats()[f]["call"])]
OBJECTS = [f for f in FORMATS if f not in TAGGED]
Call = tuple[str, dict[str, Any]]


def flat(pieces: Sequence[Any], way: int) -> list[Any]:
    """One of the ways to write pieces of which some are optional or have alternatives."""
    out: list[Any] = []
    for piece in pieces:
        if "optional" in piece:
            out += flat(piece["optional"], way) if way % 2 else []
        elif "any" in piece:
            out += flat(piece["any"][way % len(piece["any"])], way)
        else:
            out.append(piece)
    return out


def cut(text: str, sizes: Sequence[int]) -> list[str]:
    """The text in parts of these sizes, and the rest."""
    ends = [0, *itertools.accumulate(sizes)]
    return [*(text[a:b] for a, b in itertools.pairwise(ends)), text[ends[-1] :]]


def written(form: str, calls: Sequence[Call], indent: int | None = None, way: int = 0) -> str:
    """The calls as the format's own data says they are written."""
    about = tool_formats()[form]
    ids = iter(f"abcDEF{n:03}" for n in range(100))

    def text(pieces: Sequence[Any], name: str = "", arguments: Any = None) -> str:
        out = ""
        for piece in flat(pieces, way):
            if piece.get("name"):
                out += name
            elif piece.get("arguments"):
                out += json.dumps(arguments, indent=indent)
            elif piece.get("id"):
                out += next(ids)
            elif piece.get("count"):
                out += str(way)
            elif "parameters" in piece:
                out += tagged(piece["parameters"], arguments or {})
            else:
                out += piece.get("text", piece.get("special", ""))
        return out

    body = text(about.get("between", ())).join(text(about["call"], *call) for call in calls)
    return text(about.get("before", ())) + body + text(about.get("after", ()))


def around(form: str, part: str, way: int = 0) -> str:
    """What the format writes before text ("say"), or between it and calls ("then")."""
    pieces = flat(tool_formats()[form].get(part, ()), way)
    return "".join(piece.get("text", piece.get("special", "")) for piece in pieces)


def events_and_reads(monkeypatch: pytest.MonkeyPatch, parser: Reader, text: str) -> tuple[list[Event], int]:
    """What a reader says of a text that comes three characters at a time, and how often it read a whole call."""
    reads = 0
    read_call = Envelope.read

    def counted(self: Envelope, *args: Any, **more: Any) -> Any:
        nonlocal reads
        reads += 1
        return read_call(self, *args, **more)

    monkeypatch.setattr(Envelope, "read", counted)
    events = [event for i in range(0, len(text), 3) for event in parser.feed(text[i : i + 3])]
    return [*events, *parser.finish("stop", None)], reads
