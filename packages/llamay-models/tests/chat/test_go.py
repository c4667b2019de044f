"""Ollama's templates, Go's text/template, write through Jinja what Go would write."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llamay_models.chat import ChatTemplate, ChatTemplateError, as_jinja

TURNS: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Oh"},
    {"role": "user", "content": "Go"},
]
CALL = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": {"city": "Oslo"}}}
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tells it",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def go(source: str, messages: Any = TURNS, **more: Any) -> str:
    return ChatTemplate(as_jinja(source)).render(messages, **more)


def test_an_older_template_is_run_once_for_each_turn_and_ends_at_the_answer() -> None:
    source = (
        "{{ if .System }}<|sys|>\n{{ .System }}</s>\n{{ end }}{{ if .Prompt }}<|user|>\n{{ .Prompt }}</s>\n{{ end }}"
        "<|bot|>\n{{ .Response }}</s>\n"
    )

    text = go(source)

    assert text == ("<|sys|>\nBe brief.</s>\n<|user|>\nHi</s>\n<|bot|>\nOh</s>\n<|user|>\nGo</s>\n<|bot|>\n")


def test_a_template_without_an_answer_field_is_written_whole() -> None:
    assert go("{{ .System }} [INST] {{ .Prompt }} [/INST]", TURNS[:2]) == "Be brief. [INST] Hi [/INST]"


def test_messages_are_gone_over_with_their_numbers_and_the_last_one_is_known() -> None:
    source = """{{- range $i, $_ := .Messages }}
{{- $last := eq (len (slice $.Messages $i)) 1 }}
{{- if or (eq .Role "user" "system") $last }}[{{ $i }} {{ .Role }}] {{ .Content }}
{{ else if eq .Role "assistant" }}({{ .Content }})
{{ end }}
{{- if $last }}>>{{ end }}
{{- end }}"""

    assert go(source) == "[0 system] Be brief.\n[1 user] Hi\n(Oh)\n[3 user] Go\n>>"


def test_tools_calls_and_results_are_written_as_json() -> None:
    source = """{{- range .Tools }}{{ .Function }}|{{ json .Function.Parameters.Required }}|{{ . }}
{{ end }}
{{- range $m := .Messages }}
{{- range $m.ToolCalls }}{{ .Function.Name }}={{ .Function.Arguments }}
{{- range $k, $v := .Function.Arguments }} {{ $k }}:{{ $v }}{{ end }}
{{ end }}
{{- if eq $m.Role "tool" }}<{{ $m.ToolName }}:{{ $m.Content }}>{{ end }}
{{- end }}"""
    messages = [
        *TURNS,
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "content": "cold", "name": "weather", "tool_call_id": "1"},
    ]

    first, *rest = go(source, messages, tools=[TOOL]).splitlines()

    function, required, whole = first.split("|")
    assert function.startswith('{"name":"weather","description":"Tells it","parameters":{"type":"object",')
    assert required == '["city"]'
    assert whole.startswith('{"type":"function","function":{"name":"weather"')
    assert rest == ['weather={"city":"Oslo"} city:Oslo', "<weather:cold>"]


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("a  {{- .System }}  b{{/* no */}} c", "aBe brief.  b c"),
        ("{{ `raw \\n` }}{{ \"tab\\t\" }}{{ .System }}{{ 3 }}", "raw \\ntab\tBe brief.3"),
        ("{{ with .System }}<{{ . }}>{{ else }}none{{ end }}", "<Be brief.>"),
        ("{{ with .Suffix }}x{{ else }}{{ .System }}{{ end }}", "Be brief."),
        ("{{ $x := 1 }}{{ if .System }}{{ $x = 2 }}{{ end }}{{ $x }}{{ .System | len }}", "29"),
        ("{{ $x := 1 }}{{ if .System }}{{ $x := 2 }}{{ $x }}{{ end }}{{ $x }}", "21"),
        ('{{ printf "%s-%d%%" .System 4 }}{{ print "a" "b" }}', "Be brief.-4%ab"),
        ("{{ if and (not .Suffix) (gt (len .System) 3) (ne .System \"x\") }}y{{ end }}", "y"),
        ("{{range .Messages}}{{if eq .Role `user`}}{{continue}}{{end}}{{.Role}} {{end}}", "system assistant "),
        ("{{ range .Messages }}{{ .Content }}{{ break }}{{ end }}", "Be brief."),
        ("{{ (index .Messages 1).Content }}{{ range .Messages }}{{ end }}", "Hi"),
        ("{{ range slice .Messages 1 3 }}{{ .Content }}{{ end }}", "HiOh"),
        ("{{ range .Tools }}x{{ else }}no tools{{ end }} {{ .System }}", "no tools Be brief."),
        ("{% not jinja %} {{ .System }}", "{% not jinja %} Be brief."),
        ("'}}' {{ \"{{ {% }}\" }} {{ .System }}", "'}}' {{ {% }} Be brief."),
    ],
)  # fmt: skip
def test_what_the_language_has(source: str, text: str) -> None:
    assert go(source, TURNS if "Messages" in source else TURNS[:1]) == text


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ('{{ define "x" }}a{{ end }}', "line 1: define"),
        ("{{ .Prompt }}\n{{ toTypeScriptType .Tools }}", "line 2: the function toTypeScriptType"),
        ("{{ .Prompt }}{{ .Secret }}", ".Secret"),
        ("{{ if .Prompt }}", "no end"),
        ("{{ .Prompt }}{{ end }}", "ends nothing"),
        ("{{ .Prompt }} {{ $x }}", "no variable $x"),
        ("{{ .Prompt }} {{ if", "not closed"),
        ('{{ printf .Prompt "x" }}', "format"),
        ("{{ . }}", "dot"),
        ("{{ .Prompt | .Prompt }}", "no arguments"),
    ],
)
def test_what_cannot_be_translated_is_named(source: str, words: str) -> None:
    with pytest.raises(ChatTemplateError, match="Go template") as caught:
        as_jinja(source)
    assert words in str(caught.value)


def test_jinja_is_left_alone() -> None:
    for source in (
        "{% for m in messages %}{{ m.content }}{% endfor %}",
        "{{ messages[0].content }}",
        "{{- bos_token }}{# c #}{{ .5 }}",
        "{{- block['text'] }}{{ block.text }}{{ template }}{{ ending }}{{ define }}{{ with_tools }}",
        "plain",
    ):
        assert as_jinja(source) == source


def test_what_people_write_stays_text() -> None:
    source = "{{ range .Messages }}<|x|>{{ .Content }}{{ end }}"
    found = ChatTemplate(as_jinja(source)).segments([{"role": "user", "content": "<|x|>"}])
    assert [(s.text, s.trusted) for s in found] == [("<|x|>", True), ("<|x|>", False)]


@settings(max_examples=300)
@given(
    st.lists(
        st.sampled_from(
            [
                "{{",
                "}}",
                "{{-",
                "-}}",
                ".Messages",
                ".Role",
                ".Content",
                "$x",
                ":=",
                "=",
                "(",
                ")",
                "|",
                "if",
                "else",
                "end",
                "range",
                "with",
                "eq",
                "and",
                "not",
                "len",
                "slice",
                "$",
                ".",
                '"a"',
                "`b`",
                "1",
                ",",
                ".System",
                ".Response",
                "%",
                "{%",
                "{#",
                "~",
                '"',
                "break",
            ]
        ),
        max_size=25,
    )
)
def test_no_text_breaks_the_translator(words: list[str]) -> None:
    source = "{{ .Prompt }}" + " ".join(words)
    try:
        template = ChatTemplate(as_jinja(source))
        template.render(TURNS)
    except ChatTemplateError:
        pass
