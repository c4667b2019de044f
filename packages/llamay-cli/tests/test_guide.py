"""The guide to adding a verb, followed to the letter."""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from llamay_cli import verbs

PAGE = Path(__file__).parents[3] / "docs" / "cli.md"


@pytest.mark.skipif(not PAGE.exists(), reason="needs the documentation beside the package")
def test_a_verb_is_a_module_and_a_line(
    llamay: Callable[..., Any], fake: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    guide = PAGE.read_text("utf-8").partition("## Adding a verb")[2]
    code, line = re.findall(r"^```(?:python)?\n(.*?)^```", guide, re.M | re.S)
    module = ModuleType("llamay_cli.verbs.count")
    module.__package__ = "llamay_cli.verbs"
    exec(compile(code, str(PAGE), "exec"), module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    entry = eval(f"{{{line}}}")
    for table in (verbs.SECTIONS["Models"], verbs.COMMANDS):
        for name, what in entry.items():
            monkeypatch.setitem(table, name, what)
    (tmp_path / "text.txt").write_text("Hello")

    assert entry["count"][1] in llamay("--help").stdout
    assert llamay("count", fake.path, tmp_path / "text.txt").stdout == "6\n"
    assert llamay("count", fake.path, tmp_path / "text.txt", "--threads", 0).exit_code == 2
    assert llamay("count", fake.path, tmp_path / "none.txt").exit_code == 3
