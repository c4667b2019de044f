"""A drawing of this package by its imports has no circle, and every arrow goes down."""

import ast
import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import llamay_kv

ROOT = Path(llamay_kv.__file__).parent
# From the ground up. What a floor has may be imported from the floors above it, and from the same room.
FLOORS = [
    {"_kv", "errors", "identity", "ids", "layout"},
    {"storage"},
    {"snapshots"},
    {"context"},
    {"prefix_tree", "tiers"},
    {"adapters"},
]
MOST_FILES = 15


def imports(path):
    """The modules of this package that a file imports, wherever in it: when it is loaded, in functions, for types."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "llamay_kv":
            inner = node.module.split(".")[1:]
            for alias in node.names:
                deeper = ROOT.joinpath(*inner, alias.name)
                is_module = deeper.with_suffix(".py").exists() or deeper.is_dir() or alias.name == "_kv"
                yield ".".join([*inner, *([alias.name] if is_module else [])])


def modules():
    for path in sorted(ROOT.rglob("*.py")):
        yield ".".join(path.relative_to(ROOT).with_suffix("").parts), path


GRAPH = {name: set(imports(path)) for name, path in modules() if path.name != "__init__.py"}


def test_no_module_is_imported_by_what_it_imports():
    assert "context" in GRAPH["tiers.disk_cache"], "the drawing has arrows"
    try:
        TopologicalSorter(GRAPH).prepare()
    except CycleError as error:
        pytest.fail(f"a circle: {' -> '.join(error.args[1])}")


@pytest.mark.parametrize("name", GRAPH)
def test_a_room_imports_from_the_floors_below(name):
    floor_of = {room: i for i, rooms in enumerate(FLOORS) for room in rooms}
    room = name.split(".")[0]
    if room == "adapters":
        return  # they use the package as anybody does
    for other in GRAPH[name]:
        below = other.split(".")[0]
        assert below == room or floor_of[below] < floor_of[room] or {below, room} <= FLOORS[0]


CORE = Path(__file__).parents[1] / "cpp"
CORE_FLOORS = ["numbers", "pages", "contexts", "tree", "bind"]


@pytest.mark.parametrize("room", CORE_FLOORS)
def test_a_room_of_the_core_includes_from_the_floors_below(room):
    allowed = CORE_FLOORS[: CORE_FLOORS.index(room) + 1]
    for path in (CORE / room).iterdir():
        for included in re.findall(r'#include "(\w+)/', path.read_text()):
            assert included in allowed, f"{path.name} includes from {included}"


def test_no_folder_is_crowded():
    folders = [
        ROOT,
        *(path for path in ROOT.rglob("*") if path.is_dir()),
        *(CORE / room for room in CORE_FLOORS),
    ]
    for folder in folders:
        sources = [path for path in folder.iterdir() if path.suffix in (".py", ".cpp", ".hpp")]
        assert len(sources) <= MOST_FILES, folder
