"""What a chat model thinks and what it answers, told apart for whoever writes both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Self

from ._envelopes import begins_thought, envelope, format_of, reasoning_of
from ._output import Event, OutputParser, Reasoning, Text
from ._tools import Toolbox


class Thoughts:
    """Takes the text of one answer, in pieces, apart.

    Attributes:
        special: control tokens, as the vocabulary spells them, that have to be visible in the text.

    """

    def __init__(self, template: str, marks: tuple[str, str], *, begun: bool) -> None:
        form = format_of(template)
        self.special = envelope(form).visible(marks, calls=False)
        self._parser = OutputParser(0, Toolbox(), form=form, thinks=True, in_thought=begun, reasoning=marks)

    @classmethod
    def of(cls, template: str | None, prompt: str) -> Self | None:
        """Return what reads answers to a prompt (its end suffices) written by this template; None without thoughts."""
        marks = reasoning_of(template)
        if template is None or marks is None:
            return None
        return cls(template, marks, begun=begins_thought(prompt, marks))

    def feed(self, text: str) -> Iterator[tuple[bool, str]]:
        """Yield what became certain with this text: whether it is thought, and the words."""
        return _words(self._parser.feed(text))

    def finish(self) -> Iterator[tuple[bool, str]]:
        """Yield the rest."""
        return _words(self._parser.finish("stop", None))


def _words(events: Iterable[Event]) -> Iterator[tuple[bool, str]]:
    for event in events:
        if isinstance(event, Text | Reasoning) and event.text:
            yield isinstance(event, Reasoning), event.text
