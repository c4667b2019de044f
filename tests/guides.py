"""Guides of the documentation, followed by tests: their examples, and their changes applied to copied sources."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def examples(page: str, title: str, language: str) -> list[str]:
    """The code blocks of a language in the section `title` of a page, without its fences."""
    text = (DOCS / page).read_text("utf-8")
    _, found, rest = text.partition(f"\n## {title}\n")
    assert found, f"{page} has no section {title!r}"
    section = re.split(r"^## ", rest, maxsplit=1, flags=re.M)[0]
    return re.findall(rf"^```{re.escape(language)}\n(.*?)^```", section, re.M | re.S)


def copy_sources(sources: Path, root: Path) -> Path:
    """Copy a folder of the repository to the same place below another root; return the copy."""
    copy = root / sources.relative_to(DOCS.parent)
    shutil.copytree(sources, copy, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


def save_listing(listing: str, root: Path) -> Path:
    """Save a listing at the path from the root that its first line, a comment, gives; return the file.

    It is a new file in a folder that is there.
    """
    path = root / listing.partition("\n")[0].removeprefix("# ")
    assert not path.exists(), path
    path.write_text(listing, "utf-8")
    return path


def apply_diff(diff: str, root: Path) -> list[Path]:
    """Apply a diff to files below the root, whose paths from there it gives; return the files.

    A part of it begins with ``+++ FILE``, and its changes with ``@@``. The lines before and after a change stand in the
    file exactly once: a guide that has fallen behind the sources cannot be applied.
    """
    changed = []
    for part in re.split(r"^\+\+\+ ", diff, flags=re.M)[1:]:
        name, _, changes = part.partition("\n")
        path = root / name
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
