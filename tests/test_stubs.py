"""Stubs are generated, committed and checked: readers and type checkers see the API that the module has."""

import importlib
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NATIVE = ["llamay_grammar._grammar", "llamay_kernels._kernels", "llamay_kv._kv", "llamay_models._native"]
# Classes with an underscore, which the Python face of the package wraps.
WITH_PRIVATE = {"llamay_grammar._grammar"}


def test_every_native_module_is_listed_here() -> None:
    committed = {f"{path.parent.name}.{path.stem}" for path in ROOT.glob("packages/*/src/*/_*.pyi")}

    assert committed == set(NATIVE)


@pytest.mark.skipif(
    sys.version_info[:2] != (3, 11), reason="what stubgen writes depends on the Python that runs it"
)
@pytest.mark.parametrize("name", NATIVE)
def test_the_committed_stub_is_what_the_module_says(name: str) -> None:
    stubgen = pytest.importorskip("nanobind.stubgen")
    package, stem = name.split(".")
    folder = ROOT / "packages" / package.replace("_", "-")
    stub, patterns = folder / "src" / package / f"{stem}.pyi", folder / "cpp/stubs.pat"
    refine = stubgen.load_pattern_file(str(patterns)) if patterns.exists() else []
    module = importlib.import_module(name)
    generator = stubgen.StubGen(module, include_private=name in WITH_PRIVATE, patterns=refine)
    generator.put(module)

    again = f"python -m nanobind.stubgen -m {name} -o {stub.relative_to(ROOT)}"
    again += " -P" if name in WITH_PRIVATE else ""
    again += f" -p {patterns.relative_to(ROOT)}" if refine else ""
    assert stub.read_text() == generator.get(), f"renew it: {again}"
