"""How a chat request constrains its answer, and how the answer is parsed."""

from __future__ import annotations

from typing import Any

import llamay_grammar
from llamay_models import Request
from llamay_models.answers import Finished, Reasoning, Text, answer_format
from llamay_server.chat.conversation import Conversation, Rendered
from llamay_server.chat.framing import Framing
from llamay_server.chat.request import ChatRequest
from llamay_server.chat.tools import Tool, Toolbox
from llamay_server.engine.constraint import OutputConstraint
from llamay_server.engine.protocol import Prompt
from llamay_server.pipeline.delivery import Delivery

MARKS = ("<think>", "</think>")


def framing(
    constraint: OutputConstraint | None, *, begun: bool = True, think: bool | None = None, **more: Any
) -> Framing:
    conversation = Conversation([], think=think, **more)
    request = ChatRequest(conversation, Request(()), Delivery(constraint=constraint))
    written = answer_format("{{ tools }}<tool_call>" + MARKS[0], llamay_grammar)
    return Framing.of(request, Rendered(Prompt("", []), in_reasoning=begun), written)


def test_reasoning_is_free_and_the_answer_after_it_is_constrained() -> None:
    schema = OutputConstraint("json_schema", {"type": "integer"}, "format")
    for begun in (True, False):
        constraint = framing(schema, begun=begun).constraint
        assert constraint is not None
        assert (constraint.kind, constraint.value) == (schema.kind, schema.value)
        assert constraint.reasoning == (*MARKS, begun)
    parser = framing(schema).parser(0)
    events = [*parser.feed("why not</think>\n\n7"), *parser.finish("stop", None)]
    assert [type(e) for e in events] == [Reasoning, Text, Finished]
    assert framing(schema, begun=False, think=False).constraint == schema

    demanded = framing(None, toolbox=Toolbox((Tool("get", "", {}),), "required")).constraint
    assert demanded is not None
    assert demanded.reasoning == (*MARKS, True)


def test_an_expression_constrains_from_the_first_character_so_nothing_before_it_is_reasoning() -> None:
    parser = framing(OutputConstraint("regex", "[ab]+", "regex")).parser(0)
    events = [*parser.feed("ab"), *parser.finish("stop", None)]
    assert [type(e) for e in events] == [Text, Finished]
