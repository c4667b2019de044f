"""A model's reasoning: requested or not, and written beside the answer, never into it."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TextIO

from ..console.terminal import AnswerStream

if TYPE_CHECKING:
    from llamay_models import Model
    from llamay_models.answers import ReasoningSplitter

# The marks around reasoning contain one of these words; the exact search needs an import that takes long.
_PERHAPS = re.compile("think|channel", re.IGNORECASE)
_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"


def reasoning_splitter(model: Model, tokens: Sequence[int]) -> ReasoningSplitter | None:
    """Return the splitter of reasoning and answer after these tokens; None for a model without reasoning."""
    template = model.chat_template
    if template is None or not _PERHAPS.search(template.source):
        return None
    import llamay_grammar
    from llamay_models.answers import ReasoningSplitter, prompt_end

    return ReasoningSplitter.of(template.source, prompt_end(model, tokens), llamay_grammar)


def visible_tokens(model: Model, splitter: ReasoningSplitter | None) -> list[int]:
    """Return the control tokens that have to be in the text for the splitter to see them."""
    if splitter is None:
        return []
    from llamay_models.answers import control_tokens

    return control_tokens(model, splitter.special)


def template_options(think: bool | None) -> dict[str, Any]:
    """Return the template options that ask for reasoning, or for none: each template knows one of these names."""
    return {} if think is None else {"enable_thinking": think, "thinking": think}


class ReasoningStream(AnswerStream):
    """Reasoning, on stderr: dimmed where a person reads it."""

    def __init__(self, stream: TextIO | None = None) -> None:
        super().__init__(stream or sys.stderr)
        self._begun = False

    def write(self, text: str) -> None:
        """Write and flush."""
        if not self._begun and self.terminal:
            self.stream.write(_DIM)
        self._begun = True
        super().write(text)

    def end(self) -> None:
        """Finish the line, and the dimming."""
        if self._begun and self.terminal:
            self.stream.write(_PLAIN)
        self._begun = False
        super().end()
