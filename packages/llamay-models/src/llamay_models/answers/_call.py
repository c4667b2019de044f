"""One call, read along the steps of its format."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ._tagged import Pairs, Tags
from ._text import WAIT, skip, starts

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
# ("arguments", ""), ("parameters", ""), which are arguments between tags, or ("object", ""), which is a JSON object
# that holds name, arguments and perhaps an id.
Step = tuple[str, str]


def read_call(
    steps: Sequence[Step], text: str, final: bool, tails: Sequence[str], tags: Tags | None
) -> Found | Literal["wait"] | None:
    """The call at the start of `text`, if its steps are there; "wait" where more text decides.

    `tails` are what ends a call of the format: JSON that is broken in front of one stays broken.
    """
    at = 0
    words: dict[str, str] = {}
    call: tuple[str, dict[str, Any], str | None] | None = None
    pairs: Pairs | None = None
    row = iter(range(len(steps)))
    for i in row:
        kind, literal = steps[i]
        start = skip(text, at)
        if kind == "text":
            found = starts(text, start, (literal,))
            if found is True:
                at = start + len(literal)
            elif found == WAIT and not final:
                return WAIT
            elif call is None or steps[i - 1][0] == "parameters":
                return None  # without the mark behind the last one, there may be more arguments
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
        elif kind == "parameters":
            assert tags is not None
            read = tags.read(text, at)
            if read == WAIT or read is None:
                return WAIT if read == WAIT and not final else None
            pairs, at = read
            call = (words["name"], {}, None)
        else:
            if start >= len(text):
                return None if final else WAIT
            if text[start] != "{":
                return None
            try:
                value, at = _DECODER.raw_decode(text, start)
            except (ValueError, RecursionError):
                closed = any(tail and text.find(tail, start) >= 0 for tail in tails)
                return None if final or closed else WAIT
            call = (words["name"], value, words.get("id")) if kind == "arguments" else _named(value)
            if call is None:
                return None
    assert call is not None
    return Found(call[0], json.dumps(call[1], ensure_ascii=False, separators=(",", ":")), call[2], at, pairs)


def _named(value: Any) -> tuple[str, dict[str, Any], str | None] | None:
    """Name, arguments and id of a call that is one object, as the formats vary it."""
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
