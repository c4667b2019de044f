"""The committed stub is what the module says, so readers and type checkers see the same API."""

import sys
from pathlib import Path

import pytest

from llamay_kv import _kv

STUB = Path(__file__).parents[1] / "src/llamay_kv/_kv.pyi"


@pytest.mark.skipif(
    sys.version_info[:2] != (3, 11), reason="what the generator writes depends on the Python it runs under"
)
def test_the_committed_stub_is_what_the_module_says():
    stubgen = pytest.importorskip("nanobind.stubgen", reason="needs nanobind's stub generator")
    generator = stubgen.StubGen(_kv)
    generator.put(_kv)
    command = "python -m nanobind.stubgen -m llamay_kv._kv -o src/llamay_kv/_kv.pyi"
    assert STUB.read_text() == generator.get(), f"run: {command}"
