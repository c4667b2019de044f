"""The public surface of each package is a list that a reviewer sees change."""

import importlib
from pathlib import Path

import pytest

LISTS = sorted((Path(__file__).parent / "public_names").glob("*.txt"))
PACKAGES = [
    "llamay",
    "llamay_cli",
    "llamay_grammar",
    "llamay_kernels",
    "llamay_kv",
    "llamay_models",
    "llamay_server",
]


def test_every_package_has_its_list() -> None:
    assert [path.stem for path in LISTS] == PACKAGES


@pytest.mark.parametrize("path", LISTS, ids=lambda p: p.stem)
def test_a_package_offers_exactly_the_listed_names(path: Path) -> None:
    module = importlib.import_module(path.stem)

    assert sorted(module.__all__) == path.read_text().split()
    for name in module.__all__:
        assert getattr(module, name) is not None
