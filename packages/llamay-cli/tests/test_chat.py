"""The chat: history, branches, and commands; nothing is read twice, and no error ends the conversation."""

import io
import signal
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from llamay_cli_fakes import ASSISTANT, STOP, USER, FakeModel

from llamay_cli.chat.repl import COMMANDS, Repl
from llamay_cli.chat.session import Session, common_prefix, next_turn
from llamay_cli.console.terminal import AnswerStream
from llamay_cli.errors import CliError
from llamay_models import Sampling


class Talk:
    """A chat with scripted lines; an exception among them is raised where a line would be read."""

    def __init__(
        self, *lines: str | type[BaseException], answers: Iterable[str] = (), **options: Any
    ) -> None:
        self.model = FakeModel()
        self.model.script = list(answers)
        for name, value in options.pop("model", {}).items():
            setattr(self.model, name, value)
        self.session = Session(self.model, **options)  # type: ignore[arg-type]
        self.lines = list(lines)
        self.prompts: list[str] = []
        self.out = io.StringIO()
        generating: dict[str, Any] = {"max_tokens": None, "stop": (), "ignore_eos": False, "constraint": None}
        self.repl = Repl(
            self.session,
            {},
            generating,
            name="fake",
            progress="none",
            read=self.read,
            out=AnswerStream(self.out),
        )

    def read(self, prompt: str) -> str:
        self.prompts.append(prompt)
        line = self.lines.pop(0) if self.lines else EOFError
        if isinstance(line, str):
            return line
        raise line

    def run(self) -> str:
        self.repl.run()
        return self.out.getvalue()


def test_a_turn_reads_only_what_is_new_and_sees_all_that_was_said() -> None:
    talk = Talk("Hello", "And you?", answers=["Hi", "Fine"], system="Be kind")

    assert talk.run() == "Hi\nFine\n"
    assert talk.model.rendered[-1] == [
        {"role": "system", "content": "Be kind"},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hi"},
        {"role": "user", "content": "And you?"},
    ]
    # The second turn: the user's mark, eight characters, the end mark, the assistant's mark.
    assert talk.model.reads[1] == 11


def test_a_template_that_rewrites_earlier_turns_is_obeyed() -> None:
    talk = Talk("Hello", "And you?", answers=["Hi", "Fine"])
    render = talk.model.render

    def forgetful(messages: Any, **options: Any) -> list[int]:
        return render([m for m in messages if m["role"] == "user"], **options)

    talk.model.render = forgetful  # type: ignore[method-assign]
    talk.run()

    tokens = talk.session.branches["main"].context.tokens  # type: ignore[union-attr]
    assert tokens[: len(tokens) - 5] == forgetful(
        [{"role": "user", "content": c} for c in ("Hello", "And you?")]
    )


def test_a_window_that_forbids_going_back_means_reading_anew() -> None:
    talk = Talk("Hello", "/retry", answers=["Hi there, I talk a lot", "Short"], model={"window": 4})
    talk.session.fork = lambda name=None: ""  # type: ignore[method-assign]

    assert talk.run() == "Hi there, I talk a lot\nShort\n"


def test_retry_takes_the_answer_back() -> None:
    talk = Talk("Hello", "/retry", "More", answers=["Hi", "Hey", "Yes"])

    assert talk.run() == "Hi\nHey\nYes\n"
    assert [m["content"] for m in talk.model.rendered[-1]] == ["Hello", "Hey", "More"]


def test_branches_share_the_past_and_not_the_future() -> None:
    talk = Talk("One", "/fork b", "Two", "/switch main", "Three", "/branches", answers=["1", "2", "3"])
    talk.run()

    assert [m["content"] for m in talk.model.rendered[-1]] == ["One", "1", "Three"]
    assert [m["content"] for m in talk.session.branches["b"].messages] == ["One", "1", "Two", "2"]
    assert talk.prompts == ["> ", "> ", "b> ", "b> ", "main> ", "main> ", "main> "]


def test_everything_is_given_back_at_the_end() -> None:
    talk = Talk("One", "/fork b", "Two", "/retry", "/switch main", "Three", "/clear", "Four", answers="12345")
    talk.run()

    assert all(context.closed for context in talk.model.open)


def test_a_conversation_is_saved_and_goes_on_in_another_process(tmp_path: Path) -> None:
    path = tmp_path / "chat.llamay"
    Talk("Hello", f"/save {path}", answers=["Hi"]).run()

    later = Talk(f"/load {path}", "And you?", answers=["Fine"])
    later.run()

    tokens = later.session.branches["main"].context.tokens  # type: ignore[union-attr]
    whole = [
        {"role": r, "content": c} for r, c in (("user", "Hello"), ("assistant", "Hi"), ("user", "And you?"))
    ]
    assert tokens[: -len("Fine") - 1] == later.model.render(whole)


