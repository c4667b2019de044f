"""The format in which a model writes calls, ready for reading."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from .arriving import CallStart, read_call_start
from .calls import Found, Step, read_call
from .formats import Formats
from .literal_arguments import Bracketed, Literals
from .matching import WAIT, length, skip, starts
from .nesting import Braces, Inside
from .patterns import NAMED, PARTS, literals, openings, rows, steps_of, stripped
from .tagged_arguments import Tags, tags_in


@dataclass(frozen=True, slots=True)
class Envelope:
    """One format, ready for reading."""

    name: str
    openings: tuple[str, ...]
    """The marks that begin a call, or a group of calls."""
    marks: tuple[str, ...]
    """The marks around text, which are no part of it."""
    specials: tuple[str, ...]
    """Its control tokens."""
    prompted: str
    """The ends of a prompt that belong to the output."""
    reasoning: tuple[str, str] | None
    single: bool
    before: tuple[str, ...]
    forms: tuple[tuple[Step, ...], ...]
    between: tuple[str, ...]
    after: tuple[str, ...]
    tails: tuple[str, ...]
    """The marks that end a call, in its different forms."""
    stops: tuple[str, ...] = ()
    """The marks that free text under a grammar does not contain, since they begin a call."""
    in_parts: bool = False
    """Whether arguments can be told while they are written: as they stand there, and with nothing behind them that
    the call has to begin with."""
    ids: str = ""
    """The ids of calls in a conversation, made of {name} and {count}; empty where that is free."""
    tags: Tags | Literals | None = None
    """The form of arguments, where they are not one object."""
    own: Envelope | None = None
    """The format of calls that the model writes of its own accord, where a grammar binds another one."""

    def visible(self, reasoning: tuple[str, str] | None, *, calls: bool) -> tuple[str, ...]:
        """Return the control tokens without which reasoning with these marks, and calls, cannot be read."""
        marks = (part for mark in reasoning or () for part in (mark, *_CONTROL.findall(mark)))
        return tuple(dict.fromkeys((*(self.specials if calls or self.marks else ()), *marks)))

    def way(self, text: str) -> Envelope:
        """Return this or `own`, whichever begins a call like the one at the start of `text`."""
        if self.own is not None and text.lstrip().startswith(self.own.openings):
            return self.own
        return self

    def within(self) -> Braces | Inside | Bracketed:
        """Return the pattern by which open arguments are recognised."""
        match self.tags:
            case Tags():
                return Inside(self.tags)
            case Literals():
                return Bracketed(self.tags)
        return Braces()

    def read(self, text: str, *, first: bool, final: bool) -> Found | Literal["wait"] | None:
        """Return a call at the start of `text`. None where there is none, "wait" where more text decides."""
        waits = False
        for before in self.before if first else ("",):
            for form in self.forms:
                steps: tuple[Step, ...] = (("text", before), *form) if before else form
                found = read_call(steps, text, final, self.tails, self.tags)
                if isinstance(found, Found):
                    return found
                waits |= found == WAIT
        return WAIT if waits else None

    def call_start(self, text: str, *, first: bool, certain: bool) -> CallStart | Literal["wait"] | None:
        """Return a call at the start of `text`, up to its arguments, in text that a grammar has bound.

        None where arguments cannot be told in parts, or where it may still be text: where nothing stands in front of
        the arguments that free text cannot have, unless the text is known to be a call for `certain`.
        """
        if not self.in_parts:
            return None
        waits = False
        for before in self.before if first else ("",):
            for form in self.forms:
                found = read_call_start((("text", before), *form) if before else form, text)
                if isinstance(found, CallStart):
                    bound = certain or any(text.find(stop, 0, found.at) >= 0 for stop in self.stops)
                    return found if bound else None
                waits |= found == WAIT
        return WAIT if waits else None

    def pass_over(self, text: str, *, final: bool) -> tuple[int, bool] | Literal["wait"]:
        """Return how much is between a call and the next, and whether there is a next one."""
        at = skip(text, 0)
        if self.after and (found := starts(text, at, self.after)):
            if found is True:
                return at + length(text, at, self.after), False
            return (0, False) if final else WAIT
        if self.marks and (found := starts(text, at, self.marks)):
            return WAIT if found == WAIT and not final else (at, False)
        if self.between and starts(text, at, self.between) is True:
            at = skip(text, at + length(text, at, self.between))
        if at >= len(text):
            return (len(text), False) if final else WAIT
        heads = tuple(dict.fromkeys("{" if form[0][0] == "object" else form[0][1] for form in self.forms))
        found = starts(text, at, heads)
        if found == WAIT:
            return (0, False) if final else WAIT
        return (at, True) if found else (0, False)

    def example(self) -> str:
        """Return a call as it is written, in words for a model whose template describes no tools."""
        text, (steps, *_) = self.before[-1], self.forms
        for kind, literal in steps:
            match kind:
                case "object":
                    text += NAMED + 'the function", "arguments": {...}}'
                case "name":
                    text += "the function"
                case "counted":
                    text += "the function:0"
                case "arguments":
                    text += "{...}"
                case "parameters":
                    assert isinstance(self.tags, Tags)
                    text += f"\n{self.tags.example()}"
                case _:
                    text += literal
        return text + next(iter(self.after), "")


_CONTROL = re.compile(r"<[^<>\s]+>")
"""The pattern of a control token inside a mark."""


@functools.lru_cache(maxsize=256)
def envelope(name: str, formats: Formats) -> Envelope:
    """Return the format of this name. Raises KeyError where there is none."""
    return _envelope(name, formats.tool_formats()[name])


def _envelope(name: str, form: Mapping[str, Any]) -> Envelope:
    prompted = form.get("prompted", "")
    call = [{"text": prompted}, *form["call"]] if prompted else form["call"]
    calls = [call, *form.get("lenient", ())]
    forms = tuple(dict.fromkeys(steps_of(row) for each in calls for row in rows(each)))
    before = literals(form.get("before", ())) or ("",)
    says = [prompted + mark for mark in literals(form.get("say", ()))]
    marks = says if prompted else [*says, *literals(form.get("then", ()))]
    pieces = [p for part in PARTS for row in rows(form.get(part, ())) for p in row]
    pieces += [
        p for piece in pieces if "parameters" in piece for side in piece["parameters"].values() for p in side
    ]
    pieces += [quote for piece in pieces if "values" in piece for quote in piece["values"]["quotes"]]
    own = _envelope(name, form["own"]) if "own" in form else None
    return Envelope(
        name=name,
        openings=tuple(
            dict.fromkeys(
                (
                    *(o for each in calls for o in openings([*form.get("before", ()), *each])),
                    *(own.openings if own is not None else ()),
                )
            )
        ),
        marks=tuple(marks),
        specials=tuple(
            dict.fromkeys(
                (
                    *(p["special"] for p in pieces if "special" in p),
                    *(own.specials if own is not None else ()),
                )
            )
        ),
        prompted=prompted,
        reasoning=tuple(form["reasoning"]) if "reasoning" in form else None,
        single=bool(form.get("single")),
        before=tuple(text.strip() for text in before),
        forms=forms,
        between=() if prompted else stripped(form.get("between", ())),
        after=stripped(form.get("after", ())),
        # A brace alone ends nothing: there are others in the arguments.
        tails=tuple(
            dict.fromkeys(row[-1][1] for row in forms if row[-1][0] == "text" and row[-1][1] not in ("}", ""))
        ),
        stops=tuple(form.get("stop", ())),
        in_parts=not any(_waits(row) for each in calls for row in rows(each)),
        ids=form.get("ids", ""),
        tags=next((Literals.of(piece["values"]) for piece in call if "values" in piece), tags_in(call)),
        own=own,
    )


def _waits(row: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether a call written so has to be whole before it can be told."""
    kinds = [next((k for k in ("arguments", "parameters", "name", "id") if k in piece), "") for piece in row]
    if "arguments" not in kinds or "parameters" in kinds:
        return True
    behind = kinds[kinds.index("arguments") :]
    return "name" in behind or "id" in behind
