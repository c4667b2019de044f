"""The constraint of a chat request's output, and its parser."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from llamay_models.answers import THINK, AnswerFormat, Reader
from llamay_server.engine.formats import reader

if TYPE_CHECKING:
    from llamay_server.chat.conversation import Rendered
    from llamay_server.chat.request import ChatRequest
    from llamay_server.chat.tools import Toolbox
    from llamay_server.engine.constraint import OutputConstraint


@dataclass(frozen=True, slots=True)
class Framing:
    """The constraint of a chat request's output, and its parser.

    Attributes:
        toolbox: the tools that may be called.
        written: how the model writes its answers.
        constraint: the constraint of the output; None where the output is free.
        visible: the names of control tokens that have to be visible in the text for the parser.
        reasons: whether text before the answer may be reasoning.
        in_reasoning: whether the text begins inside the reasoning.
        prompted: whether the prompt ends with the text that begins every answer in the tool-call format.
        known_ids: ids of calls in the conversation, which new calls may not have.
        calls_in_parts: whether the arguments of calls are delivered while they are generated.

    """

    toolbox: Toolbox
    written: AnswerFormat
    constraint: OutputConstraint | None
    visible: tuple[str, ...]
    reasons: bool
    in_reasoning: bool
    prompted: bool
    known_ids: frozenset[str]
    calls_in_parts: bool

    @classmethod
    def of(cls, request: ChatRequest, rendered: Rendered, written: AnswerFormat) -> Framing:
        """Return the framing of a request whose prompt is rendered."""
        conversation, delivery = request.conversation, request.delivery
        marks = written.reasoning
        # A template may open the reasoning whether the request asks for it or not.
        wanted = marks is not None and (rendered.in_reasoning or conversation.think is not False)
        reasoning = (*marks, rendered.in_reasoning) if marks is not None and wanted else None
        constraint = constraint_of(request, written, reasoning)
        # Expressions and grammars constrain the output from its first character on.
        free = constraint is None or constraint.after_reasoning
        kind = None if constraint is None else constraint.kind
        calls = (call for m in conversation.messages for call in m.get("tool_calls") or ())
        return cls(
            toolbox=conversation.toolbox,
            written=written,
            constraint=constraint,
            visible=written.visible(calls=conversation.toolbox.active),
            reasons=marks is not None and free,
            in_reasoning=rendered.in_reasoning and free,
            prompted=rendered.prompted and kind in (None, "tools"),
            known_ids=frozenset(call.get("id") or "" for call in calls),
            calls_in_parts=delivery.calls_in_parts and kind == "tools",
        )

    def parser(self, index: int) -> Reader:
        """Return the parser of one choice's text."""
        return reader(
            self.toolbox.schemas,
            form=self.written.name,
            index=index,
            parallel=self.toolbox.parallel,
            thinks=self.reasons,
            in_reasoning=self.in_reasoning,
            reasoning=self.written.reasoning or THINK,
            prompted=self.prompted,
            known_ids=self.known_ids,
            bound=self.calls_in_parts,
        )


def constraint_of(
    request: ChatRequest, written: AnswerFormat, reasoning: tuple[str, str, bool] | None = None
) -> OutputConstraint | None:
    """Return the constraint of a request's output, with calls as the model writes them; see `Toolbox.constraint`."""
    # A constraint of calls in one format would forbid the calls of a model that has a format of its own.
    optional = request.delivery.bind_calls and written.calls.own is None
    answer = request.delivery.constraint
    return request.conversation.toolbox.constraint(
        written.name, answer, reasoning=reasoning, optional=optional
    )