@pytest.mark.parametrize("kept", [0, 1])
def test_what_ends_the_models_turn_is_read_once(kept: int) -> None:
    model = FakeModel()
    tokens = [*model.render([{"role": "user", "content": "a"}]), ord("x"), *([STOP] * kept)]

    assert next_turn(model, tokens, "y") == [*([STOP] * (1 - kept)), USER, ord("y"), STOP, ASSISTANT]  # type: ignore[arg-type]


def test_an_error_is_one_line_and_the_chat_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    talk = Talk("/nonsense", "/load nowhere", "/switch x", "/save", "x" * 5000, "Hello", answers=["Hi"])

    assert talk.run() == "Hi\n"
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 5
    assert "5004 tokens" in errors[4]
    assert [m["content"] for m in talk.model.rendered[-1]] == ["Hello"]


def test_a_refused_file_leaves_the_conversation(tmp_path: Path) -> None:
    (tmp_path / "bad").write_text("damaged")
    talk = Talk("Hello", f"/load {tmp_path / 'bad'}", "More", answers=["Hi", "Yes"])
    talk.run()

    assert [m["content"] for m in talk.model.rendered[-1]] == ["Hello", "Hi", "More"]


def test_ctrl_c_stops_an_answer_and_keeps_what_was_said() -> None:
    talk = Talk("Hello", "Go on", answers=["A long story", "more"], model={"interrupt_after": 6})

    assert talk.run() == "A long\nmore\n"
    assert talk.model.rendered[-1][1]["content"] == "A long"


def test_ctrl_c_at_the_prompt_warns_once_then_leaves() -> None:
    talk = Talk(KeyboardInterrupt, "Hello", KeyboardInterrupt, KeyboardInterrupt, answers=["Hi"])

    with pytest.raises(KeyboardInterrupt):
        talk.run()
    assert talk.out.getvalue() == "Hi\n"


def test_ctrl_c_is_heard_although_python_drops_exceptions_in_destructors(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    dropped: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", dropped.append)

    class Pressed:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    def read(prompt: str) -> str:
        if dropped:
            raise EOFError
        Pressed()
        return "/branches"

    talk = Talk()
    talk.repl.read = read
    talk.run()

    assert len(dropped) == 1
    assert "Ctrl-C again" in capsys.readouterr().err


def test_lines_between_quotes_are_one_message() -> None:
    talk = Talk('"""first', "second", 'third"""', answers=["ok"])
    talk.run()

    assert talk.model.rendered[-1][0]["content"] == "first\nsecond\nthird"


def test_set_changes_what_follows_and_refuses_what_is_out_of_range(
    capsys: pytest.CaptureFixture[str],
) -> None:
    talk = Talk(
        "/set temperature 0",
        "/set seed 9",
        "/set top-k -3",
        "/set top_p x",
        "/set color red",
        "Hi",
        answers="a",
    )
    talk.run()

    assert talk.model.sampled == [Sampling(temperature=0.0, seed=9)]
    assert capsys.readouterr().err.count("error: ") == 3


def test_system_can_be_changed_in_the_middle() -> None:
    talk = Talk("Hello", "/system Be rude", "More", "/system -", "Still", answers="abc", system="Be kind")
    talk.run()

    assert [r[0]["content"] for r in talk.model.rendered] == ["Be kind", "Be rude", "Hello"]


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    Talk("/help", "/?").run()

    shown = capsys.readouterr().err
    assert all(shown.count(command.text) == 2 for command in COMMANDS.values())


def test_without_a_template_text_is_continued() -> None:
    talk = Talk("Once upon", " a time", answers=[" the", " there"], model={"chat_template": None})
    talk.run()

    assert talk.session.branches["main"].context.text == "Once upon thea time there"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("a", "b", "n"), [([], [], 0), ([1, 2], [1, 2, 3], 2), ([1, 9], [1, 2], 1), ([9], [1], 0)]
)
def test_common_prefix(a: list[int], b: list[int], n: int) -> None:
    assert common_prefix(a, b) == n


def test_a_name_is_given_to_one_branch_only() -> None:
    session = Session(FakeModel())  # type: ignore[arg-type]
    session.fork("x")
    with pytest.raises(CliError, match="already"):
        session.fork("x")
    assert session.fork() == "branch-1"
