"""Calls whose arguments stand between tags, in the dialects: JSON, streamed or not, and back to the template."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fake_engine import FakeModel

import llamay_grammar
from llamay_models.answers import ToolCall, for_template
from llamay_models.chat import ChatTemplate
from llamay_server.chat.tools import Tool, Toolbox
from llamay_server.engine.formats import reader

from . import test_anthropic as anthropic
from . import test_ollama as ollama
from . import test_openai as openai

SCHEMA = {
    "type": "object",
    "properties": {
        "code": {"type": "string"},
        "n": {"type": "integer"},
        "ok": {"type": "boolean"},
        "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "l": {"type": "array"},
        "o": {"type": "object"},
    },
}
BOX = Toolbox((Tool("put", "", SCHEMA), Tool("now", "", {"type": "object", "properties": {}})), "auto")
ARGUMENTS = {"code": 'print("ä")\n', "n": 5, "ok": True, "maybe": None, "l": [1, "a"]}
WRITTEN = {  # by a format: a template of it, and what a model writes that makes these calls
    "qwen3-coder": (
        "{{ tools }}<tool_call><function=<parameter=",
        '<tool_call>\n<function=put>\n<parameter=code>\nprint("ä")\n\n</parameter>\n<parameter=n>\n5\n</parameter>\n'
        "<parameter=ok>\ntrue\n</parameter>\n<parameter=maybe>\nnull\n</parameter>\n<parameter=l>\n"
        '[1, "a"]\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=now>\n</function>\n</tool_call>',
    ),
    "glm-4.7": (
        "{{ tools }}<tool_call><arg_key></arg_key><arg_value>",
        '<tool_call>put<arg_key>code</arg_key><arg_value>print("ä")\n</arg_value><arg_key>n</arg_key><arg_value>5'
        "</arg_value><arg_key>ok</arg_key><arg_value>true</arg_value><arg_key>maybe</arg_key><arg_value>null"
        '</arg_value><arg_key>l</arg_key><arg_value>[1, "a"]</arg_value></tool_call><tool_call>now</tool_call>',
    ),
    "minimax-m2": (
        "{{ tools }}<minimax:tool_call>",
        '<minimax:tool_call>\n<invoke name="put">\n<parameter name="code">print("ä")\n</parameter>\n'
        '<parameter name="n">5</parameter>\n<parameter name="ok">true</parameter>\n<parameter name="maybe">null'
        '</parameter>\n<parameter name="l">[1, "a"]</parameter>\n</invoke>\n<invoke name="now">\n</invoke>\n'
        "</minimax:tool_call>",
    ),
}


@pytest.mark.parametrize("form", WRITTEN)
def test_every_dialect_shows_json_streamed_or_not(form: str, start: Any) -> None:
    template, text = WRITTEN[form]
    model = FakeModel(script=lambda prompt: "Looking.\n" + text)
    model.use_template(template)
    server = start(model)
    calls = [("put", ARGUMENTS), ("now", {})]

    tools = [tool.as_openai() for tool in BOX.tools]
    (choice,) = openai.chat(server, tools=tools, max_tokens=800).json()["choices"]
    functions = [call["function"] for call in choice["message"]["tool_calls"]]
    assert [(f["name"], json.loads(f["arguments"])) for f in functions] == calls
    assert (choice["message"]["content"], choice["finish_reason"]) == ("Looking.", "tool_calls")
    streamed: dict[int, list[str]] = {}
    for chunk in openai.stream(server, tools=tools, max_tokens=800):
        for part in chunk["choices"][0]["delta"].get("tool_calls", ()):
            made = streamed.setdefault(part["index"], [part["function"].get("name", ""), ""])
            made[1] += part["function"]["arguments"]
    assert [(name, json.loads(text)) for name, text in streamed.values()] == calls

    tools = [{"name": tool.name, "input_schema": tool.parameters} for tool in BOX.tools]
    whole = anthropic.ask(server, tools=tools, max_tokens=800).json()
    content, end = anthropic.rebuild(anthropic.stream(server, tools=tools, max_tokens=800))
    for blocks in (whole["content"], content):
        assert [(b["name"], b["input"]) for b in blocks if b["type"] == "tool_use"] == calls
    assert whole["stop_reason"] == end["delta"]["stop_reason"] == "tool_use"

    about = {
        "messages": ollama.USER,
        "tools": [tool.as_openai() for tool in BOX.tools],
        "options": {"num_predict": 800},
    }
    told = [ollama.post(server, "/api/chat", **about).json(), *ollama.lines(server, "/api/chat", **about)]
    made = [c["function"] for line in told for c in line["message"].get("tool_calls", ())]
    assert [(f["name"], f["arguments"]) for f in made] == calls * 2


def test_a_call_that_is_sent_back_is_what_the_template_takes() -> None:
    source = (
        "{% for m in messages %}{% for c in m.tool_calls or [] %}<tool_call>\n<function={{ c.function.name }}>\n"
        "{% for k, v in c.function.arguments|items %}<parameter={{ k }}>\n{{ v if v is string else v|tojson }}\n"
        "</parameter>\n{% endfor %}</function>\n</tool_call>{% endfor %}{% endfor %}{{ tools }}"
    )
    arguments = {"code": "a\n<b>", "n": 5, "o": {"x": True}}
    call = {"id": "1", "type": "function", "function": {"name": "put", "arguments": arguments}}
    turn = [{"role": "assistant", "content": "", "tool_calls": [call]}]
    text = ChatTemplate(source).render(for_template(turn, source, llamay_grammar), tools=[])
    found = reader(BOX.schemas, form="qwen3-coder").feed(text.removesuffix("[]"))
    assert [json.loads(e.arguments) for e in found if isinstance(e, ToolCall)] == [arguments]
