"""The committed stub is what the module says, and the public names are those that are listed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import llamay_grammar as lg
from llamay_grammar import _grammar

STUB = Path(__file__).parents[1] / "src/llamay_grammar/_grammar.pyi"


@pytest.mark.skipif(
    sys.version_info[:2] != (3, 11), reason="what the generator writes depends on the Python it runs under"
)
def test_the_committed_stub_is_what_the_module_says() -> None:
    stubgen = pytest.importorskip("nanobind.stubgen", reason="needs nanobind's stub generator")
    generator = stubgen.StubGen(_grammar, include_private=True)
    generator.put(_grammar)
    command = "python -m nanobind.stubgen -P -m llamay_grammar._grammar -o src/llamay_grammar/_grammar.pyi"
    assert STUB.read_text() == generator.get(), f"run: {command}"


def test_the_interfaces_are_stated() -> None:
    assert lg.INTERFACE == {"token_constraint": (1, 0), "vocabulary": (1, 0)}
    assert all(hasattr(lg, name) for name in lg.__all__)
