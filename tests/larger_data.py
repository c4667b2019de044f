"""Where the test data that is not in the repository is looked for, and the real models; see CONTRIBUTING.md.

The root's conftest.py loads this, and sets LLAMAY_TEST_DATA by it, so that every test finds the folder there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
REAL_MODELS = {"smollm2": "SmolLM2-135M-Instruct.Q4_1.gguf", "gemma3-270m": "gemma-3-270m-q4_k_m.gguf"}
"""File names of the real models, by how tests call them."""


def data_folder() -> Path:
    """Return the folder of the larger test data, which need not be there."""
    return Path(os.environ.get("LLAMAY_TEST_DATA") or ROOT.parent / "shared" / "data").resolve()


def model_folders() -> Iterator[Path]:
    """Yield the folders in which a real model may lie; those that LLAMAY_TEST_MODELS names come first."""
    yield from (Path(p) for p in os.environ.get("LLAMAY_TEST_MODELS", "").split(os.pathsep) if p)
    yield Path(os.environ.get("LLAMAY_HOME") or Path.home() / ".local" / "share" / "llamay")
    yield ROOT.parent / "models"
