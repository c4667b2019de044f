"""The committed stub of the native module is the one that nanobind writes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

STUB = Path(__file__).resolve().parents[2] / "src" / "llamay_models" / "_native.pyi"


def test_the_committed_stub_matches_the_module(tmp_path: Path) -> None:
    pytest.importorskip("nanobind")
    out = tmp_path / "_native.pyi"
    subprocess.run(
        [sys.executable, "-m", "nanobind.stubgen", "-q", "-m", "llamay_models._native", "-o", str(out)],
        check=True,
    )
    assert out.read_text() == STUB.read_text(), (
        f"write it anew: {sys.executable} -m nanobind.stubgen -m llamay_models._native -o {STUB}"
    )
