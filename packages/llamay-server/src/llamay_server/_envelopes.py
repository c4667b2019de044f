"""How models write tool calls: the format that a chat template speaks, and calls read back from the text.

The formats are llamay_grammar's (`tool_formats`), data that both sides share: the grammar that binds a demanded call
and the reader that finds calls in what was written.
"""

from __future__ import annotations

import functools
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ._tagged import Pairs, Tags, tags_in

# ruff: noqa: RUF001 - DeepSeek's marks have full-width bars
# What stands in a template whose model speaks a format (and what does not), the most telling first.
_MARKS: tuple[tuple[tuple[str, ...], tuple[str, ...], str], ...] = (
    (("[TOOL_CALLS]", "[ARGS]"), (), "mistral-v11"),
    (("[TOOL_CALLS]",), (), "mistral"),
    (("<｜tool▁calls▁begin｜>", "```json"), (), "deepseek"),
    (("<｜tool▁calls▁begin｜>",), (), "deepseek-v3.1"),
    (("<|channel|>", "functions."), (), "gpt-oss"),
    (("<|tool_calls_section_begin|>",), (), "kimi-k2"),
    (("<|START_ACTION|>",), (), "command-r7b"),
    (("<TOOLCALL>",), (), "nemotron-v2"),
    (("<tool_calls>[",), (), "apriel"),
    (("<tool_calls>\\n",), (), "minimax-m1"),
    (("<|tool|>", "<|/tool|>"), (), "phi-4-mini"),
    (("<|tool_call|>",), (), "granite-3.3"),
    (("<|function_call|>",), (), "gigachat-3.1"),
    (("<|tool_call:begin|>",), (), "solar-open"),
    (("<|tools_prefix|>",), (), "apertus"),
    (("<minimax:tool_call>",), (), "minimax-m2"),
    (("<seed:tool_call>",), (), "seed-oss"),
    (("｜DSML｜", "function_calls"), (), "deepseek-v3.2"),
    (("｜DSML｜",), (), "deepseek-v4"),
    (("<tool_call>", "</arg_key>\n"), (), "glm-4.5"),
    (("<tool_call>", "</arg_key>\\n"), (), "glm-4.5"),
    (("<tool_call>", "</arg_key>"), (), "glm-4.7"),
    (("<tool_call>", "<function=", "<parameter="), (), "qwen3-coder"),
    (("<tool_call>",), (), "hermes"),
    (("<function=",), ("<parameter=",), "functionary"),
    ((">>>all",), (), "functionary-v3.2"),
    (("```tool_call",), (), "gemma"),
    (("<|start_header_id|>", '"parameters": '), (), "llama3"),
)
DEFAULT = "hermes"
_THOUGHTS = (
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
)
_NAMED = '{"name": "'
_NUMBERED = '{"tool_call_id": "'
# White space and order in a call's own JSON are the model's to choose.
_OBJECTS = ('{"name"', '{ "name"', '{"type"', '{ "type"')
_COUNTED = re.compile(r"(.+):\d+")
_WAIT: Literal["wait"] = "wait"
_WORD = re.compile(r"[A-Za-z0-9_.:/-]*")


@functools.lru_cache(maxsize=64)
def format_of(template: str | None) -> str:
    """The name of the format that a chat template speaks; one that writes no calls is told of Hermes' in words."""
    if not writes_calls(template):
        return DEFAULT
    assert template is not None
    return next(
        (
            name
            for marks, others, name in _MARKS
            if all(mark in template for mark in marks) and not any(mark in template for mark in others)
        ),
        DEFAULT,
    )


def writes_calls(template: str | None) -> bool:
    """Whether a template has a place for calls in the turns of the assistant, or at least for tools."""
    return template is not None and any(
        word in template.lower() for word in ("tools", "tool_calls", "toolcalls")
    )


@functools.lru_cache(maxsize=64)
def reasoning_of(template: str | None) -> tuple[str, str] | None:
    """The marks around the thoughts of a model with this template; None where it does not think first."""
    if template is None:
        return None
    if (marks := envelope(format_of(template)).reasoning) is not None:
        return marks
    return next((marks for marks in _THOUGHTS if marks[0] in template), None)


