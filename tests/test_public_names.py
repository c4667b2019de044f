"""What each package offers, and what the documentation shows of its parts, is a list that a reviewer sees change."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
LISTS = {path.stem: path for path in sorted((Path(__file__).parent / "public_names").glob("*.txt"))}
PACKAGES = [
    "llamay",
    "llamay_cli",
    "llamay_grammar",
    "llamay_kernels",
    "llamay_kv",
    "llamay_models",
    "llamay_server",
]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("packages/*/README.md")]
# Modules that other programs load, which are not installed here; docs/adapters.md lists them.
HOSTED = "llamay_kv.adapters"
# A listing that begins with its place is a new file of a package: it imports modules of that package. A test runs it.
LISTING = re.compile(r"^```python\n# packages/[\w-]+/src/\S+\.py\n.*?^```", re.M | re.S)


def public(module: ModuleType) -> list[str]:
    """What a module offers: what it lists, else what it defines without an underscore."""
    if (listed := getattr(module, "__all__", None)) is not None:
        return sorted(listed)
    return sorted(
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    )


def test_every_package_has_its_list() -> None:
    assert [name for name in LISTS if "." not in name] == PACKAGES


@pytest.mark.parametrize("name", LISTS)
def test_a_package_offers_exactly_the_listed_names(name: str) -> None:
    module = importlib.import_module(name)

    assert public(module) == LISTS[name].read_text().split()
    for each in public(module):
        assert getattr(module, each) is not None


@pytest.mark.parametrize("name", LISTS)
def test_every_class_and_function_has_a_docstring_of_its_own(name: str) -> None:
    module = importlib.import_module(name)

    for each in public(module):
        value = getattr(module, each)
        if inspect.isclass(value):
            assert vars(value).get("__doc__"), f"{name}.{each}"
        elif inspect.isroutine(value):
            assert value.__doc__, f"{name}.{each}"


@pytest.mark.parametrize("name", LISTS)
def test_no_function_has_the_name_of_a_module(name: str) -> None:
    """Else an import of the one gives the other, now or after the next import."""
    module = importlib.import_module(name)

    for each in public(module):
        value = getattr(module, each)
        if inspect.isroutine(value):
            assert value.__module__.rpartition(".")[2] != each
            assert not hasattr(module, "__path__") or importlib.util.find_spec(f"{name}.{each}") is None


def shown() -> Iterator[tuple[str, str]]:
    """Package and name, for all that pages import from our packages and for dotted names in their text."""
    for page in PAGES:
        text = LISTING.sub("", page.read_text("utf-8"))
        for found in re.finditer(r"^ *from (llamay[\w.]*) import (\([^)]*\)|[^\n#]*)", text, re.M):
            for name in re.findall(r"\w+", found[2]):
                yield found[1], name
        for dotted in re.findall(r"(?<![\w/.-])llamay(?:_\w+)?(?:\.[A-Za-z_]\w*)+", text):
            module, _, name = dotted.rpartition(".")
            yield module, name


@pytest.mark.parametrize("dotted", sorted({f"{module}.{name}" for module, name in shown()}))
def test_what_the_documentation_shows_is_listed(dotted: str) -> None:
    """By the list of the package that has it, which may have it from another; of an attribute, its class is listed."""
    module, _, name = dotted.rpartition(".")
    if dotted.startswith(HOSTED) or name == "py":
        return
    found: Any = importlib.import_module(module.partition(".")[0])
    for part in module.split(".")[1:]:
        found = getattr(found, part, None) or importlib.import_module(f"{found.__name__}.{part}")
    if isinstance(found, type):
        assert hasattr(found, name)
        module, _, name = module.rpartition(".")
        found = importlib.import_module(module)

    listed = LISTS[found.__name__].read_text().split()
    assert name in listed or f"{found.__name__}.{name}" in LISTS


@pytest.mark.parametrize("name", PACKAGES)
def test_dir_shows_what_is_meant(name: str) -> None:
    module = importlib.import_module(name)

    assert [each for each in dir(module) if not each.startswith("__")] == public(module)
