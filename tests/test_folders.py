"""Folders stay small, or CONTRIBUTING.md gives the reason why one does not."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MOST_FILES = 15
SOURCES = (".py", ".pyi", ".c", ".cpp", ".h", ".hpp", ".inc", ".js", ".mjs")


def large_folders() -> set[str]:
    """Folders with more than MOST_FILES source files of their own, in the repository's index."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("needs a git checkout")
    paths = [Path(name) for name in listed.stdout.split("\0") if name.endswith(SOURCES)]
    sizes = Counter(path.parent.as_posix() for path in paths if (ROOT / path).exists())
    return {folder for folder, size in sizes.items() if size > MOST_FILES}


def folders_with_a_reason() -> list[str]:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    section = page.partition("## Folders above 15 files\n")[2].partition("\n## ")[0]
    return re.findall(r"^\| `([^`]+)` \| \w", section, re.MULTILINE)


def test_every_large_folder_has_a_reason_and_every_reason_a_large_folder() -> None:
    named = folders_with_a_reason()

    assert len(named) == len(set(named))
    assert set(named) == large_folders()