def begins_thought(prompt: str, marks: tuple[str, str] | None) -> bool:
    """Whether a prompt (its end suffices) has already opened the thought of the answer."""
    return marks is not None and prompt.rstrip().endswith(marks[0])


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
_Step = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Envelope:
    """One format, ready for reading."""

    name: str
    openings: tuple[str, ...]
    """What begins a call, or a group of them."""
    marks: tuple[str, ...]
    """What the format writes around text, which is no part of it."""
    specials: tuple[str, ...]
    """Its control tokens."""
    prompted: str
    """What a prompt may end with that belongs to the output."""
    reasoning: tuple[str, str] | None
    single: bool
    before: tuple[str, ...]
    forms: tuple[tuple[_Step, ...], ...]
    between: tuple[str, ...]
    after: tuple[str, ...]
    tails: tuple[str, ...]
    """What ends a call, in its different forms."""
    ids: str = ""
    """How calls are named in a conversation, made of {name} and {count}; empty where that is free."""
    tags: Tags | None = None
    """What stands around each argument, where they are not one object."""

    def visible(self, thoughts: tuple[str, str] | None, *, calls: bool) -> tuple[str, ...]:
        """The control tokens that have to be in the text so that thoughts with these marks, and calls, can be read."""
        return (*(self.specials if calls or self.marks else ()), *(thoughts or ()))

    def read(self, text: str, *, first: bool, final: bool) -> Found | Literal["wait"] | None:
        """A call at the start of `text`. None where there is none, "wait" where more text decides."""
        waits = False
        for before in self.before if first else ("",):
            for form in self.forms:
                steps: tuple[_Step, ...] = (("text", before), *form) if before else form
                found = _read(steps, text, final, self.tails, self.tags)
                if isinstance(found, Found):
                    return found
                waits |= found == _WAIT
        return _WAIT if waits else None

    def pass_over(self, text: str, *, final: bool) -> tuple[int, bool] | Literal["wait"]:
        """After a call: how much is between it and the next, and whether there is a next one."""
        at = _skip(text, 0)
        if self.after and (found := _starts(text, at, self.after)):
            if found is True:
                return at + _length(text, at, self.after), False
            return (0, False) if final else _WAIT
        if self.marks and (found := _starts(text, at, self.marks)):
            return _WAIT if found == _WAIT and not final else (at, False)
        if self.between and _starts(text, at, self.between) is True:
            at = _skip(text, at + _length(text, at, self.between))
        if at >= len(text):
            return (len(text), False) if final else _WAIT
        heads = tuple(dict.fromkeys("{" if form[0][0] == "object" else form[0][1] for form in self.forms))
        found = _starts(text, at, heads)
        if found == _WAIT:
            return (0, False) if final else _WAIT
        return (at, True) if found else (0, False)

    def example(self) -> str:
        """A call as it is written, in words for a model whose template describes no tools."""
        text, (steps, *_) = self.before[-1], self.forms
        for kind, literal in steps:
            match kind:
                case "object":
                    text += _NAMED + 'the function", "arguments": {...}}'
                case "name":
                    text += "the function"
                case "counted":
                    text += "the function:0"
                case "arguments":
                    text += "{...}"
                case "parameters":
                    assert self.tags is not None
                    text += f"\n{self.tags.example()}"
                case _:
                    text += literal
        return text + next(iter(self.after), "")


