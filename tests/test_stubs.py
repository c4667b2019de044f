"""Stubs are generated, committed and checked: readers and type checkers see the API that the module has."""

import importlib
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
STUBS = sorted(ROOT.glob("packages/*/src/*/_*.pyi"))


@pytest.mark.skipif(
    sys.version_info[:2] != (3, 11), reason="what stubgen writes depends on the Python that runs it"
)
@pytest.mark.parametrize("path", STUBS, ids=lambda p: p.parent.name)
def test_the_committed_stub_is_what_the_module_says(path: Path) -> None:
    stubgen = pytest.importorskip("nanobind.stubgen")
    module = importlib.import_module(f"{path.parent.name}.{path.stem}")
    generator = stubgen.StubGen(module)
    generator.put(module)

    again = f"python -m nanobind.stubgen -m {module.__name__} -o {path.relative_to(ROOT)}"
    assert path.read_text() == generator.get(), f"renew it: {again}"


def test_every_native_module_has_a_stub() -> None:
    assert {path.parent.name for path in STUBS} == {
        "llamay_grammar",
        "llamay_kernels",
        "llamay_kv",
        "llamay_models",
    }
