"""Embeddings and ranking over the real engine: every dialect gives the same numbers, alone and beside streams."""

from __future__ import annotations

import base64
import os
import threading
from pathlib import Path

import httpx
import numpy as np
import pytest

llamay_models = pytest.importorskip("llamay_models")
DATA = Path(os.environ["LLAMAY_TEST_DATA"])
STORIES = DATA / "models" / "stories260K.gguf"
pytestmark = pytest.mark.skipif(not STORIES.is_file(), reason=f"{STORIES} is not there")
TEXTS = ["Once upon a time there was a dog.", "Lily saw a big cat.", "x", "The end. " * 20]


@pytest.fixture(scope="module")
def server():
    from llamay_server_tests.conftest import running

    from llamay_server import Config
    from llamay_server.engine.loading import load

    with running(f"stories={STORIES}", loader=load(Config(threads=2))) as s:
        yield s


@pytest.fixture(scope="module")
def expected():
    with llamay_models.load(STORIES, threads=1) as model:
        yield model.embed(TEXTS)


def base64_embeddings(client):
    r = client.post("/v1/embeddings", json={"input": TEXTS, "encoding_format": "base64"})
    assert r.status_code == 200, r.text
    return np.array([np.frombuffer(base64.b64decode(d["embedding"]), "<f4") for d in r.json()["data"]])


def test_every_dialect_gives_the_engines_embeddings_to_the_last_bit(server, expected):
    assert np.array_equal(base64_embeddings(server.client), expected)
    floats = server.client.post("/v1/embeddings", json={"input": TEXTS}).json()
    assert np.array_equal(np.float32([d["embedding"] for d in floats["data"]]), expected)
    ollama = server.client.post("/api/embed", json={"model": "stories", "input": TEXTS}).json()
    assert np.array_equal(np.float32(ollama["embeddings"]), expected)
    tei = server.client.post("/embed", json={"inputs": TEXTS}).json()
    assert np.array_equal(np.float32(tei), expected)


def test_oa54_many_clients_and_a_stream_do_not_show(server, expected):
    text = {"prompt": "Once", "max_tokens": 60, "seed": 3}
    alone = server.client.post("/v1/completions", json=text).json()["choices"][0]["text"]
    out = []

    def one(i):
        with httpx.Client(base_url=server.url, timeout=60) as client:
            if i % 3 == 0:
                choice = client.post("/v1/completions", json=text).json()["choices"][0]
                out.append(choice["text"] == alone)
            else:
                out.append(np.array_equal(base64_embeddings(client), expected))

    threads = [threading.Thread(target=one, args=(i,)) for i in range(9)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert out == [True] * 9


def test_ranking_is_the_cosine_of_the_embeddings(server, expected):
    body = {"query": TEXTS[0], "documents": TEXTS}
    results = server.client.post("/v1/rerank", json=body).json()["results"]
    scores = {r["index"]: r["relevance_score"] for r in results}
    assert [scores[i] for i in range(4)] == pytest.approx((expected @ expected[0]).tolist(), abs=1e-6)
    assert results[0]["index"] == 0


def test_echo_with_logprobs_tells_what_the_engine_scores(server):
    with llamay_models.load(STORIES, threads=1) as model:
        score = model.score(model.encode(TEXTS[0]), top=2)
    body = {"prompt": TEXTS[0], "max_tokens": 0, "echo": True, "logprobs": 2}
    out = server.client.post("/v1/completions", json=body).json()["choices"][0]["logprobs"]
    assert out["token_logprobs"][0] is None
    assert out["token_logprobs"][1:] == pytest.approx(score.logprobs[1:].tolist(), abs=1e-9)
    assert len(out["tokens"]) == len(score.tokens)
