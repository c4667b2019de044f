"""Guides of the documentation, followed by tests: their examples, and their changes applied to copied sources."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def examples(page: str, title: str, language: str) -> list[str]:
    """The code blocks of a language in the section `title` of a page, without its fences."""
    text = (DOCS / page).read_text("utf-8")
    _, found, rest = text.partition(f"\n## {title}\n")
    assert found, f"{page} has no section {title!r}"
    section = re.split(r"^## ", rest, maxsplit=1, flags=re.M)[0]
    return re.findall(rf"^```{re.escape(language)}\n(.*?)^```", section, re.M | re.S)


def apply_diff(diff: str, folder: Path) -> list[Path]:
    """Apply a diff to the files of a folder; return the files.

    A part of it begins with ``+++ FILE``, and its changes with ``@@``. The lines before and after a change stand in the
    file exactly once: a guide that has fallen behind the sources cannot be applied.
    """
    changed = []
    for part in re.split(r"^\+\+\+ ", diff, flags=re.M)[1:]:
        name, _, changes = part.partition("\n")
        path = folder / name
        text = path.read_text("utf-8")
        for change in re.split(r"^@@.*\n", changes, flags=re.M)[1:]:
            lines = change.splitlines(keepends=True)
            before = "".join(line[1:] for line in lines if line[0] in " -")
            after = "".join(line[1:] for line in lines if line[0] in " +")
            assert text.count(before) == 1, f"{name} has {text.count(before)} places like\n{before}"
            text = text.replace(before, after)
        path.write_text(text, "utf-8")
        changed.append(path)
    return changed
