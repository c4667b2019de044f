"""The stub is generated, committed and compared: readers and type checkers see what the module says."""

import sys
from pathlib import Path

import pytest


@pytest.mark.skipif(
    sys.version_info[:2] != (3, 11), reason="what stubgen writes depends on the Python it runs under"
)
def test_the_committed_stub_is_what_the_module_says():
    stubgen = pytest.importorskip("nanobind.stubgen")
    from llamay_kernels import _kernels

    package = Path(__file__).parents[1]
    generator = stubgen.StubGen(_kernels, patterns=stubgen.load_pattern_file(str(package / "cpp/stubs.pat")))
    generator.put(_kernels)
    committed = (package / "src/llamay_kernels/_kernels.pyi").read_text()
    assert committed == generator.get(), f"the command at the top of {package.name}/cpp/stubs.pat renews it"
