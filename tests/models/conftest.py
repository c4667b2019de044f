"""Real models and the figures that llama.cpp gives for them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import llamay

from ..larger_data import REAL_MODELS


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
        name = Path(REAL_MODELS[self.key]).stem
        ids: list[int] = json.loads((self.folder.parent / "tokens" / f"tok_{name}.json").read_text())
        return ids

    def logits(self, which: str) -> np.ndarray:
        return np.load(self.folder / self.figures["logits64"][which])


@pytest.fixture(scope="session")
def figures(shared_data: Path) -> Callable[[str], Figures]:
    folder = shared_data / "reference"
    if not folder.is_dir():
        pytest.skip(f"no reference figures at {folder}")
    models = json.loads((folder / "reference.json").read_text())["models"]
    return lambda key: Figures(key, models[key], folder)


@pytest.fixture(scope="module", params=REAL_MODELS)
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
