"""A model's reasoning is written beside its answer, never into it."""

import io
import json
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from llamay_cli_fakes import FakeModel

import llamay_grammar
from llamay_cli.chat import reasoning
from llamay_cli.chat.answer import write_answer
from llamay_cli.chat.reasoning import ReasoningStream
from llamay_cli.chat.repl import Repl
from llamay_cli.chat.session import Session
from llamay_cli.console.terminal import AnswerStream
from llamay_models.answers import ReasoningSplitter, template

Llamay = Callable[..., Any]
QWEN = "{% if enable_thinking is defined %}<think>\n\n</think>{% endif %} tools"


@pytest.fixture
def reasoner(fake: Any) -> Any:
    """A model whose template knows reasoning, and which reasons."""

    def setup(model: FakeModel) -> None:
        model.chat_template = SimpleNamespace(source=QWEN)
        model.script.append("<think>\nA greeting <b>?\n</think>\n\nHello.")

    fake.setup = setup
    return fake


def test_cl03_the_answer_alone_goes_to_stdout_and_reasoning_to_stderr(reasoner: Any, llamay: Llamay) -> None:
    result = llamay("run", reasoner.path, "-p", "Hi")

    assert (result.exit_code, result.stdout, result.stderr) == (0, "Hello.\n", "A greeting <b>?\n")


def test_cl03_reasoning_can_be_hidden_and_json_has_both(reasoner: Any, llamay: Llamay) -> None:
    assert llamay("run", reasoner.path, "-p", "Hi", "--hide-thinking").stderr == ""

    result = llamay("run", reasoner.path, "-p", "Hi", "--json")
    document = json.loads(result.stdout)
    assert (document["text"], document["thinking"].strip(), result.stderr) == (
        "Hello.",
        "A greeting <b>?",
        "",
    )


@pytest.mark.parametrize(("flag", "asked"), [("--think", True), ("--no-think", False), (None, None)])
def test_cl03_the_template_is_told_whether_to_think(
    reasoner: Any, llamay: Llamay, flag: str | None, asked: bool | None
) -> None:
    assert llamay("run", reasoner.path, "-p", "Hi", *([flag] if flag else [])).exit_code == 0

    options = {} if asked is None else {"enable_thinking": asked, "thinking": asked}
    assert reasoner.model.asked == [options]
    wrong = llamay("run", reasoner.path, "-p", "Hi", "--raw", "--think")
    assert (wrong.exit_code, "--raw" in wrong.stderr) == (2, True)


def test_raw_and_bound_answers_are_written_as_they_are(reasoner: Any, llamay: Llamay) -> None:
    result = llamay("run", reasoner.path, "-p", "Hi", "--raw")

    assert result.stdout == "<think>\nA greeting <b>?\n</think>\n\nHello.\n"


def test_reasoning_that_does_not_end_is_no_answer(fake: Any, llamay: Llamay) -> None:
    def setup(model: FakeModel) -> None:
        model.chat_template = SimpleNamespace(source=QWEN)
        model.script.append("<think>\nLet me see")

    fake.setup = setup
    result = llamay("run", fake.path, "-p", "Hi")

    assert (result.stdout, result.stderr) == ("", "Let me see\n")


def test_a_chat_keeps_reasoning_apart_from_what_was_said(capsys: pytest.CaptureFixture[str]) -> None:
    model = FakeModel()
    model.chat_template = SimpleNamespace(source=QWEN)
    model.script += ["<think>hm</think>One.", "<think>oh</think>Two.", "Three."]
    lines = iter(["first", "/set hide-thinking on", "second", "/set think off", "third", "/bye"])
    session = Session(model)  # type: ignore[arg-type]
    generating = {"max_tokens": None, "stop": (), "ignore_eos": False, "constraint": None}

    Repl(session, {}, generating, name="fake", read=lambda mark: next(lines)).run()

    out, err = capsys.readouterr()
    assert out == "One.\nTwo.\nThree.\n"
    assert "hm" in err
    assert "oh" not in err
    assert model.rendered[1][1] == {"role": "assistant", "content": "One.", "reasoning_content": "hm"}
    assert model.asked == [{}, {}, {"enable_thinking": False, "thinking": False}]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("after", [1, 12, 30])
def test_a_terminal_does_not_stay_dim_whatever_ends_the_answer(after: int) -> None:
    class Broken:
        """A generation that fails after so many pieces, in its reasoning or later."""

        def __iter__(self) -> Iterator[Any]:
            for i, character in enumerate("<think>hm, hm</think>Yes.<think>oh</think>No."):
                if i == after:
                    raise OSError("gone")
                yield SimpleNamespace(text=character)

        def cancel(self) -> None: ...

        def wait(self) -> None: ...

    terminal = Terminal()
    splitter = ReasoningSplitter.of("<think> tools", "", llamay_grammar)

    with pytest.raises(OSError, match="gone"):
        write_answer(Broken(), AnswerStream(Terminal()), splitter, ReasoningStream(terminal))  # type: ignore[arg-type]

    shown = terminal.getvalue()
    assert shown.count("\x1b[2m") == shown.count("\x1b[0m")
    assert not shown or shown.endswith("\n")


def test_the_quick_search_finds_the_marks_of_every_format() -> None:
    marks = [form["reasoning"] for form in llamay_grammar.tool_formats().values() if "reasoning" in form]

    for opening, closing in [*marks, *template._REASONING_MARKS]:
        assert reasoning._PERHAPS.search(opening + closing), opening
