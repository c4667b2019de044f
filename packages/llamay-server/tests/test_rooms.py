"""The rooms of the server: a room imports only rooms below it, and no modules import one another in a circle."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import llamay_server

PACKAGE = Path(llamay_server.__file__).parent
ROOMS: tuple[tuple[str, ...], ...] = (
    ("config", "settings", "store", "version"),
    ("engine",),
    ("observability",),
    ("http",),
    ("models",),
    ("pipeline",),
    ("chat",),
    ("contexts",),
    ("services",),
    ("openai",),
    ("anthropic", "ollama", "llamacpp", "retrieval"),
    ("contexts_api",),
    ("web",),
    ("app",),
)
"""From the ground up. Rooms of one level do not import one another, but for the files of the ground."""
LEVEL = {room: level for level, rooms in enumerate(ROOMS) for room in rooms}


def modules() -> dict[str, Path]:
    """All modules by their names below the package."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = path
    return found


MODULES = modules()


def imported(path: Path) -> Iterator[tuple[str, bool, bool]]:
    """Modules of this package that a file imports, each with whether only for types, and whether only when called."""

    def walk(node: ast.AST, types: bool, late: bool) -> Iterator[tuple[str, bool, bool]]:
        for child in ast.iter_child_nodes(node):
            guarded = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test)
            deferred = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            if isinstance(child, ast.ImportFrom):
                assert not child.level, f"{path}: imports here are absolute, so that they show the room"
                if (child.module or "").partition(".")[0] == "llamay_server":
                    base = (child.module or "").partition(".")[2]
                    for alias in child.names:
                        inner = f"{base}.{alias.name}".lstrip(".")
                        yield inner if inner in MODULES else base, types, late
            yield from walk(child, types or guarded, late or deferred)

    return walk(ast.parse(path.read_text()), False, False)


def room(module: str) -> str:
    return module.partition(".")[0]


def test_every_module_has_its_room():
    rooms = {room(module) for module in MODULES} - {"", "__main__"}
    assert rooms == set(LEVEL)


@pytest.mark.parametrize("name", [name for name in MODULES if name not in ("", "__main__")])
def test_a_room_imports_only_rooms_below_it(name):
    own = room(name)
    for other, _, _ in imported(MODULES[name]):
        if room(other) == own:
            continue
        ground = LEVEL[own] == LEVEL[room(other)] == 0
        assert ground or LEVEL[room(other)] < LEVEL[own], (
            f"{name} imports {other}, of a room that is not below"
        )


def test_no_modules_import_one_another_in_a_circle():
    graph = {
        name: {other for other, _, _ in imported(path) if other != name} for name, path in MODULES.items()
    }
    try:
        tuple(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(f"a circle of imports: {' -> '.join(reversed(error.args[1]))}")


def test_nothing_is_imported_from_a_module_that_keeps_it_private():
    for name, path in MODULES.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("llamay_server"):
                private = [alias.name for alias in node.names if alias.name.startswith("_")]
                assert not private, f"{name} imports {', '.join(private)} from {node.module}"


def test_a_test_of_the_rules_would_see_a_breach(tmp_path):
    bad = tmp_path / "bad.py"
    bad.write_text(
        "from typing import TYPE_CHECKING\n"
        "from llamay_server.chat import run\n"
        "if TYPE_CHECKING:\n    from llamay_server.app.application import Application\n"
        "def late():\n    from llamay_server.config import Config\n"
    )
    assert list(imported(bad)) == [
        ("chat.run", False, False),
        ("app.application", True, False),
        ("config", False, True),
    ]
