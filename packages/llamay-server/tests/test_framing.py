"""What a request binds of an answer."""

from __future__ import annotations

from typing import Any

from llamay_models.answers import Finished, Reasoning, Text
from llamay_server.chat.run import ChatRequest, Framing, Rendered
from llamay_server.chat.tools import Tool, Toolbox
from llamay_server.engine.protocol import Prompt
from llamay_server.pipeline.sampling import Bound

MARKS = ("<think>", "</think>")


def framing(bound: Bound | None, *, begun: bool = True, think: bool | None = None, **more: Any) -> Framing:
    request = ChatRequest([], {}, bound=bound, think=think, **more)
    return Framing.of(request, Rendered(Prompt("", []), in_thought=begun), "hermes", MARKS)


def test_what_a_model_thinks_is_free_and_what_it_answers_then_is_bound() -> None:
    schema = Bound("json_schema", {"type": "integer"}, "format")
    for begun in (True, False):
        bound = framing(schema, begun=begun).bound
        assert bound is not None
        assert bound.kind == "after_thoughts"
        assert bound.value["thoughts"] == (*MARKS, begun)
    parser = framing(schema).parser(0)
    events = [*parser.feed("why not</think>\n\n7"), *parser.finish("stop", None)]
    assert [type(e) for e in events] == [Reasoning, Text, Finished]
    assert framing(schema, begun=False, think=False).bound == schema

    demanded = framing(None, box=Toolbox((Tool("get", "", {}),), "required")).bound
    assert demanded is not None
    assert demanded.value["thoughts"] == (*MARKS, True)


def test_an_expression_binds_from_the_first_character_so_nothing_of_it_is_a_thought() -> None:
    parser = framing(Bound("regex", "[ab]+", "regex")).parser(0)
    events = [*parser.feed("ab"), *parser.finish("stop", None)]
    assert [type(e) for e in events] == [Text, Finished]
