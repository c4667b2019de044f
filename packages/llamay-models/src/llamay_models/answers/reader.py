"""`Reader`: splits the text of a chat model, as it streams, into reasoning, text and tool calls."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Generator, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from .arriving import Arriving, CallStart
from .calls import Found
from .envelopes import Envelope, envelope
from .events import ArgumentsPart, CallBegun, Event, Finished, Reasoning, Text, ToolCall
from .formats import Formats
from .tagged_arguments import arguments
from .template import DEFAULT

if TYPE_CHECKING:
    from llamay_models.engine import TokenScore

THINK = ("<think>", "</think>")
NO_TOOLS: Mapping[str, Any] = MappingProxyType({})


def new_call_id(prefix: str = "call_") -> str:
    """Return an id for a call that the model gave none."""
    return prefix + secrets.token_hex(12)


class Reader:
    """Takes one answer apart: reasoning, text and tool calls.

    A small machine over the text as it streams. A tag that may still be coming is held back, never shown by halves.
    Text that looks like a call but is none (no JSON, an unknown name) stays text: nothing is lost and nothing is
    invented.

    Args:
        tools: the JSON schemas of the arguments of functions that may be called, by name. Without any, calls are text.
        formats: the formats there are; `llamay_grammar`.
        form: the name of the format of calls, as `format_of` tells it.
        index: put into every event.
        parallel: whether there may be several calls; otherwise everything after the first one is text.
        thinks: whether to look for the marks `reasoning`.
        in_reasoning: whether the prompt already opened them.
        reasoning: the marks around reasoning, as `reasoning_of` tells them.
        prompted: whether the prompt ended with the beginning that the format has for every answer.
        known_ids: those of the conversation's calls; a model that makes up one of these again is not followed.
        bound: whether a grammar of this format binds the text, so that a call that begins will be a call. Where the
            format allows it, calls then come in parts: `CallBegun` when the name is known and the arguments begin,
            `ArgumentsPart`s, and `ToolCall` when all has been told. Where the text ends inside the arguments, that
            `ToolCall` is not `complete`.

    Raises:
        KeyError: for a format that is not among the formats.

    """

    def __init__(
        self,
        tools: Mapping[str, Any] = NO_TOOLS,
        *,
        formats: Formats,
        form: str = DEFAULT,
        index: int = 0,
        parallel: bool = True,
        thinks: bool = False,
        in_reasoning: bool = False,
        reasoning: tuple[str, str] = THINK,
        prompted: bool = False,
        known_ids: Collection[str] = (),
        bound: bool = False,
    ) -> None:
        self.index = index
        self.calls = 0
        self.reasoning_tokens = 0
        self._tools, self._parallel, self._formats = tools, parallel, formats
        known = envelope(form, formats)
        self._form: Envelope | None = known if tools else None
        self._marks = known.marks
        self._thinks = thinks
        self._think, self._unthink = reasoning
        self._thinks_once = known.reasoning is None
        self._ids = set(known_ids)
        self._mode = "think" if in_reasoning else "text"
        self._prompted = self._buffer = known.prompted if prompted else ""
        self._scores: list[TokenScore] = []
        self._tokens: list[int] = []
        self._trim = False
        self._gap = ""
        """White space in front of a possible call; it is part of the text if that is no call."""
        self._way = known
        """In which of the format's ways the call that is being read is written."""
        self._within = known.within()
        self._bound = bound
        self._told = False
        """Whether the call before this one was told in parts."""
        self._arriving: Arriving | None = None
        self._call_id = ""
        self._cut = False
        """Whether the text ended inside the arguments of a call."""
        self._first = True
        """Whether the call that is being read is the first of its group, which some formats begin with a mark."""

    @property
    def thinking(self) -> bool:
        """Whether it is inside reasoning."""
        return self._mode == "think"

    def feed(
        self, text: str, scores: tuple[TokenScore, ...] = (), tokens: tuple[int, ...] = ()
    ) -> Iterator[Event]:
        """Yield the events that became certain with this text.

        `scores` and `tokens` are those that the text was made of; they come back with the words that they end up in.
        """
        self._buffer += text
        if self._mode == "call" and self._arriving is None:
            self._within.feed(text)
        self._scores += scores
        self._tokens += tokens
        if self._mode == "text" and not (self._thinks or self._trim or self._form or self._marks):
            yield self._text(self._buffer)
            self._buffer = ""
            return
        yield from self._advance(final=False)

    def finish(self, reason: str, stop_sequence: str | None) -> Iterator[Event]:
        """Yield the rest, and the end: `reason` and `stop_sequence` as the engine gave them."""
        yield from self._advance(final=True)
        if self._buffer or self._scores or self._tokens:
            if self._mode == "think":
                if self._buffer:
                    yield self._reason(self._buffer)
            else:
                yield self._text(self._buffer)
            self._buffer = ""
        called = self.calls > 0 and reason == "stop" and not self._cut
        yield Finished(self.index, "tool_calls" if called else reason, None if called else stop_sequence)

    def _advance(self, *, final: bool) -> Iterator[Event]:
        waits = False
        while not waits:
            if self._arriving is not None:
                waits = yield from self._arrive(self._arriving, final=final)
            elif self._mode == "call" and (call_start := self._call_start()) is not None:
                yield self._tell(call_start)
            elif self._mode == "call":
                call = self._call(final=final)
                waits = call == "wait"
                if isinstance(call, ToolCall):
                    yield call
                elif call is not None and not waits:
                    yield self._text(call)
            elif self._mode == "between":
                waits = self._between(final=final)
            else:
                waits = yield from self._words(final=final)

    def _words(self, *, final: bool) -> Generator[Event, None, bool]:
        """Yield the text or the reasoning up to the next tag; return whether more text is needed."""
        if self._trim:
            self._buffer = self._buffer.lstrip()
            if not self._buffer:
                return True
            self._trim = False
        tags = self._tags()
        at, size = min(((i, -len(t)) for t in tags if (i := self._buffer.find(t)) >= 0), default=(-1, 0))
        tag = self._buffer[at : at - size]
        if at >= 0 and not final and any(len(t) > len(tag) and t.startswith(self._buffer[at:]) for t in tags):
            at = -1  # a longer tag may stand there
        if at < 0:
            keep = 0 if final else self._possible_tag(tags)
            ready = self._buffer[: len(self._buffer) - keep]
            self._buffer = self._buffer[len(ready) :]
            if ready:
                yield self._reason(ready) if self._mode == "think" else self._text(ready)
            return True
        before = self._buffer[:at]
        if self._mode == "think" or tag == self._think or tag in self._marks:
            self._buffer = self._buffer[at + len(tag) :]
            if self._mode == "think":
                if before.rstrip():
                    yield self._reason(before.rstrip("\n"))
                elif not self._buffer:  # all that came is the mark
                    self._count_as_thought()
                self._mode, self._thinks = "text", not self._thinks_once
            else:
                if before:
                    yield self._text(before)
                if tag == self._think:
                    self._mode = "think"
                self._prompted = ""
            self._trim = True
            return False
        self._buffer = self._buffer[at:]
        said = before.rstrip()
        self._gap = before[len(said) :]
        if said:
            yield self._text(said)
        self._begin_call(first=True)
        return False

    def _begin_call(self, *, first: bool) -> None:
        assert self._form is not None
        self._mode, self._first = "call", first
        self._told = self._told and not first
        if first:
            self._way = self._form.way(self._buffer)
        self._within = self._way.within()
        self._within.feed(self._buffer)

    def _call(self, *, final: bool) -> ToolCall | str | None:
        """Return the call at the start of the buffer, "wait", or text that turned out to be no call."""
        form = self._way
        # A closing mark ends broken JSON; in a string, or a text between tags, it is a part of that.
        ended = self._within.broken and any(tail in self._buffer for tail in form.tails)
        if self._within.open and not final and not ended:
            return "wait"
        found = form.read(self._buffer, first=self._first, final=final)
        if found == "wait":
            return "wait"
        if found is None or found.name not in self._tools:
            # The text that looked like a call stays text; the next call could begin where it ends.
            self._mode = "text"
            ends = [i for o in self._openings() if (i := self._buffer.find(o, 1)) > 0]
            end = min(ends, default=len(self._buffer))
            if found is not None:
                end = found.end
            else:
                closes = [i + len(tail) for tail in form.tails if (i := self._buffer.find(tail)) >= 0]
                end = min([end, *closes])
            text, self._buffer = self._gap + self._buffer[:end], self._buffer[end:]
            self._gap = ""
            return text
        self._buffer = self._buffer[found.end :]
        self._mode, self._told = "between", False
        number, given = self._count(found.id)
        return ToolCall(self.index, number, given, found.name, self._arguments(found))

    def _count(self, given: str | None) -> tuple[int, str]:
        """Return the number and the id of a call that was found."""
        self._gap = self._prompted = ""
        self._drop_tokens()
        number, self.calls = self.calls, self.calls + 1
        if not given or given in self._ids:
            given = new_call_id()
        self._ids.add(given)
        return number, given

    def _call_start(self) -> CallStart | None:
        """Return the call at the start of the buffer, where its arguments can be told from here on."""
        if not self._bound:
            return None
        found = self._way.call_start(self._buffer, first=self._first, certain=self._told)
        return found if isinstance(found, CallStart) and found.name in self._tools else None

    def _tell(self, call_start: CallStart) -> CallBegun:
        self._arriving, self._buffer = Arriving(call_start), self._buffer[call_start.at :]
        number, self._call_id = self._count(call_start.id)
        return CallBegun(self.index, number, self._call_id, call_start.name)

    def _arrive(self, arriving: Arriving, *, final: bool) -> Generator[Event, None, bool]:
        """Yield more of the call that is being told; return whether more text is needed."""
        part, size, ended = arriving.feed(self._buffer, final=final)
        self._buffer = self._buffer[size:]
        self._drop_tokens()
        number = self.calls - 1
        if part:
            yield ArgumentsPart(self.index, number, part)
        if not ended:
            return True
        self._arriving, self._mode, self._told = None, "between", True
        self._cut = not arriving.whole
        yield ToolCall(
            self.index,
            number,
            self._call_id,
            arriving.call_start.name,
            arriving.arguments,
            in_parts=True,
            complete=arriving.whole,
        )
        return False

    def _drop_tokens(self) -> None:
        self._scores.clear()
        self._tokens.clear()

    def _arguments(self, found: Found) -> str:
        if found.pairs is None:
            return found.arguments
        return arguments(found.pairs, self._tools[found.name], self._formats)

    def _between(self, *, final: bool) -> bool:
        """Pass over the text between calls; return whether more text is needed."""
        form = self._way
        passed = form.pass_over(self._buffer, final=final)
        if passed == "wait":
            return True
        size, more = passed
        self._buffer = self._buffer[size:]
        if more and self._parallel:
            self._begin_call(first=False)
        else:
            self._mode, self._trim = "text", True
        return False

    def _openings(self) -> tuple[str, ...]:
        return self._form.openings if self._form is not None else ()

    def _tags(self) -> tuple[str, ...]:
        if self._mode == "think":
            return (self._unthink,)
        look = self._form is not None and (self._parallel or self.calls == 0)
        calls = self._openings() if look else ()
        return (*self._marks, *calls, *((self._think,) if self._thinks else ()))

    def _possible_tag(self, tags: tuple[str, ...]) -> int:
        """Return how many characters at the end may be the beginning of a tag (and white space before a call)."""
        text, best = self._buffer, 0
        for tag in tags:
            for size in range(min(len(tag) - 1, len(text)), 0, -1):
                if text.endswith(tag[:size]):
                    best = max(best, size)
                    break
        if self._form is not None and self._mode == "text":
            stem = text[: len(text) - best]
            best += len(stem) - len(stem.rstrip())
        return best

    def _reason(self, text: str) -> Reasoning:
        self._count_as_thought()
        return Reasoning(self.index, text)

    def _count_as_thought(self) -> None:
        self.reasoning_tokens += len(self._tokens)
        self._drop_tokens()

    def _text(self, text: str) -> Text:
        if text:
            text = text.removeprefix(self._prompted)  # it is no part of the answer
            self._prompted = ""
        scores, tokens = tuple(self._scores), tuple(self._tokens)
        self._drop_tokens()
        return Text(self.index, text, scores, tokens)
