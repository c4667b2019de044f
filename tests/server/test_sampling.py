"""llama.cpp's sampling fields through every dialect, over the real engine."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

pytest.importorskip("llamay_models")
DATA = Path(os.environ["LLAMAY_TEST_DATA"])
STORIES = DATA / "models" / "stories260K.gguf"
pytestmark = pytest.mark.skipif(not STORIES.is_file(), reason=f"{STORIES} is not there")
PROMPT = "Once upon a time, there was a little girl named Lily."
FIELDS = [
    {"typical_p": 0.5, "top_k": 0},
    {"top_n_sigma": 0.8},
    {"xtc_probability": 1.0, "xtc_threshold": 0.05},
    {"dry_multiplier": 5.0, "dry_allowed_length": 0, "dry_sequence_breakers": ["."]},
    {"dynatemp_range": 1.0, "temperature": 1.5},
    {"mirostat": 1, "mirostat_tau": 2.0},
    {"mirostat": 2, "mirostat_tau": 1.0, "mirostat_eta": 0.5},
    {"samplers": ["top_k"], "top_k": 2},
    {"samplers": "kt", "top_k": 3, "temperature": 2.0},
]


@pytest.fixture(scope="module")
def server():
    from llamay_server_tests.conftest import running

    from llamay_server import Config
    from llamay_server.engine.loading import load

    with running(f"stories={STORIES}", loader=load(Config(threads=2))) as s:
        yield s


def native(server, **body):
    base = {"prompt": PROMPT, "n_predict": 24, "seed": 7}
    r = server.client.post("/completion", json=base | body)
    assert r.status_code == 200, r.text
    return r.json()


@pytest.mark.parametrize("fields", FIELDS, ids=str)
def test_each_field_changes_the_text_and_gives_the_same_one_again(server, fields):
    text = native(server, **fields)["content"]
    assert native(server, **fields)["content"] == text
    assert text != native(server)["content"]
    body = {"prompt": PROMPT, "max_tokens": 24, "seed": 7} | fields
    assert server.client.post("/v1/completions", json=body).json()["choices"][0]["text"] == text


def test_ollamas_options_reach_the_engine(server):
    options = {"num_predict": 24, "seed": 7, "mirostat": 2, "mirostat_tau": 1.0, "mirostat_eta": 0.5}
    body = {"model": "stories", "prompt": PROMPT, "raw": True, "stream": False, "options": options}
    r = server.client.post("/api/generate", json=body)
    assert r.status_code == 200, r.text
    expected = native(server, temperature=0.8, mirostat=2, mirostat_tau=1.0, mirostat_eta=0.5)
    assert r.json()["response"] == expected["content"]


def test_post_sampling_probabilities_are_of_what_was_left(server):
    out = native(server, top_k=2, n_probs=5, post_sampling_probs=True)["completion_probabilities"]
    assert len(out) == 24
    for entry in out:
        assert len(entry["top_probs"]) <= 2
        assert math.fsum(t["prob"] for t in entry["top_probs"]) == pytest.approx(1.0)
        assert entry["prob"] in [t["prob"] for t in entry["top_probs"]]


def test_stop_strings_end_a_text_wherever_tokens_divide_them(server):
    whole = native(server, temperature=0, n_predict=60)["content"]
    stop = whole[17:31]
    out = native(server, temperature=0, n_predict=60, stop=[stop])
    assert out["content"] == whole[: whole.index(stop)]
    assert (out["stop_type"], out["stopping_word"]) == ("word", stop)


def test_a_wrong_field_is_a_400_that_names_it(server):
    for fields, name in [
        ({"mirostat": 4}, "mirostat"),
        ({"samplers": ["x"]}, "samplers"),
        ({"dry_base": 0}, "dry_base"),
    ]:
        r = server.client.post("/v1/completions", json={"prompt": PROMPT} | fields)
        assert r.status_code == 400
        assert name in r.json()["error"]["message"]
