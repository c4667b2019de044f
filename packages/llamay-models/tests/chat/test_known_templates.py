"""The templates of real models render as they do in plain Jinja with Hugging Face's helpers, and stay traced."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2
import jinja2.sandbox
import pytest

from llamay_models.chat import ChatTemplate, ChatTemplateError, as_jinja
from llamay_models.chat.compiler import Generation

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [
    {
        "type": "function",
        "function": {"name": "get_weather", "description": "Weather", "parameters": PARAMETERS},
    }
]
CALL = {
    "id": "abcdefghi",
    "type": "function",
    "function": {"name": "get_weather", "arguments": {"city": "Paris"}},
}
CONVERSATIONS: dict[str, tuple[list[dict[str, Any]], Any]] = {
    "one turn": ([{"role": "user", "content": "Hello"}], None),
    "several turns": (
        [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "  Hi \n"},
            {"role": "assistant", "content": "  Yes? "},
            {"role": "user", "content": "What's 2+2?"},
        ],
        None,
    ),
    "a tool": (
        [
            {"role": "user", "content": "Weather in Paris?"},
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "abcdefghi", "name": "get_weather", "content": '{"t": 20}'},
            {"role": "user", "content": "thanks"},
        ],
        TOOLS,
    ),
}
#: What control tokens look like.
CONTROL = re.compile(r"<\||\|>|<\uff5c|</?s>|\[/?INST|<BOS>|<EOS>|<\w+_of_turn|</?think>|</?tool")


def plain_jinja(source: str, messages: list[dict[str, Any]], tools: Any) -> str:
    # Not the immutable one: Kimi K2's templates change lists of their own.
    environment = jinja2.sandbox.SandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", Generation]
    )

    def refuse(message: str) -> None:
        raise jinja2.TemplateError(message)

    environment.filters["tojson"] = lambda x, ensure_ascii=False, **options: json.dumps(
        x, ensure_ascii=ensure_ascii, **options
    )
    environment.filters["safe"] = lambda x: x
    environment.globals |= {"raise_exception": refuse, "strftime_now": datetime.now().strftime}
    return environment.from_string(source).render(
        messages=messages,
        tools=tools,
        documents=None,
        add_generation_prompt=True,
        bos_token="<BOS>",
        eos_token="<EOS>",
    )


@pytest.mark.slow
def test_templates_of_real_models(llama_cpp_fixtures: Path) -> None:
    seen = 0
    for path in sorted((llama_cpp_fixtures / "templates").glob("*.jinja")):
        source = path.read_text()
        assert as_jinja(source) == source, path.name
        template = ChatTemplate(source, bos="<BOS>", eos="<EOS>")
        for name, (messages, tools) in CONVERSATIONS.items():
            try:
                expected = plain_jinja(source, json.loads(json.dumps(messages)), tools)
            except (TypeError, jinja2.UndefinedError):
                # Plain Jinja cannot put text and an object together, nor look into no content; we often can.
                with suppress(ChatTemplateError):
                    template.render(messages, tools)
                continue
            except jinja2.TemplateError:
                with pytest.raises(ChatTemplateError):
                    template.render(messages, tools)
                continue
            assert template.render(messages, tools) == expected, (path.name, name)
            for segment in template.segments(messages, tools):
                assert segment.trusted or not CONTROL.search(segment.text), (path.name, name, segment)
            seen += 1
    assert seen > 150