def _read(
    steps: Sequence[_Step], text: str, final: bool, tails: Sequence[str], tags: Tags | None
) -> Found | Literal["wait"] | None:
    at = 0
    words: dict[str, str] = {}
    call: tuple[str, dict[str, Any], str | None] | None = None
    pairs: Pairs | None = None
    row = iter(range(len(steps)))
    for i in row:
        kind, literal = steps[i]
        start = _skip(text, at)
        if kind == "text":
            found = _starts(text, start, (literal,))
            if found is True:
                at = start + len(literal)
            elif found == _WAIT and not final:
                return _WAIT
            elif call is None or steps[i - 1][0] == "parameters":
                return None  # without the mark behind the last one, there may be more arguments
        elif kind in ("name", "id", "counted"):
            ends = steps[i + 1][1]
            word = _WORD.match(text, start)
            assert word is not None
            if not ends:  # nothing but white space or the first argument
                if word.end() == len(text) or not word[0]:
                    return _WAIT if word.end() == len(text) and not final else None
                words[kind], at = word[0], word.end()
                continue
            rest = word.end() if text.startswith(ends, word.end()) else _skip(text, word.end())
            found = _starts(text, rest, (ends,))
            if found is not True or not word[0]:
                return _WAIT if found and not final else None
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
            if read == _WAIT or read is None:
                return _WAIT if read == _WAIT and not final else None
            pairs, at = read
            call = (words["name"], {}, None)
        else:
            if start >= len(text):
                return None if final else _WAIT
            if text[start] != "{":
                return None
            try:
                value, at = _DECODER.raw_decode(text, start)
            except (ValueError, RecursionError):
                closed = any(tail and text.find(tail, start) >= 0 for tail in tails)
                return None if final or closed else _WAIT
            call = (words["name"], value, words.get("id")) if kind == "arguments" else _named(value)
            if call is None:
                return None
    assert call is not None
    return Found(call[0], json.dumps(call[1], ensure_ascii=False, separators=(",", ":")), call[2], at, pairs)


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
    prompted = form.get("prompted", "")
    call = [{"text": prompted}, *form["call"]] if prompted else form["call"]
    calls = [call, *form.get("lenient", ())]
    forms = tuple(dict.fromkeys(_steps(row) for each in calls for row in _rows(each)))
    before = _literals(form.get("before", ())) or ("",)
    says = [prompted + mark for mark in _literals(form.get("say", ()))]
    marks = says if prompted else [*says, *_literals(form.get("then", ()))]
    pieces = [p for part in _PARTS for row in _rows(form.get(part, ())) for p in row]
    pieces += [
        p for piece in pieces if "parameters" in piece for side in piece["parameters"].values() for p in side
    ]
    return Envelope(
        name=name,
        openings=tuple(
            dict.fromkeys(o for each in calls for o in _openings([*form.get("before", ()), *each]))
        ),
        marks=tuple(marks),
        specials=tuple(dict.fromkeys(p["special"] for p in pieces if "special" in p)),
        prompted=prompted,
        reasoning=tuple(form["reasoning"]) if "reasoning" in form else None,
        single=bool(form.get("single")),
        before=tuple(text.strip() for text in before),
        forms=forms,
        between=() if prompted else _stripped(form.get("between", ())),
        after=_stripped(form.get("after", ())),
        # A brace alone ends nothing: there are others in the arguments.
        tails=tuple(dict.fromkeys(row[-1][1] for row in forms if row[-1][0] == "text" and row[-1][1] != "}")),
        ids=form.get("ids", ""),
        tags=tags_in(call),
    )


_KINDS = ("name", "arguments", "parameters", "id", "count", "text", "special")
_PARTS = ("before", "call", "between", "after", "say", "then")


def _rows(pieces: Iterable[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    """The ways to go through pieces of which some are optional and some have alternatives; the shortest first."""
    ways: list[list[list[Mapping[str, Any]]]] = []
    for piece in pieces:
        if "optional" in piece:
            ways.append([[], *_rows(piece["optional"])])
        elif "any" in piece:
            ways.append([row for each in piece["any"] for row in _rows(each)])
        else:
            ways.append([[piece]])
    for row in itertools.product(*ways):
        yield list(itertools.chain.from_iterable(row))


def _literals(pieces: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    rows = ("".join(p.get("text", p.get("special", "")) for p in row) for row in _rows(pieces))
    return tuple(dict.fromkeys(rows)) if pieces else ()


def _stripped(pieces: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    return tuple(text for each in _literals(pieces) if (text := each.strip()))


def _openings(pieces: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for row in _rows(pieces):
        first = row[0]
        if first.get("text") in (_NAMED, _NUMBERED):
            yield from _OBJECTS
        elif "text" in first and "special" in row[1]:  # a mark with a special token inside
            texts = (p.get("special") or p["text"] for p in itertools.takewhile(_is_text, row))
            yield "".join(texts).partition("\n")[0].strip()
        else:
            yield first.get("special") or first["text"].strip()


def _is_text(piece: Mapping[str, Any]) -> bool:
    return "text" in piece or "special" in piece


def _steps(row: Iterable[Mapping[str, Any]]) -> tuple[_Step, ...]:
    """A way to write a call, with neighbouring texts as one."""
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
    object_at = next(
        (n for n, (_, text) in enumerate(steps[:at]) if text.endswith((_NAMED, _NUMBERED))), None
    )
    if object_at is not None:
        closing, opening = steps[-1][1], steps[object_at]
        opening[1] = opening[1].removesuffix(_NAMED).removesuffix(_NUMBERED)
        steps[object_at + 1 :] = [["object", ""], ["text", closing[closing.index("}") + 1 :]]]
    elif kinds[at + 1 : at + 3] == ["text", "count"]:
        steps[at : at + 3] = [["counted", ""]]
    out = []
    for n, (kind, literal) in enumerate(steps):
        # What a name ends with may be the end of the line.
        keep = literal.strip() or (literal if n and steps[n - 1][0] in ("name", "id", "counted") else "")
        if kind != "text" or keep:
            out.append((kind, keep))
    return tuple(out)


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


def _length(text: str, at: int, literals: Sequence[str]) -> int:
    return max(len(literal) for literal in literals if text.startswith(literal, at))


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
