"""How models write tool calls: the format that a chat template speaks, and calls read back from the text.

The formats are llamay_grammar's (`tool_formats`), data that both sides share: the grammar that binds a demanded call
and the reader that finds calls in what was written.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

# ruff: noqa: RUF001 - DeepSeek's marks have full-width bars
# What stands in a template whose model speaks a format, the most telling first.
_MARKS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("[TOOL_CALLS]", "[ARGS]"), "mistral-v11"),
    (("[TOOL_CALLS]",), "mistral"),
    (("<｜tool▁calls▁begin｜>", "function<｜tool▁sep｜>"), "deepseek"),
    (("<｜tool▁calls▁begin｜>",), "deepseek-v3.1"),
    (("<|channel|>", "to=functions."), "gpt-oss"),
    (("<tool_call>",), "hermes"),
    (("<function=",), "functionary"),
    ((">>>all",), "functionary-v3.2"),
    (("```tool_call",), "gemma"),
    (("<|start_header_id|>", '"parameters": '), "llama3"),
)
DEFAULT = "hermes"
_NAMED = '{"name": "'
_WAIT: Literal["wait"] = "wait"


def format_of(template: str | None) -> str:
    """The name of the format that a chat template speaks; one that knows no tools is told of Hermes' in words."""
    if template is None or "tools" not in template:
        return DEFAULT
    return next((name for marks, name in _MARKS if all(mark in template for mark in marks)), DEFAULT)


@dataclass(frozen=True, slots=True)
class Envelope:
    """One format, ready for reading. `specials` are the control tokens that have to be visible in the text."""

    name: str
    openings: tuple[str, ...]
    specials: tuple[str, ...]
    before: str
    head: str
    middle: str
    tail: str
    between: str
    after: str
    json_call: bool
    """Whether name and arguments are one JSON object, rather than texts around the arguments."""

    def begins(self, text: str, at: int, first: bool) -> bool | Literal["wait"]:
        """Whether (another) call begins there; "wait" where more text decides."""
        starts = (self.before,) if first and self.before else (self.head or _NAMED[:1],)
        return _starts(text, _skip(text, at), starts)

    def read(self, text: str, *, first: bool, final: bool) -> tuple[str, str, int] | Literal["wait"] | None:
        """A call at the start of `text`: name, arguments as compact JSON, and where it ends.

        None where there is none, "wait" where more text decides.
        """
        at = 0
        for literal in (self.before if first else "", self.head):
            if literal:
                at = _skip(text, at)
                if (found := _starts(text, at, (literal,))) is not True:
                    return _WAIT if found and not final else None
                at += len(literal)
        name: str | None = None
        if not self.json_call:
            at = _skip(text, at)
            end = text.find(self.middle, at)
            if end < 0:
                return None if final else _WAIT
            name, at = text[at:end].strip(), end + len(self.middle)
        at = _skip(text, at)
        if at >= len(text):
            return None if final else _WAIT
        if text[at] != "{":
            return None
        try:
            value, end = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            closed = bool(self.tail) and text.find(self.tail, at) >= 0
            return None if final or closed else _WAIT
        call = _named(value) if name is None else (name, value)
        if call is None:
            return None
        tail = _skip(text, end)
        if self.tail:
            found = _starts(text, tail, (self.tail,))
            if found == _WAIT and not final:
                return _WAIT
            end = tail + len(self.tail) if found is True else end
        return call[0], json.dumps(call[1], ensure_ascii=False, separators=(",", ":")), end

    def pass_over(self, text: str, *, final: bool) -> tuple[int, bool] | Literal["wait"]:
        """After a call: how much is between it and the next, and whether there is a next one."""
        at = _skip(text, 0)
        if self.after and (found := _starts(text, at, (self.after,))):
            if found is True:
                return at + len(self.after), False
            return (0, False) if final else _WAIT
        if self.between and _starts(text, at, (self.between,)) is True:
            at = _skip(text, at + len(self.between))
        if at >= len(text):
            return (len(text), False) if final else _WAIT
        found = _starts(text, at, (self.head or _NAMED[:1],))
        if found == _WAIT:
            return (0, False) if final else _WAIT
        return (at, True) if found else (0, False)


class Braces:
    """Whether an object is open in JSON that comes in parts: until it is closed, there is no use in parsing it."""

    def __init__(self) -> None:
        self._depth = 0
        self._quoted = self._escaped = False

    @property
    def open(self) -> bool:
        """Whether an object has begun that has not ended."""
        return self._depth > 0

    def feed(self, text: str) -> None:
        """Go on with more text."""
        for char in text:
            if self._quoted:
                if self._escaped:
                    self._escaped = False
                elif char == "\\":
                    self._escaped = True
                elif char == '"':
                    self._quoted = False
            elif char == "{":
                self._depth += 1
            elif self._depth:
                if char == "}":
                    self._depth -= 1
                elif char == '"':
                    self._quoted = True


@functools.cache
def envelope(name: str) -> Envelope:
    """The format of this name."""
    from llamay_grammar import tool_formats

    return _envelope(name, tool_formats()[name])


def _envelope(name: str, form: Mapping[str, Any]) -> Envelope:
    parts: list[str] = [""]
    for piece in form["call"]:
        if piece.get("name") or piece.get("arguments"):
            parts.append("")
        else:
            parts[-1] += piece.get("text", piece.get("special", ""))
    head, middle, tail = parts
    json_call = head.endswith(_NAMED)
    if json_call:
        head, tail = head.removesuffix(_NAMED), tail.removeprefix("}")
    pieces = [p for part in ("before", "call", "between", "after") for p in form.get(part, ())]
    return Envelope(
        name=name,
        # White space in a call's own JSON is the model's to choose.
        openings=tuple(stop.split(":")[0] for stop in form["stop"]),
        specials=tuple(dict.fromkeys(p["special"] for p in pieces if "special" in p)),
        before=_text(form.get("before", ())).strip(),
        head=head.strip(),
        middle=middle.strip() or middle,
        tail=tail.strip(),
        between=_text(form.get("between", ())).strip(),
        after=_text(form.get("after", ())).strip(),
        json_call=json_call,
    )


def _text(pieces: Sequence[Mapping[str, Any]]) -> str:
    return "".join(piece.get("text", piece.get("special", "")) for piece in pieces)


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _starts(text: str, at: int, literals: Sequence[str]) -> bool | Literal["wait"]:
    """Whether one of the literals stands there; "wait" where the text ends inside one."""
    if any(text.startswith(literal, at) for literal in literals):
        return True
    rest = text[at:]
    return _WAIT if any(literal.startswith(rest) for literal in literals) else False


def _named(value: Any) -> tuple[str, dict[str, Any]] | None:
    """Name and arguments of a call that is one object, as the formats vary it."""
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    arguments = value.get("arguments", value.get("parameters", {}))
    if isinstance(arguments, str):
        try:
            arguments = _DECODER.decode(arguments) if arguments.strip() else {}
        except (ValueError, RecursionError):
            return None
    if arguments is None:
        arguments = {}
    return (value["name"], arguments) if isinstance(arguments, dict) else None


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_no_constant)
