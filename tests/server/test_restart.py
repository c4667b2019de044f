"""Killed in the middle of its work and started again: what was saved is there, and nothing else is wrong."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

DATA = Path(os.environ["LLAMAY_TEST_DATA"])
STORIES = DATA / "models" / "stories260K.gguf"
pytestmark = pytest.mark.skipif(not STORIES.is_file(), reason=f"{STORIES} is not there")
PROMPT = "Once upon a time, there was a little girl named Lily. She liked to play in the park. " * 8


@contextlib.contextmanager
def serving(folder: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], httpx.Client]]:
    key = folder / "key"
    if not key.exists():
        key.write_bytes(os.urandom(32))
        key.chmod(0o600)
    settings = ["--port", "0", "--prefix-cache-dir", str(folder / "prefixes"), "--ctx-key", str(key)]
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "llamay_server",
            f"stories={STORIES}",
            *settings,
            "--prefix-cache-free",
            "0",
            *options,
        ],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        address = next(m[0] for line in process.stderr if (m := re.search(r"http://127\.0\.0\.1:\d+", line)))
        with httpx.Client(base_url=address, timeout=60) as client:
            yield process, client
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def complete(client: httpx.Client) -> tuple[str, int]:
    body = {"prompt": PROMPT, "max_tokens": 24, "temperature": 0}
    answer = client.post("/v1/completions", json=body).json()
    return answer["choices"][0]["text"], answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_killed_under_load_and_restarted_saved_prefixes_are_hits_and_saved_contexts_restore(
    tmp_path: Path,
) -> None:
    with serving(tmp_path) as (process, client):
        text, cached = complete(client)
        assert cached == 0
        assert complete(client) == (text, pytest.approx(200, abs=100))
        context = client.post("/v1/contexts", json={"prompt": PROMPT}).json()
        saved = client.get(f"/v1/contexts/{context['id']}/snapshot").content
        deadline = time.monotonic() + 30
        while not any((tmp_path / "prefixes").glob("*.kvc")):
            assert time.monotonic() < deadline, "nothing was written"
            time.sleep(0.05)
        time.sleep(0.5)  # the writer's queue is short
        endless = {"prompt": "Once", "max_tokens": 400, "ignore_eos": True, "stream": True}
        with client.stream("POST", "/v1/completions", json=endless) as stream:
            next(stream.iter_raw())
            process.send_signal(signal.SIGKILL)
            process.wait()
    assert PROMPT[:40].encode() not in saved  # encrypted

    with serving(tmp_path) as (_, client):
        again, cached = complete(client)
        assert again == text
        assert cached >= 128
        back = client.post("/v1/contexts/restore", content=saved)
        assert back.status_code == 201, back.text
        assert back.json()["tokens"] == context["tokens"]
        going = {"max_tokens": 24, "temperature": 0}
        assert (
            client.post(f"/v1/contexts/{back.json()['id']}/generate", json=going).json()["choices"][0]["text"]
            == text
        )
    (tmp_path / "key").write_bytes(os.urandom(32))
    with serving(tmp_path) as (_, client):
        assert client.post("/v1/contexts/restore", content=saved).status_code == 400
        assert complete(client) == (text, 0)
