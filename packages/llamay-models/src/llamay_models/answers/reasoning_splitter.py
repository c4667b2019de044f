"""`ReasoningSplitter`: separates the reasoning of a chat model from its answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Self

from .events import Event, Reasoning, Text
from .format import AnswerFormat, answer_format
from .formats import Formats
from .reader import Reader


class ReasoningSplitter:
    """Splits the text of one answer, which comes in pieces.

    Attributes:
        special: control tokens, as the vocabulary spells them, which have to be visible in the text.

    """

    def __init__(self, written: AnswerFormat, *, begun: bool, formats: Formats) -> None:
        """`written` is the format of a model that reasons; `begun` says whether the prompt has opened the reasoning."""
        if written.reasoning is None:
            raise ValueError("a model without reasoning has nothing to split")
        self.special = written.visible(calls=False)
        self._reader = Reader(
            formats=formats, form=written.name, thinks=True, in_reasoning=begun, reasoning=written.reasoning
        )

    @classmethod
    def of(cls, template: str | None, prompt: str, formats: Formats) -> Self | None:
        """Return the splitter of answers to a prompt (its end suffices) of this template; None without reasoning."""
        written = answer_format(template, formats)
        if written.reasoning is None:
            return None
        return cls(written, begun=written.in_reasoning(prompt), formats=formats)

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
