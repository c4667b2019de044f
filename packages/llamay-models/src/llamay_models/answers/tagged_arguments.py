"""Arguments that stand between tags of their own: `<parameter=NAME>VALUE</parameter>` and its relatives.

The content of a tag is text. The function's schema decides whether that is a string or JSON of another value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .compact_json import compact
from .formats import Formats
from .matching import skip

Pairs = tuple[tuple[str, str, bool | None], ...]
"""Arguments as they stand there: name, text, and whether it is a string, where its tag says so."""

_TYPED = ("true", "false")


@dataclass(frozen=True, slots=True)
class Tags:
    """The form in which a format writes one argument. White space between the literals does not matter."""

    before: str
    """The literal in front of the name."""
    after: tuple[str | None, ...]
    """The literals between name and value; None stands for one word that says whether the value is a string."""
    stop: str
    """The literal behind the value."""
    lines: tuple[bool, bool]
    """Whether the value stands on lines of its own: a line's end before it, and one behind it."""
    typed: tuple[str, str]
    """The word that stands for None in `after`: of a string, and of anything else."""

    @staticmethod
    def of(about: Mapping[str, Any]) -> Tags:
        """Return the form that an envelope's data describe."""
        opening = list(about["open"])
        at = next(i for i, piece in enumerate(opening) if piece.get("key"))
        close = _text(about["close"])
        after: list[str | None] = []
        text, typed = "", _TYPED
        for piece in opening[at + 1 :]:
            if "typed" in piece:
                after.append(None)
                typed = tuple(piece["typed"])
            else:
                text = _text([piece])
                after += filter(None, map(str.strip, text.split("\n")))
        stop = close.strip()
        return Tags(
            before=_text(opening[:at]).strip(),
            after=tuple(after),
            stop=stop,
            lines=(text.endswith("\n"), close.startswith("\n")),
            typed=(typed[0], typed[1]),
        )

    def read(self, text: str, at: int) -> tuple[Pairs, int] | Literal["wait"] | None:
        """Return the arguments from `at` on, and where they end; None where a tag is broken."""
        pairs: list[tuple[str, str, bool | None]] = []
        while True:
            start = skip(text, at)
            if not text.startswith(self.before, start):
                return "wait" if self.before.startswith(text[start:]) else (tuple(pairs), at)
            start += len(self.before)
            key: str | None = None
            string: bool | None = None
            for literal in self.after:
                if literal is None:
                    for word in self.typed:
                        if text.startswith(word, start):
                            string, start = word == self.typed[0], start + len(word)
                            break
                    else:
                        rest = text[start:]
                        return "wait" if any(word.startswith(rest) for word in self.typed) else None
                elif key is None:
                    end = text.find(literal, start)
                    if end < 0:
                        return None if "\n" in text[start:].strip() else "wait"
                    key, start = text[start:end].strip(), end + len(literal)
                else:
                    place = skip(text, start)
                    if not text.startswith(literal, place):
                        return "wait" if literal.startswith(text[place:]) else None
                    start = place + len(literal)
            if not key or "\n" in key:
                return None
            end = text.find(self.stop, start)
            if end < 0:
                return "wait"
            at = end + len(self.stop)
            if self.lines[0] and text.startswith("\n", start, end):
                start += 1
            if self.lines[1] and text.endswith("\n", start, end):
                end -= 1
            pairs.append((key, text[start:end], string))

    def example(self) -> str:
        """Return an argument in words."""
        inner = "".join(self.typed[0] if part is None else part for part in self.after)
        first, last = ("\n" if line else "" for line in self.lines)
        return f"{self.before}its name{inner}{first}its value{last}{self.stop}\n"


def arguments(pairs: Pairs, schema: Any, formats: Formats) -> str:
    """Return the arguments of a function with this schema as compact JSON; of equal names the last one counts."""
    types = formats.argument_types(schema)
    out: dict[str, Any] = {}
    for name, text, string in pairs:
        if string is None:
            out[name] = formats.read_argument(text, types[name])
        else:
            out[name] = (
                text if string else formats.read_argument(text, (types[name] - {"string"}) or {"null"})
            )
    return compact(out)


def _text(pieces: Iterable[Mapping[str, Any]]) -> str:
    return "".join(piece.get("text", piece.get("special", "")) for piece in pieces)


def tags_in(pieces: Sequence[Mapping[str, Any]]) -> Tags | None:
    """Return the tags of a call's pieces, if its arguments stand between some."""
    return next((Tags.of(piece["parameters"]) for piece in pieces if "parameters" in piece), None)
