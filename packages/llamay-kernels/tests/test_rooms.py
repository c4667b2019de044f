"""The C++ rooms of this package include from the rooms below them only."""

import re
from pathlib import Path

import pytest

CPP = Path(__file__).parents[1] / "cpp"
# From the ground up: folders, and the files that lie in cpp/ itself.
ROOMS = [
    "dispatch",
    "kernel_tables",
    "simd",
    "formats",
    "formats/quantize",
    "threads",
    "matmul",
    "matmul/weights",
    "matmul/vectors",
    "matmul/kernels",
    "ops/rows",
    "ops/attention",
    "ops/recurrent",
    "ops/experts",
    "plan",
    "probe",
    "sampling/chain",
    "sampling",
    "cpu/prepare",
    "cpu/partition",
    "cpu/run",
    "operations",
    "probe/bind",
    "matmul/bind",
    "ops/bind",
    "sampling/bind",
    "cpu/bind",
    "bindings",
    "matmul/bench",
    "digest",
    "tests",
]
ABI = "llamay/"  # the shared headers of abi/, below everything
SOURCES = [path for path in sorted(CPP.rglob("*")) if path.suffix in (".cpp", ".hpp", ".h", ".inc")]

pytestmark = pytest.mark.skipif(not SOURCES, reason="needs the C++ sources")


def room(path: Path) -> str:
    inside = path.relative_to(CPP)
    return inside.parent.as_posix() if inside.parent.parts else inside.stem


def included(path: Path) -> list[Path]:
    """The files of cpp/ that a file includes: found beside it, otherwise from cpp/."""
    found = []
    for name in re.findall(r'^#include "([^"]+)"', path.read_text(), re.MULTILINE):
        if not name.startswith(ABI):
            beside = path.parent / name
            found.append(beside if beside.exists() else CPP / name)
    return found


def test_every_room_is_known():
    assert {room(path) for path in SOURCES} == set(ROOMS)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(CPP).as_posix())
def test_a_source_includes_from_its_own_room_and_those_below(path):
    for other in included(path):
        assert other.exists(), f"{path.name} includes {other}, which is not there"
        assert ROOMS.index(room(other)) <= ROOMS.index(room(path)), f"{path.name} includes {other}"


def test_the_parser_of_includes_sees_them():
    assert CPP / "cpu/run/plan.hpp" in included(CPP / "cpu/run/run.hpp")
