"""What a model writes must not steer the terminal, and must arrive unchanged everywhere else."""

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamay_cli.console.terminal import AnswerStream, Cleaner

HOSTILE = {
    "colours": ("a\x1b[31mred\x1b[0mb", "aredb"),
    "cursor": ("safe\x1b[2K\x1b[1Aevil", "safeevil"),
    "clipboard, BEL": ("x\x1b]52;c;ZXZpbA==\x07y", "xy"),
    "clipboard, ST": ("x\x1b]52;c;ZXZpbA==\x1b\\y", "xy"),
    "link": ("\x1b]8;;http://evil\x1b\\text\x1b]8;;\x1b\\", "text"),
    "title": ("\x1b]0;owned\x07z", "z"),
    "device control": ("\x1bP$q\x1b\\z", "z"),
    "8-bit CSI": ("a\x9b31mb", "ab"),
    "8-bit OSC": ("a\x9d52;c;x\x9cb", "ab"),
    "charset": ("a\x1b(0b", "ab"),
    "reset": ("a\x1bcb", "ab"),
    "bell, backspace, delete": ("a\a\b\x7fb", "ab"),
    "carriage return": ("password\rinnocent", "passwordinnocent"),
    "escape at the end of an answer": ("a\x1b", "a"),
    "escape in a string": ("a\x1b]0;x\x1b[31mb", "ab"),
    "cancelled string": ("a\x1b]0;x\x18b", "ab"),
    "a string ends at the line": ("a\x1b]0;x\nb", "a\nb"),
}


@pytest.mark.parametrize(("text", "shown"), HOSTILE.values(), ids=HOSTILE)
def test_control_sequences_are_left_out_wherever_they_are_cut(text: str, shown: str) -> None:
    for cut in range(len(text) + 1):
        cleaner = Cleaner()
        assert cleaner.feed(text[:cut]) + cleaner.feed(text[cut:]) == shown


def test_a_string_without_an_end_does_not_swallow_the_answer() -> None:
    shown = Cleaner().feed("\x1b]0;" + "x" * 5000)

    assert len(shown) > 3000


@given(
    st.lists(st.text(alphabet=st.sampled_from("ab\n\t é日😀\x1b[]P;0m\\\x07\x9b\x9c\r\x18\x7f"), max_size=20))
)
def test_j21_nothing_that_steers_gets_through_however_it_is_cut(pieces: list[str]) -> None:
    cleaner = Cleaner()
    shown = "".join(cleaner.feed(piece) for piece in pieces)

    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", shown)
    assert shown == Cleaner().feed("".join(pieces))


@given(st.text(alphabet=st.characters(exclude_categories=("Cc", "Cs"))))
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert Cleaner().feed(text) == text


class Tty(io.StringIO):
    encoding = "ascii"

    def isatty(self) -> bool:
        return True


def test_a_pipe_gets_every_character() -> None:
    out = io.StringIO()
    answer = AnswerStream(out)
    answer.write("a\x1b[31m\r")
    answer.end()

    assert out.getvalue() == "a\x1b[31m\r\n"


def test_a_poor_terminal_gets_question_marks_instead_of_an_exception() -> None:
    out = Tty()
    AnswerStream(out).write("naïve \x1b]0;x\x07日\ud800")

    assert out.getvalue() == "na?ve ??"


@pytest.mark.parametrize(("text", "ending"), [("a", "\n"), ("a\n", ""), ("", "")])
def test_a_line_is_ended_once(text: str, ending: str) -> None:
    out = io.StringIO()
    answer = AnswerStream(out)
    answer.write(text)
    answer.end()

    assert out.getvalue() == text + ending
