"""Real models, and schemas of many kinds for them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FILES = {"smollm2": "SmolLM2-135M-Instruct.Q4_1.gguf", "gemma3-270m": "gemma-3-270m-q4_k_m.gguf"}


@pytest.fixture(scope="session")
def model_file() -> Callable[[str], Path]:
    """`model_file("smollm2")`: where the file is; tests are skipped where it is not."""
    named = os.environ.get("LLAMAY_TEST_MODELS", "")
    home = Path(os.environ.get("LLAMAY_HOME") or Path.home() / ".local" / "share" / "llamay")
    folders = [*(Path(p) for p in named.split(os.pathsep) if p), home, ROOT.parent / "models"]

    def find(key: str) -> Path:
        for folder in folders:
            if folder.is_dir() and (found := next(folder.rglob(FILES[key]), None)):
                return found
        pytest.skip(f"{FILES[key]} is not here: set LLAMAY_TEST_MODELS to the folder that holds it")

    return find


@pytest.fixture(scope="session")
def schemas() -> dict[str, Any]:
    """Fifty schemas by what they describe."""
    found: dict[str, Any] = json.loads((Path(__file__).parent / "schemas.json").read_text("utf-8"))
    return found
