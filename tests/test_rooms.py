"""Inside a package: rooms import rooms below them only, and no module imports itself by way of others."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Each package's rooms (folders and single modules), from the ground up; a folder's own rooms under its dotted name.
ROOMS: dict[str, list[str]] = {
    "llamay_kernels": ["_kernels"],  # the rooms of its C++: packages/llamay-kernels/tests/test_rooms.py
    "llamay_kv": [
        "_kv",
        "arguments",
        "extras",
        "errors",
        "identity",
        "ids",
        "layout",
        "storage",
        "snapshots",
        "context",
        "prefix_tree",
        "tiers",
        "adapters",
    ],
    "llamay_cli": [
        "errors",
        "paths",
        "console",
        "store",
        "pull",
        "models",
        "options",
        "verification",
        "chat",
        "verbs",
        "command",
    ],
    "llamay_server": [
        "version",
        "config",
        "settings",
        "store",
        "engine",
        "observability",
        "http",
        "models",
        "pipeline",
        "chat",
        "contexts",
        # The record of a running server's parts names the rooms that the parts are in, so it is above them.
        "services",
        # Dialects. OpenAI's forms of messages, tools and scores are read and written by others, too.
        "openai",
        "anthropic",
        "ollama",
        "llamacpp",
        "retrieval",
        "contexts_api",
        "web",
        "app",
    ],
    "llamay_models": [
        "_native",
        "arguments",
        "errors",
        "interfaces",
        "progress",
        "machine",
        "plan",
        "architectures",
        "gguf",
        "tokenizer",
        "chat",
        "backend",
        "tensors",
        "quantization",
        "kv_cache",
        "engine",
        "answers",
        "constraints",
        "embedding",
        "scoring",
        "branches",
        "adapters",
        "model",
        "loading",
        "pool",
    ],
    "llamay_models.engine": [
        "failures",
        "stats",
        "sampling",
        "runner",
        "state",
        "requests",
        "decoding",
        "scheduling",
        "passes",
        "contexts",
        "engine",
    ],
    "llamay_grammar": [
        "errors",
        "_grammar",
        "checks",
        "protocol",
        "tokenizer_json",
        "recent",
        "vocabulary",
        "serialised",
        "recipes",
        "grammars",
        "reasoning",
        "compilation",
        "tool_calls",
    ],
}


@dataclass(frozen=True)
class Import:
    """One module imports another; `now` says that it does so while it is imported itself."""

    importer: str
    imported: str
    now: bool
    line: int


def modules(package: str) -> dict[str, Path]:
    """Return the files of a package or of a folder in one by their dotted names; a native module's is its stub."""
    source = ROOT / "packages" / package.partition(".")[0].replace("_", "-") / "src"
    folder = source / package.replace(".", "/")
    native = (path for path in folder.rglob("*.pyi") if not path.with_suffix(".py").exists())
    found = {}
    for path in sorted([*folder.rglob("*.py"), *native]):
        parts = path.relative_to(source).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(package: str) -> Iterator[Import]:
    known = modules(package)
    for name, path in known.items():
        inside = name if path.name == "__init__.py" else name.rpartition(".")[0]
        for node, now in statements(ast.parse(path.read_text()), True):
            for target in targets(node, inside, known):
                if target != name:
                    yield Import(name, target, now, node.lineno)


def statements(node: ast.AST, now: bool) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Yield imports, and whether they run when the module is imported: not in functions, nor for type checkers only."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, now
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            yield from statements(child, False)
        else:
            lazy = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from statements(child, now and not lazy)


def targets(node: ast.Import | ast.ImportFrom, inside: str, known: dict[str, Path]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name in known)
        return
    base = node.module or ""
    if node.level:
        parts = inside.split(".")
        base = ".".join([*parts[: len(parts) - node.level + 1], *filter(None, [node.module])])
    for alias in node.names:
        if f"{base}.{alias.name}" in known:
            yield f"{base}.{alias.name}"
        elif base in known:
            yield base


def room(package: str, module: str) -> int:
    """The height of a module's room; the package itself, and what is in no room, are on top."""
    first = module.removeprefix(package).removeprefix(".").partition(".")[0]
    order = ROOMS[package]
    return order.index(first) if first in order else len(order)


@pytest.mark.parametrize("package", ROOMS)
def test_every_room_is_known(package: str) -> None:
    folder = modules(package)[package].parent
    rooms = {
        path.stem
        for path in folder.iterdir()
        if (path / "__init__.py").exists() or path.suffix in (".py", ".pyi")
    }

    assert rooms - {"__init__", "__main__"} == set(ROOMS[package])


@pytest.mark.parametrize("package", ROOMS)
def test_rooms_import_downwards_only(package: str) -> None:
    """Also where an import waits for its use, or is there for type checkers."""
    upward = [
        f"{each.importer}, line {each.line}, imports {each.imported}"
        for each in imports(package)
        if room(package, each.imported) > room(package, each.importer)
    ]

    assert not upward


def test_the_table_of_the_server_names_its_rooms_from_the_top() -> None:
    page = (ROOT / "packages/llamay-server/README.md").read_text()
    rows = re.findall(r"^\| ((?:`\w+` ?)+)\|", page, re.MULTILINE)
    named = [re.findall(r"\w+", row) for row in rows]
    heights = [sorted(ROOMS["llamay_server"].index(name) for name in row) for row in named]

    assert sorted(name for row in named for name in row) == sorted({*ROOMS["llamay_server"]} - {"version"})
    assert all(below[-1] < above[0] for above, below in pairwise(heights))


@pytest.mark.parametrize("package", ROOMS)
@pytest.mark.parametrize("now", [True, False], ids=["when imported", "ever"])
def test_no_module_imports_itself_by_way_of_others(package: str, now: bool) -> None:
    edges: dict[str, set[str]] = {}
    for each in imports(package):
        if each.now or not now:
            edges.setdefault(each.importer, set()).add(each.imported)

    assert not circles(edges)


def circles(edges: dict[str, set[str]]) -> list[list[str]]:
    """The groups of modules that reach each other (Tarjan's strongly connected components)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for target in sorted(edges.get(module, ())):
            if target not in index:
                visit(target)
                low[module] = min(low[module], low[target])
            elif target in stack:
                low[module] = min(low[module], index[target])
        if low[module] == index[module]:
            group = stack[stack.index(module) :]
            del stack[stack.index(module) :]
            if len(group) > 1:
                found.append(sorted(group))

    for module in sorted(edges):
        if module not in index:
            visit(module)
    return found


def test_circles_are_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"d", "b"}, "d": set()}) == [["b", "c"]]
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}}) == [["a", "b", "c"]]
    assert not circles({"a": {"b", "c"}, "b": {"c"}})
