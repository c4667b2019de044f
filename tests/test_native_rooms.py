"""Inside the C++ of a package: rooms include rooms below them only, and no header includes itself by way of others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from .test_rooms import circles

ROOT = Path(__file__).parents[1]
SOURCES = {".cpp", ".h", ".hpp"}
MOST_FILES = 15  # of one room


@dataclass(frozen=True)
class Core:
    """A folder whose files lie in rooms. Every include is written from `folder`."""

    folder: Path
    rooms: list[str]  # from the ground up
    others: frozenset[str] = frozenset()  # folders beside the rooms, whose files include from all of them

    def files(self) -> dict[str, Path]:
        """Sources by their path from `folder`."""
        found = sorted(path for path in self.folder.rglob("*") if path.suffix in SOURCES)
        return {
            path.relative_to(self.folder).as_posix(): path
            for path in found
            if path.relative_to(self.folder).parts[0] not in self.others
        }

    def includes(self) -> Iterator[tuple[str, str]]:
        """Pairs of a source and a file of this package or of `abi` that it includes, as the source names it."""
        for name, path in self.files().items():
            for included in re.findall(r'^\s*#\s*include "([^"]+)"', path.read_text(), re.MULTILINE):
                yield name, included


CORES = {
    "llamay-grammar": Core(
        ROOT / "packages/llamay-grammar/cpp/core",
        [
            "support",
            "text",
            "tokens",
            "automata",
            "regex",
            "program",
            "formulas",
            "schema",
            "expansion",
            "grammars",
            "vocabulary",
            "machine",
            "masks",
            "api",
        ],
    ),
    "llamay-kv": Core(
        ROOT / "packages/llamay-kv/cpp",
        ["numbers", "pages", "contexts", "tree", "bind"],
        frozenset({"tests"}),
    ),
}
package = pytest.mark.parametrize("package", CORES)


def room(path: str) -> str:
    return path.partition("/")[0]


@package
def test_every_file_is_in_a_known_room(package: str) -> None:
    core = CORES[package]
    rooms = {path.parent.relative_to(core.folder).as_posix() for path in core.files().values()}

    assert rooms == set(core.rooms)


@package
def test_includes_are_written_from_the_root_and_lead_downwards(package: str) -> None:
    core = CORES[package]
    outside = {path.relative_to(ROOT / "abi").as_posix() for path in (ROOT / "abi").rglob("*.h")}
    beside = {path.relative_to(core.folder).as_posix() for path in core.folder.rglob("*.inc")}
    known = core.files().keys() | beside

    includes = [pair for pair in core.includes() if pair[1] not in outside]

    assert includes
    assert not [f"{name} includes {included}" for name, included in includes if included not in known]
    height = core.rooms.index
    assert not [
        f"{name} includes {included}"
        for name, included in includes
        if height(room(included)) > height(room(name))
    ]


@package
def test_no_header_includes_itself_by_way_of_others(package: str) -> None:
    edges: dict[str, set[str]] = {}
    for name, included in CORES[package].includes():
        if not name.endswith(".cpp"):
            edges.setdefault(name, set()).add(included)

    assert edges
    assert not circles(edges)


@package
def test_no_room_is_crowded(package: str) -> None:
    core = CORES[package]
    for each in core.rooms:
        files = [name for name in core.files() if room(name) == each]
        assert len(files) <= MOST_FILES, each
