"""Real models and the figures that llama.cpp gives for them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import llamay

ROOT = Path(__file__).parents[2]
FILES = {"smollm2": "SmolLM2-135M-Instruct.Q4_1.gguf", "gemma3-270m": "gemma-3-270m-q4_k_m.gguf"}


def _folders() -> Iterator[Path]:
    if named := os.environ.get("LLAMAY_TEST_MODELS"):
        yield from (Path(p) for p in named.split(os.pathsep))
    home = Path(os.environ.get("LLAMAY_HOME") or Path.home() / ".local" / "share" / "llamay")
    yield home
    yield ROOT.parent / "models"


@pytest.fixture(scope="session")
def model_file() -> Callable[[str], Path]:
    """`model_file("smollm2")`: where the file is; tests are skipped where it is not."""

    def find(key: str) -> Path:
        for folder in _folders():
            if folder.is_dir() and (found := next(folder.rglob(FILES[key]), None)):
                return found
        pytest.skip(f"{FILES[key]} is not here: set LLAMAY_TEST_MODELS to the folder that holds it")

    return find


@dataclass
class Figures:
    """What llama.cpp computed with one model, and the text it was computed of."""

    key: str
    figures: dict[str, Any]
    folder: Path

    def __getitem__(self, name: str) -> Any:
        return self.figures[name]

    @property
    def text(self) -> str:
        return (self.folder / "opticks_8k.txt").read_text()

    @property
    def text_ids(self) -> list[int]:
        name = Path(FILES[self.key]).stem
        ids: list[int] = json.loads((self.folder.parent / "tokens" / f"tok_{name}.json").read_text())
        return ids

    def logits(self, which: str) -> np.ndarray:
        return np.load(self.folder / self.figures["logits64"][which])


@pytest.fixture(scope="session")
def figures() -> Callable[[str], Figures]:
    named = os.environ.get("LLAMAY_TEST_DATA")
    folder = (Path(named) if named else ROOT.parent / "shared" / "data") / "reference"
    if not folder.is_dir():
        pytest.skip("no reference figures: set LLAMAY_TEST_DATA to the folder that holds reference/")
    models = json.loads((folder / "reference.json").read_text())["models"]
    return lambda key: Figures(key, models[key], folder)


@pytest.fixture(scope="module", params=FILES)
def key(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def model(key: str, model_file: Callable[[str], Path]) -> Iterator[llamay.Model]:
    # Nothing is remembered, so that each way of computing something really computes it.
    with llamay.load(model_file(key), prefix_cache=0) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def exact(key: str, model_file: Callable[[str], Path]) -> Iterator[llamay.Model]:
    """The same with its weights dequantized to F32, and F32 K/V."""
    with llamay.load(model_file(key), kv="f32", dequantized=True, prefix_cache=0) as loaded:
        yield loaded
