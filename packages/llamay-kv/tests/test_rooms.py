"""The C++ rooms of this package include from the rooms below only; tests/test_rooms.py has the Python ones."""

import re
from pathlib import Path

import pytest

CORE = Path(__file__).parents[1] / "cpp"
# From the ground up.
ROOMS = ["numbers", "pages", "contexts", "tree", "bind", "tests"]
SOURCES = [path for path in sorted(CORE.rglob("*")) if path.suffix in (".cpp", ".hpp")]


def test_every_room_is_known():
    assert {path.parent.relative_to(CORE).as_posix() for path in SOURCES} == set(ROOMS)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(CORE).as_posix())
def test_a_source_includes_from_its_own_room_and_those_below(path):
    allowed = ROOMS[: ROOMS.index(path.parent.name) + 1]
    for included in re.findall(r'^#include "(\w+)/', path.read_text(), re.MULTILINE):
        if included != "llamay":  # the shared headers of abi/
            assert included in allowed, f"{path.name} includes from {included}"
