"""Pooled embeddings are llama.cpp's, where its wheel is installed (`pip install xllamacpp`)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest

import llamay

sys.path.insert(0, str(Path(__file__).parent))
from llamacpp_peer import ask

DATA = Path(os.environ["LLAMAY_TEST_DATA"])
pytestmark = pytest.mark.model
TEXTS = [
    "Once upon a time, there was a little girl named Lily.",
    "Tom saw a big dog. The dog was sad because it lost its ball, so Tom helped it look for the ball.",
    "x",
]
POOLING = {"mean": 1, "cls": 2, "last": 3}
PEER = """
import json, sys
import xllamacpp
path, pooling, texts = json.loads(sys.argv[1])
p = xllamacpp.CommonParams()
p.model.path, p.embedding, p.pooling_type = path, True, xllamacpp.llama_pooling_type(pooling)
p.n_ctx = p.n_batch = p.n_ubatch = 512
p.n_parallel, p.cpuparams.n_threads = 1, 1
data = xllamacpp.Server(p).handle_embeddings({"input": texts, "encoding_format": "float"})["data"]
print(json.dumps([d["embedding"] for d in sorted(data, key=lambda d: d["index"])]))
"""


def peer(path: Path, pooling: str) -> np.ndarray:
    return np.array(ask(PEER, [str(path), POOLING[pooling], TEXTS])[-1])


@pytest.mark.parametrize("pooling", POOLING)
def test_embeddings_of_an_f32_model_are_llama_cpps(pooling: str) -> None:
    path = DATA / "models" / "stories260K.gguf"
    if not path.is_file():
        pytest.skip("no test data: set LLAMAY_TEST_DATA to the folder that holds models/")
    with llamay.load(path, kv="f32") as model:
        ours = model.embed(TEXTS, pooling)
    np.testing.assert_allclose(ours, peer(path, pooling), atol=2e-3)


@pytest.mark.slow
@pytest.mark.parametrize("pooling", POOLING)
def test_embeddings_of_quantized_models_point_the_same_way(key: str, model, model_file, pooling: str) -> None:
    ours, theirs = model.embed(TEXTS, pooling), peer(model_file(key), pooling)
    cosines = (ours * theirs).sum(1)
    print(f"{key}, {pooling}: cosines {cosines}")
    assert cosines.min() > 0.995
