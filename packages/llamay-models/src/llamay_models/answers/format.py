"""`AnswerFormat`: how the model of a chat template writes its answers, for all who read or constrain them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from .envelopes import Envelope, envelope
from .formats import Formats
from .template import begins_in_reasoning, format_of, reasoning_of

if TYPE_CHECKING:
    from llamay_models.engine.contexts.protocols import ContextModel

_TAIL = 64
"""Tokens in which the marks are found that a prompt may end with."""


@dataclass(frozen=True, slots=True)
class AnswerFormat:
    """The form in which a model writes its answers.

    Attributes:
        name: the name of the format of calls, as `llamay_grammar.tool_formats` has it.
        calls: the format of calls.
        reasoning: the marks around reasoning; None for a model that does not reason before it answers.

    """

    name: str
    calls: Envelope
    reasoning: tuple[str, str] | None

    def in_reasoning(self, prompt: str) -> bool:
        """Return whether a prompt (its end suffices) has already opened the reasoning of the answer."""
        return begins_in_reasoning(prompt, self.reasoning)

    def prompted(self, prompt: str) -> bool:
        """Return whether a prompt (its end suffices) ends with the beginning that every answer with calls has."""
        return bool(self.calls.prompted) and prompt.endswith(self.calls.prompted)

    def visible(self, *, calls: bool) -> tuple[str, ...]:
        """Return the control tokens that have to be in the text so that reasoning, and calls, can be read."""
        return self.calls.visible(self.reasoning, calls=calls)


@functools.lru_cache(maxsize=64)
def answer_format(template: str | None, formats: Formats) -> AnswerFormat:
    """Return the format of the answers of a model with this chat template; without one, the default format of calls."""
    name = format_of(template)
    return AnswerFormat(name, envelope(name, formats), reasoning_of(template, formats))


def answer_format_of(model: ContextModel, formats: Formats) -> AnswerFormat:
    """Return the format of a model's answers."""
    template = model.chat_template
    return answer_format(None if template is None else str(template.source), formats)


class _Decoder(Protocol):
    def decode(self, tokens: Sequence[int], /) -> str: ...


def prompt_end(model: _Decoder, tokens: Sequence[int]) -> str:
    """Return the text at the end of a prompt, as far as the answer's format depends on it."""
    return model.decode(tokens[-_TAIL:])
