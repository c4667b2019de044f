"""`ReasoningSplitter`: separates the reasoning of a chat model from its answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Self

from .envelopes import envelope
from .events import Event, Reasoning, Text
from .formats import Formats
from .reader import Reader
from .template import begins_in_reasoning, format_of, reasoning_of


class ReasoningSplitter:
    """Splits the text of one answer, which comes in pieces.

    Attributes:
        special: control tokens, as the vocabulary spells them, which have to be visible in the text.

    """

    def __init__(self, template: str, marks: tuple[str, str], *, begun: bool, formats: Formats) -> None:
        form = format_of(template)
        self.special = envelope(form, formats).visible(marks, calls=False)
        self._reader = Reader(formats=formats, form=form, thinks=True, in_reasoning=begun, reasoning=marks)

    @classmethod
    def of(cls, template: str | None, prompt: str, formats: Formats) -> Self | None:
        """Return the splitter of answers to a prompt (its end suffices) of this template; None without reasoning."""
        marks = reasoning_of(template, formats)
        if template is None or marks is None:
            return None
        return cls(template, marks, begun=begins_in_reasoning(prompt, marks), formats=formats)

    def feed(self, text: str) -> Iterator[tuple[bool, str]]:
        """Yield the parts that are certain with this text: whether each is reasoning, and its text."""
        return _words(self._reader.feed(text))

    def finish(self) -> Iterator[tuple[bool, str]]:
        """Yield the rest."""
        return _words(self._reader.finish("stop", None))


def _words(events: Iterable[Event]) -> Iterator[tuple[bool, str]]:
    for event in events:
        if isinstance(event, Text | Reasoning) and event.text:
            yield isinstance(event, Reasoning), event.text
