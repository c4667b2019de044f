"""Test helpers that several files here share are modules beside this file."""

import os
import sys
from pathlib import Path

import pytest

import llamay_kernels as lk

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def _restore_isa():
    """The kernel set that a test chose is its own."""
    before = lk.isa()
    yield
    lk.use_isa(before)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep every n-th test with `LLAMAY_TEST_SAMPLE=n`: enough where each takes long, as under a sanitizer.

    A test's cases (formats, shapes, kernel sets) follow one another, so a sample still meets all of the code.
    """
    items[:] = items[:: int(os.environ.get("LLAMAY_TEST_SAMPLE", "1"))]
