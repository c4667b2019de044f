"""Strings that know which of their characters the template itself wrote.

A prompt is template text, in which `<|im_start|>` is a control token, around message text, in which it must stay
text. `Traced` carries that distinction through everything that templates do with strings. What an operation
does not carry it through counts as message text: a mistake here can make a prompt weaker, never unsafe.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from string import Formatter
from typing import Any, Self, SupportsIndex

from .limits import MAX_ITEMS, check_characters, check_items, check_widths

Spans = tuple[tuple[int, int], ...]
_begin, _end = itemgetter(0), itemgetter(1)

_PERCENT = re.compile(r"%(?:%|(?:\((?P<key>[^)]*)\))?[#0\- +]*[\d*]*(?:\.[\d*]+)?[hlL]?(?P<kind>[a-zA-Z]))")


class Traced(str):
    """A string with spans of characters [begin, end) that come from the template."""

    __slots__ = ("spans",)
    spans: Spans

    def __new__(cls, text: object = "", spans: Spans = ()) -> Self:
        """Return `text` as a string with these spans; without spans, no character is the template's."""
        self = super().__new__(cls, str.__str__(text) if isinstance(text, str) else str(text))
        self.spans = spans
        return self

    @classmethod
    def trusted(cls, text: str) -> Traced:
        """Return text that the template wrote as a whole."""
        return cls(text, ((0, len(text)),) if text else ())

    @property
    def is_trusted(self) -> bool:
        """Whether the template wrote all of it."""
        return self.spans == ((0, len(self)),) or not self

    @property
    def plain(self) -> str:
        """The same text as a string that knows nothing."""
        return str.__getitem__(self, slice(None))

    def __str__(self) -> str:
        return self

    # -- joining

    def __add__(self, other: str) -> Traced:
        return concat((self, other)) if isinstance(other, str) else NotImplemented

    def __radd__(self, other: str) -> Traced:
        return concat((other, self)) if isinstance(other, str) else NotImplemented

    def __mul__(self, count: SupportsIndex) -> Traced:
        n = max(0, count.__index__())
        check_characters(len(self) * n)
        return self._uniform(str.__mul__(self, n)) or concat([self] * n)

    __rmul__ = __mul__

    def join(self, parts: Iterable[str], /) -> Traced:
        """Work as str.join does."""
        joined: list[str] = []
        total = 0
        for part in parts:
            if joined:
                joined.append(self)
            joined.append(part)
            total += len(part) + len(self)
            check_characters(total)
        return concat(joined)

    def __mod__(self, values: Any) -> Traced:
        check_widths("".join(m.group() for m in _PERCENT.finditer(self)))
        remaining = iter(values if isinstance(values, tuple) else (values,))
        parts: list[str] = []
        at = 0
        for match in _PERCENT.finditer(self):
            parts.append(self._literal(str.__getitem__(self, slice(at, match.start()))))
            at = match.end()
            if match.group() == "%%":
                parts.append(self._literal("%"))
            elif match["key"] is not None:
                parts.append(
                    _format_one(match.group().replace(f"({match['key']})", ""), values[match["key"]])
                )
            else:
                try:
                    parts.append(_format_one(match.group(), next(remaining)))
                except StopIteration:
                    raise TypeError("not enough arguments for format string") from None
        parts.append(self._literal(str.__getitem__(self, slice(at, None))))
        return concat(parts)

    def format_with(self, formatter: Formatter, args: Any, kwargs: Any) -> Traced:
        """Work as str.format does, with fields looked up and formatted by `formatter`."""
        parts: list[str] = []
        automatic = 0
        for literal, name, specification, conversion in formatter.parse(self):
            parts.append(self._literal(literal))
            if name is None:
                continue
            if name == "":
                name, automatic = str(automatic), automatic + 1
            check_widths(specification or "")
            if specification or conversion or not name.isdigit():
                inner = "{" + name + ("!" + conversion if conversion else "")
                parts.append(
                    formatter.vformat(
                        inner + (":" + specification if specification else "") + "}", args, kwargs
                    )
                )
            else:
                parts.append(_text(args[int(name)]))
        return concat(parts)

    def _literal(self, text: str) -> Traced:
        return Traced.trusted(text) if self.is_trusted else Traced(text)

    def _uniform(self, text: str) -> Traced | None:
        """Return text made of nothing but parts of this one, where all of it is trusted or none of it."""
        if self.is_trusted:
            return Traced.trusted(text)
        return None if self.spans else Traced(text)

    # -- cutting

    def _cut(self, begin: int, end: int) -> Traced:
        if begin >= end:
            return Traced()
        # A prompt has thousands of spans, and is cut into as many pieces.
        first = bisect_right(self.spans, begin, key=_end)
        last = bisect_left(self.spans, end, first, key=_begin)
        spans = tuple((max(b, begin) - begin, min(e, end) - begin) for b, e in self.spans[first:last])
        return Traced(str.__getitem__(self, slice(begin, end)), spans)

    def __getitem__(self, key: SupportsIndex | slice) -> Traced:
        if isinstance(key, slice):
            begin, end, step = key.indices(len(self))
            return self._cut(begin, max(begin, end)) if step == 1 else Traced(str.__getitem__(self, key))
        index = key.__index__()
        plain = str.__getitem__(self, index)
        begin = index % len(self)
        return self._cut(begin, begin + len(plain))

    def __iter__(self) -> Iterator[str]:
        return (self._cut(i, i + 1) for i in range(len(self)))

    def lstrip(self, characters: str | None = None, /) -> Traced:
        """Work as str.lstrip does."""
        return self._cut(len(self) - len(str.lstrip(self, characters)), len(self))

    def rstrip(self, characters: str | None = None, /) -> Traced:
        """Work as str.rstrip does."""
        return self._cut(0, len(str.rstrip(self, characters)))

    def strip(self, characters: str | None = None, /) -> Traced:
        """Work as str.strip does."""
        return self.lstrip(characters).rstrip(characters)

    def removeprefix(self, prefix: str, /) -> Traced:
        """Work as str.removeprefix does."""
        return self._cut(len(prefix), len(self)) if self.startswith(prefix) else self

    def removesuffix(self, suffix: str, /) -> Traced:
        """Work as str.removesuffix does."""
        return self._cut(0, len(self) - len(suffix)) if suffix and self.endswith(suffix) else self

    def _pieces(self, plain: list[str]) -> list[str]:
        """Return the same pieces, each cut from where it stands."""
        at = 0
        result: list[str] = []
        for piece in plain:
            at = self.index(piece, at)
            result.append(self._cut(at, at + len(piece)))
            at += len(piece)
        return result

    def split(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[str]:
        """Work as str.split does."""
        if sep is None:
            return self._pieces(_checked_list(str.split(self, None, _bounded(maxsplit))))
        _check_count(self, sep, maxsplit)
        return self._between(str.split(self, sep, maxsplit), len(sep))

    def rsplit(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[str]:
        """Work as str.rsplit does."""
        if sep is None:
            return self._pieces(_checked_list(str.rsplit(self, None, _bounded(maxsplit))))
        _check_count(self, sep, maxsplit)
        return self._between(str.rsplit(self, sep, maxsplit), len(sep))

    def _between(self, plain: list[str], gap: int) -> list[str]:
        at = 0
        result: list[str] = []
        for piece in plain:
            result.append(self._cut(at, at + len(piece)))
            at += len(piece) + gap
        return result

    def splitlines(self, keepends: bool = False) -> list[str]:
        """Work as str.splitlines does."""
        whole = self._between(_checked_list(str.splitlines(self, keepends=True)), 0)
        if keepends:
            return whole
        plain = str.splitlines(self)
        return [Traced(p, ())[:0] + w[: len(p)] for p, w in zip(plain, whole, strict=True)]

    def partition(self, sep: str, /) -> tuple[str, str, str]:
        """Work as str.partition does."""
        at = self.find(sep)
        if not sep or at < 0:
            str.partition(self, sep)
            return self, Traced(), Traced()
        return self._cut(0, at), self._cut(at, at + len(sep)), self._cut(at + len(sep), len(self))

    def rpartition(self, sep: str, /) -> tuple[str, str, str]:
        """Work as str.rpartition does."""
        at = self.rfind(sep)
        if not sep or at < 0:
            str.rpartition(self, sep)
            return Traced(), Traced(), self
        return self._cut(0, at), self._cut(at, at + len(sep)), self._cut(at + len(sep), len(self))

    def replace(self, old: str, new: str, count: SupportsIndex = -1, /) -> Traced:
        """Work as str.replace does."""
        n = str.count(self, old)
        limit = count.__index__()
        n = n if limit < 0 else min(n, limit)
        check_characters(len(self) + n * max(0, len(new) - len(old)))
        same = (
            isinstance(new, Traced) and new.is_trusted if self.is_trusted else not getattr(new, "spans", ())
        )
        if same and (uniform := self._uniform(str.replace(self, old, new, limit))):
            return uniform
        if not old or n > MAX_ITEMS:
            return Traced(str.replace(self, old, new, limit))
        return concat(_interleave(self.split(old, n), new))

    # -- case and padding

    def _mapped(self, text: str) -> Traced:
        if self.is_trusted:
            return Traced.trusted(text)
        return Traced(text, self.spans if len(text) == len(self) else ())

    def upper(self) -> Traced:
        """Work as str.upper does."""
        return self._mapped(str.upper(self))

    def lower(self) -> Traced:
        """Work as str.lower does."""
        return self._mapped(str.lower(self))

    def title(self) -> Traced:
        """Work as str.title does."""
        return self._mapped(str.title(self))

    def capitalize(self) -> Traced:
        """Work as str.capitalize does."""
        return self._mapped(str.capitalize(self))

    def swapcase(self) -> Traced:
        """Work as str.swapcase does."""
        return self._mapped(str.swapcase(self))

    def center(self, width: SupportsIndex, fill: str = " ", /) -> Traced:
        """Work as str.center does."""
        check_characters(width.__index__())
        return Traced(str.center(self, width, fill))

    def ljust(self, width: SupportsIndex, fill: str = " ", /) -> Traced:
        """Work as str.ljust does."""
        check_characters(width.__index__())
        return self + Traced(str.ljust(self, width, fill)[len(self) :])

    def rjust(self, width: SupportsIndex, fill: str = " ", /) -> Traced:
        """Work as str.rjust does."""
        check_characters(width.__index__())
        return Traced(str.rjust(self, width, fill)[: max(0, width.__index__() - len(self))]) + self

    def zfill(self, width: SupportsIndex, /) -> Traced:
        """Work as str.zfill does."""
        check_characters(width.__index__())
        return Traced(str.zfill(self, width))

    def expandtabs(self, tabsize: SupportsIndex = 8) -> Traced:
        """Work as str.expandtabs does."""
        check_characters(len(self) + str.count(self, "\t") * abs(tabsize.__index__()))
        return Traced(str.expandtabs(self, tabsize))


#: Methods that can make much out of little; a plain str gets those of Traced, for their checks.
GROWING: frozenset[str] = frozenset(
    {
        "join",
        "replace",
        "center",
        "ljust",
        "rjust",
        "zfill",
        "expandtabs",
        "split",
        "rsplit",
        "splitlines",
        "translate",
    }
)


def concat(parts: Iterable[str]) -> Traced:
    """Join strings, keeping track of the origin of each part."""
    texts: list[str] = []
    spans: list[tuple[int, int]] = []
    at = 0
    for part in parts:
        if isinstance(part, Traced):
            for begin, end in part.spans:
                if spans and spans[-1][1] == at + begin:
                    spans[-1] = (spans[-1][0], at + end)
                else:
                    spans.append((at + begin, at + end))
        texts.append(part)
        at += len(part)
        check_characters(at)
    return Traced("".join(texts), tuple(spans))


def _bounded(maxsplit: SupportsIndex) -> int:
    n = maxsplit.__index__()
    return MAX_ITEMS if n < 0 or n > MAX_ITEMS else n


def _checked_list(items: list[str]) -> list[str]:
    check_items(len(items))
    return items


def _check_count(text: str, sep: str, maxsplit: SupportsIndex) -> None:
    n = maxsplit.__index__()
    if sep and (n < 0 or n > MAX_ITEMS):
        check_items(str.count(text, sep))


def _interleave(parts: list[str], between: str) -> Iterator[str]:
    for i, part in enumerate(parts):
        if i:
            yield between
        yield part


def _text(value: Any) -> str:
    return value if isinstance(value, str) else str(value)


def _format_one(specification: str, value: Any) -> str:
    if specification == "%s":
        return _text(value)
    formatted: Callable[[Any], str] = specification.__mod__
    return formatted((value,))
