"""One call, read along the steps of its format."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .compact_json import compact
from .literal_arguments import Literals
from .matching import WAIT, skip, starts
from .tagged_arguments import Pairs, Tags

_COUNTED = re.compile(r"(.+):\d+")
_WORD = re.compile(r"[A-Za-z0-9_.:/-]*")


@dataclass(frozen=True, slots=True)
class Found:
    """A call that was read: `arguments` as compact JSON, `id` where the model gave one, and where it ends.

    Where the arguments stood between tags, they are `pairs`: JSON only together with the function's schema.
    """

    name: str
    arguments: str
    id: str | None
    end: int
    pairs: Pairs | None = None


# A call as a row of steps: ("text", literal), ("name", ""), ("counted", ""), which is a name and a number, ("id", ""),
# ("arguments", ""), ("parameters", ""), which are arguments between tags, ("values", ""), which are names and literals,
# or ("object", ""), which is a JSON object that holds name, arguments and perhaps an id.
Step = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a call, before its arguments: its words, the step that reads these, and where they begin."""

    words: dict[str, str]
    step: int
    at: int


def read_head(steps: Sequence[Step], text: str, final: bool) -> Head | Literal["wait"] | None:
    """Return the head of a call at the start of `text`; "wait" where more text decides."""
    at = 0
    words: dict[str, str] = {}
    row = iter(range(len(steps)))
    for i in row:
        kind, literal = steps[i]
        start = skip(text, at)
        if kind == "text":
            found = starts(text, start, (literal,))
            if found is not True:
                return WAIT if found == WAIT and not final else None
            at = start + len(literal)
        elif kind in ("name", "id", "counted"):
            ends = steps[i + 1][1]
            word = _WORD.match(text, start)
            assert word is not None
            if not ends:  # nothing but white space or the first argument
                if word.end() == len(text) or not word[0]:
                    return WAIT if word.end() == len(text) and not final else None
                words[kind], at = word[0], word.end()
                continue
            rest = word.end() if text.startswith(ends, word.end()) else skip(text, word.end())
            found = starts(text, rest, (ends,))
            if found is not True or not word[0]:
                return WAIT if found and not final else None
            if kind == "counted":
                if (counted := _COUNTED.fullmatch(word[0])) is None:
                    return None
                words["name"] = counted[1]
            else:
                words[kind] = word[0]
            at = rest + len(ends)
            next(row)
        else:
            return Head(words, i, at)
    raise AssertionError("a format whose calls have no arguments")


def pass_tails(steps: Sequence[Step], text: str, at: int, *, final: bool) -> int | Literal["wait"]:
    """Return the end of a call whose arguments end at `at`; the marks behind them may be missing."""
    for _, literal in steps:
        start = skip(text, at)
        found = starts(text, start, (literal,))
        if found is True:
            at = start + len(literal)
        elif found == WAIT and not final:
            return WAIT
    return at


def read_call(
    steps: Sequence[Step], text: str, final: bool, tails: Sequence[str], tags: Tags | Literals | None
) -> Found | Literal["wait"] | None:
    """Return the call at the start of `text`, if its steps are there; "wait" where more text decides.

    `tails` are the ends of a call of the format: JSON that is broken in front of one stays broken.
    """
    head = read_head(steps, text, final)
    if not isinstance(head, Head):
        return head
    call: tuple[str, dict[str, Any], str | None] | None
    pairs: Pairs | None = None
    words, at, rest = head.words, head.at, steps[head.step + 1 :]
    if steps[head.step][0] == "parameters":
        assert isinstance(tags, Tags)
        read = tags.read(text, at)
        if read == WAIT or read is None:
            return WAIT if read == WAIT and not final else None
        pairs, at = read
        call = (words["name"], {}, None)
        # Without the mark behind the last one, there may be more arguments.
        start = skip(text, at)
        if rest and (found := starts(text, start, (rest[0][1],))) is not True:
            return WAIT if found == WAIT and not final else None
    elif steps[head.step][0] == "values":
        assert isinstance(tags, Literals)
        values = tags.read(text, at)
        if values == WAIT or values is None:
            return WAIT if values == WAIT and not final else None
        call, at = (words["name"], values[0], None), values[1]
    else:
        start = skip(text, at)
        if start >= len(text):
            return None if final else WAIT
        if text[start] != "{":
            return None
        try:
            value, at = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError):
            closed = any(tail and text.find(tail, start) >= 0 for tail in tails)
            return None if final or closed else WAIT
        arguments = steps[head.step][0] == "arguments"
        call = (words["name"], value, words.get("id")) if arguments else _named(value)
        if call is None:
            return None
    end = pass_tails(rest, text, at, final=final)
    if end == WAIT:
        return WAIT
    return Found(call[0], compact(call[1]), call[2], end, pairs)


def _named(value: Any) -> tuple[str, dict[str, Any], str | None] | None:
    """Return the name, the arguments and the id of a call that is one object, as the formats vary it."""
    if not isinstance(value, dict):
        return None
    name = value.get("name", value.get("tool_name"))
    if not isinstance(name, str):
        return None
    arguments = value.get("arguments", value.get("parameters", {}))
    if isinstance(arguments, str):
        try:
            arguments = _DECODER.decode(arguments) if arguments.strip() else {}
        except (ValueError, RecursionError):
            return None
    if arguments is None:
        arguments = {}
    given = value.get("id")
    known = given if isinstance(given, str) and given else None
    return (name, arguments, known) if isinstance(arguments, dict) else None


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_no_constant)
