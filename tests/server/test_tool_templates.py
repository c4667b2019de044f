"""What real chat templates write of calls, the server's reader and the grammar understand alike."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import llamay_grammar as lg
from llamay_models.answers import Reader, Text, ToolCall, for_template, format_of
from llamay_models.chat import ChatTemplate

from ..borrowed import borrowed

llama_cpp_fixtures = borrowed("llamay-models", "conftest").llama_cpp_fixtures

pytestmark = pytest.mark.slow  # the templates are in a source distribution of 60 MB

FORMATS = {
    "ByteDance-Seed-OSS": "seed-oss",
    "GLM-4.6": "glm-4.5",
    "GLM-4.7-Flash": "glm-4.7",
    "MiniMax-M2": "minimax-m2",
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": "qwen3-coder",
    "Qwen3-Coder": "qwen3-coder",
    "Qwen3.5-4B": "qwen3-coder",
    "Spark2.5": "glm-4.7",
    "StepFun3.5-Flash": "qwen3-coder",
    "deepseek-ai-DeepSeek-V3.2": "deepseek-v3.2",
    "deepseek-ai-DeepSeek-V4": "deepseek-v4",
    "inclusionai-ling-3.0-flash": "glm-4.5",
    "tencent-Hy3": "hunyuan-3",
    "poolside-Laguna-S-2.1": "glm-4.7",
    "poolside-Laguna-XS.2": "glm-4.5",
}
OBJECTS = {
    "Apertus-8B-Instruct": "apertus",
    "Apriel-1.6-15b-Thinker-fixed": "apriel",
    "Cohere2MoE": "command-r7b",
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use": "command-r7b",
    "GigaChat3.1-10B-A1.8B": "gigachat-3.1",
    "Kimi-K2-Instruct": "kimi-k2",
    "Kimi-K2-Thinking": "kimi-k2",
    "MiMo-VL": "hermes",
    "MiniMax-M1": "minimax-m1",
    "NVIDIA-Nemotron-Nano-v2": "nemotron-v2",
    "Qwen-Qwen3-0.6B": "hermes",
    "Reka-Edge": "hermes",
    "deepseek-ai-DeepSeek-V3.1": "deepseek-v3.1",
    "ibm-granite-granite-4.0": "hermes",
    "ibm-granite-granite-4.1": "hermes",
    "moonshotai-Kimi-K2": "kimi-k2",
    "mistralai-Ministral-3-14B-Reasoning-2512": "mistral-v11",
    "openai-gpt-oss-120b": "gpt-oss",
    "unsloth-Apriel-1.5": "apriel",
    "upstage-Solar-Open-100B": "solar-open",
}
OWN = {"LFM2.5-8B-A1B": "lfm2", "google-gemma-4-31B-it": "gemma-4"}
PROPERTIES: dict[str, Any] = {
    "code": {"type": "string"},
    "n": {"type": "integer"},
    "x": {"type": "number"},
    "ok": {"type": "boolean"},
    "no": {"type": "null"},
    "l": {"type": "array", "items": {}},
    "o": {"type": "object"},
}
PUT = {"type": "object", "properties": PROPERTIES, "additionalProperties": False}
TOOLS = [
    {"type": "function", "function": {"name": "put_it", "description": "Put.", "parameters": PUT}},
    {
        "type": "function",
        "function": {
            "name": "now",
            "description": "Now.",
            "parameters": {"type": "object", "properties": {}, "additionalProperties": False},
        },
    },
]
EVERYTHING: dict[str, Any] = {
    "code": '\ndef f(a):\n    return a < "b" & \'c\' == {"é"}\n\n',
    "n": -5,
    "x": 1.5,
    "ok": True,
    "no": None,
    "l": [1, "a", {"b": [True]}],
    "o": {"a": {"b": "c"}},
}
Call = tuple[str, dict[str, Any]]


def rendered(source: str, calls: list[Call]) -> str:
    """What a template writes of a turn that says a word and makes these calls."""
    written = [
        {"id": f"abcDEF12{n}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for n, (name, arguments) in enumerate(calls)
    ]
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "QUESTION"},
        {"role": "assistant", "content": "SAYING", "tool_calls": written},
        *(
            {"role": "tool", "tool_call_id": w["id"], "name": w["function"]["name"], "content": "RESULT"}
            for w in written
        ),
    ]
    text = ChatTemplate(source).render(for_template(messages, source, lg), tools=TOOLS)
    text = text[text.rindex("QUESTION") :]
    at = text.find("SAYING")  # some say nothing beside a call
    return text[max(0, at) : text.rindex("RESULT")]


@pytest.mark.parametrize("name", [*FORMATS, *OBJECTS])
@pytest.mark.parametrize(
    "calls",
    [[("put_it", EVERYTHING)], [("now", {})], [("put_it", {"code": ""}), ("now", {}), ("put_it", {"n": 7})]],
)
def test_the_calls_of_a_real_template_are_read_back(
    name: str, calls: list[Call], llama_cpp_fixtures: Path
) -> None:
    source = (llama_cpp_fixtures / "templates" / f"{name}.jinja").read_text()
    form = format_of(source)
    assert form == (FORMATS | OBJECTS)[name]
    if lg.tool_formats()[form].get("single"):
        calls = calls[:1]
    text = rendered(source, calls)
    for parts in ([text], list(text)):
        parser = Reader({"put_it": PUT, "now": {}}, formats=lg, form=form)
        events = [event for part in parts for event in parser.feed(part)]
        events += parser.finish("stop", None)
        assert [(e.name, json.loads(e.arguments)) for e in events if isinstance(e, ToolCall)] == calls
        said = "".join(e.text for e in events if isinstance(e, Text))
        assert "SAYING" not in text or said.startswith("SAYING")
        assert "return a" not in said


@pytest.mark.parametrize("name", OWN)
def test_calls_that_no_grammar_binds_are_read_back_from_a_real_template(
    name: str, llama_cpp_fixtures: Path
) -> None:
    source = (llama_cpp_fixtures / "templates" / f"{name}.jinja").read_text()
    form = format_of(source)
    assert form == OWN[name]
    calls: list[Call] = [("put_it", EVERYTHING), ("now", {}), ("put_it", {"code": ""})]
    written = [{"id": f"c{n}", "function": {"name": f, "arguments": a}} for n, (f, a) in enumerate(calls)]
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "QUESTION"},
        {"role": "assistant", "content": "", "tool_calls": written},
        *({"role": "tool", "tool_call_id": w["id"], "content": "RESULT"} for w in written),
    ]
    text = ChatTemplate(source).render(for_template(messages, source, lg), tools=TOOLS)
    text = text[text.rindex("QUESTION") : text.index("RESULT")]
    for parts in ([text], list(text)):
        parser = Reader({"put_it": PUT, "now": {}}, formats=lg, form=form)
        events = [event for part in parts for event in parser.feed(part)]
        events += parser.finish("stop", None)
        assert [(e.name, json.loads(e.arguments)) for e in events if isinstance(e, ToolCall)] == calls


@pytest.mark.parametrize("name", ["LFM2-8B-A1B", "LFM2.5-Instruct"])
def test_templates_that_leave_the_writing_of_calls_to_the_model_tell_its_format(
    name: str, llama_cpp_fixtures: Path
) -> None:
    assert format_of((llama_cpp_fixtures / "templates" / f"{name}.jinja").read_text()) == "lfm2"


@pytest.mark.parametrize(
    "name", set(FORMATS) - {"inclusionai-ling-3.0-flash"}
)  # it writes its lines unevenly
def test_the_grammar_allows_what_a_real_template_writes(name: str, llama_cpp_fixtures: Path) -> None:
    source = (llama_cpp_fixtures / "templates" / f"{name}.jinja").read_text()
    # Some write True for true and ['a'] for ["a"], which is read but not asked for.
    calls: list[Call] = [
        ("put_it", {"code": EVERYTHING["code"], "n": -5, "x": 1.5}),
        ("now", {}),
        ("put_it", {}),
    ]
    text = rendered(source, calls)
    stop = lg.tool_formats()[FORMATS[name]]["stop"][0]
    text = text[text.index(stop) :]
    words = lg.Vocabulary([bytes([b]) for b in range(256)] + [b"</s>"], special=[256], end=[256])
    matcher = lg.compile_tools(
        TOOLS, words, format=FORMATS[name], choice="required", whitespace="spaced"
    ).matcher()
    complete = 0
    for length, byte in enumerate(text.encode(), 1):
        if not matcher.allows(byte):
            break
        matcher.accept(byte)
        if matcher.is_complete:
            complete = length
    left = text.encode()[complete:].decode()
    assert complete
    assert "put_it" not in left
    assert "now" not in left
