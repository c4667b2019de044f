"""`ContextReader`: splits the answer of the model of a context."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .events import Event, Finished, Reasoning, Text, ToolCall
from .format import answer_format_of, prompt_end
from .formats import Formats
from .reader import THINK, Reader
from .tools import schemas_of

if TYPE_CHECKING:
    from llamay_models.engine import Context, Generation
    from llamay_models.engine.contexts.protocols import ContextModel


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer: its text, the reasoning before it, the calls, and the reason why it ended."""

    text: str
    reasoning: str
    calls: tuple[ToolCall, ...]
    finish_reason: str


class ContextReader(Reader):
    """Splits the answer that follows a context, in the format of the model's chat template.

    Make it when the prompt has been read and before anything is generated, and hand `special` on:

        reader = ContextReader(context, tools, formats=llamay_grammar)
        answer = reader.answer(context.generate(special=reader.special, max_tokens=256))

    `feed` and `finish` take text that is received in another way.

    Args:
        context: ends where the answer begins. A model without a chat template gets the default format, and no
            reasoning.
        tools: the functions that may be called, in OpenAI's form (``{"type": "function", "function": {...}}``) or plain
            (``{"name": ..., "parameters": schema}``, also with ``input_schema``).
        formats: the formats there are; `llamay_grammar`.
        parallel: whether there may be several calls.
        bound: whether a grammar of the format binds the generated text, as for `Reader`: calls then come in parts.

    Attributes:
        form: the name of the format of calls, for ``llamay_grammar.compile_tools(format=...)``.
        reasoning: the marks around reasoning; None for a model that has none.
        in_reasoning: whether the prompt has opened them.
        special: ids of the control tokens that have to be visible in the text, for ``generate(special=...)``.

    Raises:
        ValueError: for a tool without a name.

    """

    def __init__(
        self,
        context: Context,
        tools: Iterable[Mapping[str, Any]] = (),
        *,
        formats: Formats,
        parallel: bool = True,
        bound: bool = False,
    ) -> None:
        model = context.model
        written = answer_format_of(model, formats)
        end = prompt_end(model, context.tokens) if model.chat_template is not None else ""
        self.form, self.reasoning = written.name, written.reasoning
        self.in_reasoning = written.in_reasoning(end)
        schemas = schemas_of(tools)
        super().__init__(
            schemas,
            formats=formats,
            form=self.form,
            parallel=parallel,
            thinks=self.reasoning is not None,
            in_reasoning=self.in_reasoning,
            reasoning=self.reasoning or THINK,
            prompted=written.prompted(end),
            bound=bound,
        )
        self.special = control_tokens(model, written.visible(calls=bool(schemas)))

    def events(self, generation: Generation) -> Iterator[Event]:
        """Yield the events of the answer while it is generated; the last one is `Finished`."""
        for piece in generation:
            yield from self.feed(piece.text)
        yield from self.finish(generation.finish_reason or "stop", generation.stop_sequence)

    def answer(self, generation: Generation) -> Answer:
        """Wait for the whole answer."""
        said: dict[type[Event], list[str]] = {Text: [], Reasoning: []}
        calls: list[ToolCall] = []
        reason = ""
        for event in self.events(generation):
            match event:
                case Text() | Reasoning():
                    said[type(event)].append(event.text)
                case ToolCall():
                    calls.append(event)
                case Finished():
                    reason = event.reason
        return Answer("".join(said[Text]), "".join(said[Reasoning]), tuple(calls), reason)


def control_tokens(model: ContextModel, names: Sequence[str]) -> list[int]:
    """Return the ids of the names that are tokens of a model's vocabulary, for ``generate(special=...)``."""
    ids = (model.encode(name, add_special=False, parse_special=True) for name in names)
    return [found[0] for found in ids if len(found) == 1]
