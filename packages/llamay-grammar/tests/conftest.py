from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import llamay_grammar as lg

# Test modules are imported by path, so what they share is not found by itself.
sys.path.insert(0, str(Path(__file__).parent))
from helpers import awkward_tokens


@pytest.fixture(scope="session")
def test_data() -> Path:
    """The shared test data, or a skip that says where it was looked for."""
    path = Path(os.environ["LLAMAY_TEST_DATA"])
    if not path.is_dir():
        pytest.skip(f"no test data at {path}; set LLAMAY_TEST_DATA")
    return path


@pytest.fixture(scope="session")
def bytes_vocabulary() -> lg.Vocabulary:
    """A token for every byte, and one end token: what a document is, without tokenization."""
    return lg.Vocabulary([bytes([b]) for b in range(256)] + [b"</s>"], special=[256], end=[256])


@pytest.fixture(scope="session")
def awkward_vocabulary() -> lg.Vocabulary:
    tokens = [*awkward_tokens(), b"<s>", b"</s>", b"<end>"]
    n = len(tokens)
    return lg.Vocabulary(tokens, special=[n - 3], end=[n - 2, n - 1])
