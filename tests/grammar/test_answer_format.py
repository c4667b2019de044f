"""One place says how a model writes calls and reasoning, and the bridge, the command and the server go by it."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import llamay_grammar
from llamay_models.answers import (
    DEFAULT,
    ContextReader,
    ReasoningSplitter,
    answer_format,
    answer_format_of,
    envelope,
    prompt_end,
)

ROOT = Path(__file__).parents[2]
TEMPLATES = {
    None: (DEFAULT, None),
    "{{ x }}": (DEFAULT, None),
    "{{ tools }}<tool_call>": ("hermes", None),
    "{{ tools }}<tool_call><think>": ("hermes", ("<think>", "</think>")),
    "{{ tools }}[TOOL_CALLS][ARGS][THINK]": ("mistral-v11", ("[THINK]", "[/THINK]")),
}


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_template_says_how_calls_and_reasoning_are_written(template: str | None) -> None:
    name, marks = TEMPLATES[template]
    written = answer_format(template, llamay_grammar)

    assert (written.name, written.reasoning) == (name, marks)
    assert written.calls == envelope(name, llamay_grammar)
    assert set(marks or ()) <= set(written.visible(calls=False))
    assert written.in_reasoning("so: <think>\n") == (marks == ("<think>", "</think>"))
    assert not written.in_reasoning("so:")


def test_a_text_that_begins_every_answer_is_seen_at_the_end_of_a_prompt() -> None:
    begins = {n: f["prompted"] for n, f in llamay_grammar.tool_formats().items() if f.get("prompted")}
    plain = answer_format(None, llamay_grammar)
    for name, begin in begins.items():
        written = type(plain)(name, envelope(name, llamay_grammar), None)
        assert written.prompted("x" + begin)
        assert not written.prompted("x")
        assert not plain.prompted("x" + begin)


class Model:
    """A model of characters."""

    def __init__(self, template: str | None) -> None:
        self.chat_template = None if template is None else SimpleNamespace(source=template)

    def decode(self, tokens: Any) -> str:
        return "".join(map(chr, tokens))

    def encode(self, text: str, **_: Any) -> list[int]:
        return [len(text)]


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("end", ["", "<think>\n", "[THINK]"])
def test_readers_of_a_context_and_splitters_go_by_it(template: str | None, end: str) -> None:
    model: Any = Model(template)
    tokens = list(map(ord, "x" * 100 + end))
    written = answer_format_of(model, llamay_grammar)
    context: Any = SimpleNamespace(model=model, tokens=tokens)
    reader = ContextReader(context, formats=llamay_grammar)
    splitter = ReasoningSplitter.of(template, prompt_end(model, tokens), llamay_grammar)

    assert (reader.form, reader.reasoning) == (written.name, written.reasoning)
    assert reader.in_reasoning == written.in_reasoning(prompt_end(model, tokens))
    assert (splitter is None) == (written.reasoning is None)
    assert splitter is None or splitter.special == written.visible(calls=False)


def test_without_reasoning_there_is_nothing_to_split() -> None:
    with pytest.raises(ValueError, match="nothing to split"):
        ReasoningSplitter(answer_format(None, llamay_grammar), begun=False, formats=llamay_grammar)


def test_nobody_else_puts_the_two_together() -> None:
    parts = re.compile(r"answers[^()]*import[^()]*\(?[^()]*\b(format_of|reasoning_of|begins_in_reasoning)\b")
    for path in [*ROOT.glob("src/**/*.py"), *ROOT.glob("packages/*/src/**/*.py")]:
        if "llamay_models/answers" not in path.as_posix():
            assert not parts.search(path.read_text()), path.relative_to(ROOT)
