"""LoRA adapters over HTTP. Each request's scales hold for it alone, and nothing computed is mixed up."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

gguf = pytest.importorskip("llamay_models").gguf
DATA = Path(os.environ["LLAMAY_TEST_DATA"])
STORIES = DATA / "models" / "stories260K.gguf"
pytestmark = pytest.mark.skipif(not STORIES.is_file(), reason=f"{STORIES} is not there")
PROMPT = "Once upon a time, there was a little girl named Lily. She loved to play outside in the park with her dog."


def write_adapter(path: Path, seed: int) -> Path:
    rng = np.random.default_rng(seed)
    tensors = []
    for layer in range(5):
        for half, shape in (("a", (4, 64)), ("b", (64, 4))):
            values = rng.normal(size=shape).astype(np.float32) / 4
            name = f"blk.{layer}.attn_q.weight.lora_{half}"
            tensors.append(gguf.TensorData(name, "F32", shape, values.tobytes()))
    keys = {"general.architecture": "llama", "general.type": "adapter", "adapter.type": "lora"}
    gguf.write(path, {**keys, "adapter.lora.alpha": np.float32(8)}, tensors)
    return path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("adapters")
    return [write_adapter(folder / f"{name}.gguf", seed) for seed, name in enumerate(("one", "two"))]


@pytest.fixture
def server(files: list[Path]) -> Iterator[Any]:
    from llamay_server_tests.conftest import running

    from llamay_server import Config
    from llamay_server.engine.loading import load

    lora = (str(files[0]), f"stories={files[1]}:0")
    config = Config(threads=2, lora=lora)
    with running(f"stories={STORIES}", loader=load(config), lora=lora) as s:
        yield s


def expected(files: list[Path], scales: tuple[float, float]) -> str:
    import llamay_models

    adapters = list(zip(files, scales, strict=True))
    with llamay_models.load(STORIES, threads=1, adapters=adapters) as model:
        context = model.context(PROMPT)
        return context.generate(llamay_models.Sampling(temperature=0), max_tokens=24).text


def ask(server: Any, *scales: float, **more: Any) -> dict[str, Any]:
    body = {"prompt": PROMPT, "max_tokens": 24, "temperature": 0} | more
    if scales:
        body["lora"] = [{"id": i, "scale": scale} for i, scale in enumerate(scales)]
    r = httpx.post(f"{server.url}/v1/completions", json=body, timeout=60)
    assert r.status_code == 200, r.text
    return r.json()


def text(server: Any, *scales: float, **more: Any) -> str:
    said: str = ask(server, *scales, **more)["choices"][0]["text"]
    return said


def test_lc10_a_request_gets_the_scales_that_it_asks_for_and_no_others(
    server: Any, files: list[Path]
) -> None:
    ways = [(1.0, 0.0), (0.0, 1.0), (0.5, 0.5), (0.0, 0.0), (2.0, -1.0)]
    wanted = {way: expected(files, way) for way in ways}
    assert len(set(wanted.values())) == len(ways)

    assert text(server) == wanted[1.0, 0.0]  # as it was started
    got: dict[tuple[float, float], list[str]] = {way: [] for way in ways}
    threads = [
        threading.Thread(target=lambda way=way: got[way].append(text(server, *way)))
        for way in ways
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == {way: [wanted[way]] * 3 for way in ways}
    assert text(server, 1.0) == wanted[1.0, 0.0]  # those that are left out count as 0
    assert text(server, lora=[]) == wanted[0.0, 0.0]


def test_lc10_prefixes_are_not_mixed_between_scales(server: Any) -> None:
    first = ask(server, 0.25, 0.0)
    other = ask(server, 0.75, 0.0)
    again = ask(server, 0.25, 0.0)

    assert first["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert other["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
    assert again["choices"] == first["choices"]


def test_lc10_scales_are_listed_and_set_for_requests_that_say_none(server: Any, files: list[Path]) -> None:
    state = [{"id": 0, "path": "one.gguf", "scale": 1.0}, {"id": 1, "path": "two.gguf", "scale": 0.0}]
    assert server.client.get("/lora-adapters").json() == state

    r = server.client.post("/lora-adapters", json=[{"id": 1, "scale": 0.5}])

    state[0]["scale"], state[1]["scale"] = 0.0, 0.5
    assert r.json() == state
    assert server.client.get("/lora-adapters").json() == state
    assert text(server) == expected(files, (0.0, 0.5))
    chat = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 4}
    assert server.client.post("/v1/chat/completions", json=chat).status_code in (200, 400)  # no template here
    assert text(server, 1.0, 0.0) == expected(files, (1.0, 0.0))


@pytest.mark.parametrize(
    ("lora", "where"),
    [
        ([{"id": 2, "scale": 1}], "lora[0].id"),
        ([{"id": -1, "scale": 1}], "lora[0].id"),
        ([{"id": 0, "scale": "x"}], "lora[0].scale"),
        ([{"id": 0, "scale": 1e308}], "lora[0].scale"),
        ([{"id": 0}], "lora[0]"),
        ({"id": 0}, "lora"),
    ],
)
def test_lc10_j14_adapters_that_are_not_there_and_scales_that_are_no_numbers_are_refused(
    server: Any, lora: Any, where: str
) -> None:
    r = server.client.post("/v1/completions", json={"prompt": "x", "max_tokens": 1, "lora": lora})

    assert r.status_code == 400
    assert where in r.json()["error"]["message"]


def test_lc10_a_context_goes_on_with_the_adapters_that_it_was_made_with(
    server: Any, files: list[Path]
) -> None:
    made = server.client.post("/v1/contexts", json={"prompt": PROMPT}).json()
    server.client.post("/lora-adapters", json=[{"id": 1, "scale": 1.0}])
    body = {"max_tokens": 24, "temperature": 0}

    r = server.client.post(f"/v1/contexts/{made['id']}/generate", json=body)

    assert r.status_code == 200, r.text
    assert expected(files, (1.0, 0.0)) in r.text or r.json()["choices"][0]["text"] == expected(
        files, (1.0, 0.0)
    )


def test_lc10_more_scales_than_fit_take_the_place_of_idle_ones(
    server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from llamay_server.engine import scales

    monkeypatch.setattr(scales, "MOST", 2)
    said = [text(server, i / 8, 0.0) for i in range(2)]
    body = {"prompt": "x", "max_tokens": 1, "lora": [{"id": 0, "scale": 7.0}]}
    assert server.client.post("/v1/completions", json=body).status_code == 503
    monkeypatch.setattr(scales, "_SETTLED", 0.0)

    def steps() -> float:
        lines = server.client.get("/metrics").text.splitlines()
        return float(next(line.split()[-1] for line in lines if line.startswith("llamacpp:n_decode_total")))

    before = steps()
    assert before > 40
    assert server.client.post("/v1/completions", json=body).status_code == 200
    after = steps()
    assert after > before  # what makes room keeps its counts
    assert [text(server, i / 8, 0.0) for i in range(2)] == said
    assert steps() > after + 40  # those of all that made room, not of the last one
