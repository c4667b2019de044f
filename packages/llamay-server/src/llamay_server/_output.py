"""What a chat model writes, taken apart: reasoning, text and tool calls.

A small machine over the text as it streams. A tag that may still be coming is held back, never shown by halves. What
looks like a call but is not one (no JSON, an unknown name) stays text: nothing is lost and nothing is invented.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from ._protocol import TokenScore
from ._tools import CLOSE, OPEN, Toolbox, new_call_id

THINK, UNTHINK = "<think>", "</think>"


@dataclass(frozen=True, slots=True)
class Text:
    """Words of the answer."""

    index: int
    text: str
    scores: tuple[TokenScore, ...] = ()
    tokens: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Words of the thinking before the answer."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A whole call; `arguments` is compact JSON text of an object."""

    index: int
    number: int
    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Finished:
    """A choice is complete: stop, length or tool_calls."""

    index: int
    reason: str
    stop_sequence: str | None = None


Event = Text | Reasoning | ToolCall | Finished


class OutputParser:
    """Takes one choice's text apart.

    `thinks`: look for reasoning tags. `in_thought`: the prompt already opened them. `in_call`: the prompt already
    opened a call; `call_name`: it opened one of this tool, up to the arguments, which are all that is written.
    """

    def __init__(
        self,
        index: int,
        box: Toolbox,
        *,
        thinks: bool = False,
        in_thought: bool = False,
        in_call: bool = False,
        call_name: str | None = None,
    ) -> None:
        self.index, self.box = index, box
        self.calls = 0
        self.reasoning_tokens = 0
        self._names = {tool.name for tool in box.tools}
        self._thinks = thinks
        self._forced = in_call or call_name is not None
        self._call_name = call_name
        self._mode = "call" if self._forced else "think" if in_thought else "text"
        self._buffer = ""
        self._scores: list[TokenScore] = []
        self._tokens: list[int] = []
        self._trim = False

    @property
    def thinking(self) -> bool:
        """Whether it is inside reasoning."""
        return self._mode == "think"

    def feed(
        self, text: str, scores: tuple[TokenScore, ...] = (), tokens: tuple[int, ...] = ()
    ) -> Iterator[Event]:
        """The events that became certain with this text."""
        self._buffer += text
        self._scores += scores
        self._tokens += tokens
        if self._mode == "text" and not (self._thinks or self._trim or self.box.active):
            yield self._text(self._buffer)
            self._buffer = ""
            return
        yield from self._advance(final=False)

    def finish(self, reason: str, stop_sequence: str | None) -> Iterator[Event]:
        """The rest, and the end."""
        yield from self._advance(final=True)
        if self._buffer or self._scores or self._tokens:
            if self._mode == "think":
                if self._buffer:
                    yield self._reason(self._buffer)
            elif self._mode == "call":
                yield from self._call(self._buffer, closed=False)
            else:
                yield self._text(self._buffer)
            self._buffer = ""
        called = self.calls > 0 and reason == "stop"
        yield Finished(self.index, "tool_calls" if called else reason, None if called else stop_sequence)

    def _advance(self, *, final: bool) -> Iterator[Event]:
        while True:
            if self._mode == "call":
                head, found, rest = self._buffer.partition(CLOSE)
                if not found:
                    return
                self._buffer, self._mode = rest, "text"
                self._trim = True
                yield from self._call(head, closed=True)
                continue
            if self._trim:
                self._buffer = self._buffer.lstrip()
                if not self._buffer:
                    return
                self._trim = False
            tags = self._tags()
            at, tag = min(((i, t) for t in tags if (i := self._buffer.find(t)) >= 0), default=(-1, ""))
            if at < 0:
                keep = 0 if final else _possible_tag(self._buffer, tags)
                ready = self._buffer[: len(self._buffer) - keep]
                self._buffer = self._buffer[len(ready) :]
                if ready:
                    yield self._reason(ready) if self._mode == "think" else self._text(ready)
                return
            before, self._buffer = self._buffer[:at], self._buffer[at + len(tag) :]
            if self._mode == "think":
                if before.rstrip():
                    yield self._reason(before.rstrip("\n"))
                self._mode, self._trim, self._thinks = "text", True, False
                continue
            before = before.rstrip() if tag == OPEN else before
            if before:
                yield self._text(before)
            self._mode = "call" if tag == OPEN else "think"
            if tag == THINK:
                self._trim = True

    def _tags(self) -> tuple[str, ...]:
        if self._mode == "think":
            return (UNTHINK,)
        calls = (OPEN,) if self.box.active and (self.box.parallel or self.calls == 0) else ()
        return (*calls, THINK) if self._thinks else calls

    def _call(self, raw: str, *, closed: bool) -> Iterator[Event]:
        if self._call_name is not None:
            raw = json.dumps({"name": self._call_name})[:-1] + f', "arguments": {raw}}}'
        name, arguments = _read_call(raw)
        if name is None or name not in self._names:
            yield self._text(raw if self._forced else OPEN + raw + (CLOSE if closed else ""))
            return
        self._scores.clear()
        self._tokens.clear()
        number, self.calls = self.calls, self.calls + 1
        yield ToolCall(self.index, number, new_call_id(), name, arguments)

    def _reason(self, text: str) -> Reasoning:
        self.reasoning_tokens += len(self._tokens)
        self._scores.clear()
        self._tokens.clear()
        return Reasoning(self.index, text)

    def _text(self, text: str) -> Text:
        scores, tokens = tuple(self._scores), tuple(self._tokens)
        self._scores.clear()
        self._tokens.clear()
        return Text(self.index, text, scores, tokens)


def _possible_tag(text: str, tags: tuple[str, ...]) -> int:
    """How many characters at the end of `text` may be the beginning of a tag (and white space before a call)."""
    best = 0
    for tag in tags:
        for size in range(min(len(tag) - 1, len(text)), 0, -1):
            if text.endswith(tag[:size]):
                best = max(best, size)
                break
    if OPEN in tags:
        stem = text[: len(text) - best]
        best += len(stem) - len(stem.rstrip())
    return best


def _read_call(raw: str) -> tuple[str | None, str]:
    """Name and arguments (compact JSON) of a call, or None where the text is none."""
    try:
        value = json.loads(raw, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return None, ""
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None, ""
    arguments = value.get("arguments", value.get("parameters", {}))
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments, parse_constant=_no_constant) if arguments.strip() else {}
        except (ValueError, RecursionError):
            return None, ""
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, dict):
        return None, ""
    return value["name"], json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
