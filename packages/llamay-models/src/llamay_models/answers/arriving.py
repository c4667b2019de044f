"""A call on its way: its name is known, and its arguments are told while they are written."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from .calls import Head, Step, pass_tails, read_head
from .compact_json import Compact
from .matching import WAIT, skip
from .nesting import Braces

_MEMBER = re.compile(r'\s*"(\w+)"\s*:\s*("(?:[^"\\]|\\.)*"|[-+.\w]+)\s*,')
_ARGUMENTS = re.compile(r'\s*"(?:arguments|parameters)"\s*:\s*(?=\{)')
_LONGEST_HEAD = 1024
"""An object in which name and arguments come later than this is read when it is whole."""


@dataclass(frozen=True, slots=True)
class CallStart:
    """A call of which all is known that stands before its arguments, and where in the text these begin."""

    name: str
    id: str | None
    at: int
    tails: tuple[Step, ...]
    wrapped: bool
    """Whether the arguments are a member of the call's own object."""


def read_call_start(steps: Sequence[Step], text: str) -> CallStart | Literal["wait"] | None:
    """Return the known part of a call at the start of `text`, up to its arguments; "wait" where more text decides."""
    head = read_head(steps, text, False)
    if not isinstance(head, Head):
        return head
    kind, tails = steps[head.step][0], tuple(steps[head.step + 1 :])
    start = skip(text, head.at)
    if kind == "parameters" or (start < len(text) and text[start] != "{"):
        return None
    if start == len(text):
        return WAIT
    if kind == "object":
        return _object_start(text, start, tails)
    return CallStart(head.words["name"], head.words.get("id"), start, tails, wrapped=False)


def _object_start(text: str, start: int, tails: tuple[Step, ...]) -> CallStart | Literal["wait"] | None:
    members: dict[str, str] = {}
    at = start + 1
    while (member := _MEMBER.match(text, at)) is not None:
        members[member[1]], at = member[2], member.end()
    name = _string(members.get("name") or members.get("tool_name"))
    found = _ARGUMENTS.match(text, at)
    if found is None:
        return WAIT if len(text) - start < _LONGEST_HEAD else None
    return (
        CallStart(name, _string(members.get("id")) or None, found.end(), tails, wrapped=True)
        if name
        else None
    )


def _string(text: str | None) -> str:
    try:
        value = json.loads(text or '""')
    except ValueError:
        return ""
    return value if isinstance(value, str) else ""


class Arriving:
    """Takes the text from where the arguments of a call begin, and tells them in parts.

    Attributes:
        call_start: the known part of the call.
        arguments: the parts so far.
        whole: whether the arguments are complete.

    """

    def __init__(self, call_start: CallStart) -> None:
        self.call_start = call_start
        self.whole = False
        self._compact = Compact()
        self._parts: list[str] = []
        # The braces of the object that the arguments are a member of, counted up to its end.
        self._around: Braces | None = Braces() if call_start.wrapped else None
        if self._around is not None:
            self._around.feed("{")

    @property
    def arguments(self) -> str:
        """All parts so far."""
        return "".join(self._parts)

    def feed(self, text: str, *, final: bool) -> tuple[str, int, bool]:
        """Return a part of the arguments, how much of `text` is done with, and whether the call has ended."""
        part, at = "", 0
        if not self.whole:
            part, at = self._compact.feed(text)
            self.whole = self._compact.ended
            if final and not self.whole:
                part += self._compact.finish()
            if part:
                self._parts.append(part)
            if not self.whole:
                return part, at, final
        if self._around is not None:
            for char in text[at:]:
                if not self._around.open:
                    break
                self._around.feed(char)
                at += 1
            if self._around.open:
                return part, at, final
            self._around = None
        end = pass_tails(self.call_start.tails, text, at, final=final)
        return (part, at, False) if end == WAIT else (part, end, True)
