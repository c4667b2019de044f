"""The process: listening, signals, and what it says when it cannot."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import httpx
import pytest

SCRIPT = """
import sys
sys.path.insert(0, {folder!r})
import fake_engine, llamay_server
model = fake_engine.FakeModel()
model.decode_delay = 0.02
llamay_server.serve([model], **{settings!r})
"""


def launch(tmp_path: Path, **settings) -> tuple[subprocess.Popen, str]:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    settings = {"port": port} | settings
    script = tmp_path / "serve.py"
    script.write_text(textwrap.dedent(SCRIPT).format(folder=str(Path(__file__).parent), settings=settings))
    env = {k: v for k, v in os.environ.items() if not k.startswith(("LLAMAY_", "OLLAMA_"))}
    process = subprocess.Popen([sys.executable, str(script)], stderr=subprocess.PIPE, text=True, env=env)
    url = f"http://127.0.0.1:{settings['port']}"
    for _ in range(500):
        try:
            httpx.get(f"{url}/health")
            return process, url
        except httpx.TransportError:
            if process.poll() is not None:
                break
            time.sleep(0.02)
    raise AssertionError(process.communicate()[1])


BODY = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 40, "ignore_eos": True, "stream": True}


def test_cl13_the_first_signal_drains_and_the_running_stream_ends_whole(tmp_path):
    process, url = launch(tmp_path)
    with httpx.stream("POST", f"{url}/v1/chat/completions", json=BODY, timeout=20) as r:
        parts = r.iter_text()
        text = next(parts)
        process.send_signal(signal.SIGTERM)
        text += "".join(parts)
    assert text.endswith("data: [DONE]\n\n")
    errors = process.communicate(timeout=10)[1]
    assert process.returncode == 0
    assert "serving fake on http://127.0.0.1:" in errors
    assert "draining" in errors
    assert "Traceback" not in errors


def test_cl13_a_second_signal_stops_at_once(tmp_path):
    process, url = launch(tmp_path)
    with httpx.stream(
        "POST", f"{url}/v1/chat/completions", json=BODY | {"max_tokens": 4000}, timeout=20
    ) as r:
        next(r.iter_text())
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=10)
    assert time.monotonic() - began < 4


def test_cl13_a_port_in_use_is_one_clear_error(tmp_path):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        with pytest.raises(AssertionError) as e:
            launch(tmp_path, port=s.getsockname()[1])
    assert "address already in use" in str(e.value).lower()


def test_logs_can_be_json(tmp_path):
    process, _ = launch(tmp_path, log_json=True)
    process.send_signal(signal.SIGTERM)
    lines = process.communicate(timeout=10)[1].splitlines()
    assert all({"time", "level", "message"} <= json.loads(line).keys() for line in lines)
    assert process.returncode == 0


def test_a_socket_that_a_dead_server_left_is_taken_over_and_a_living_one_is_not(tmp_path):
    from llamay_server import Config, create_app
    from llamay_server.app.serving import make_server

    from .conftest import no_loader
    from .fake_engine import FakeModel

    path = tmp_path / "s"
    app = create_app([FakeModel()], config=Config(uds=str(path)), loader=no_loader)
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(path))
        s.listen()
        with pytest.raises(OSError, match="another server"):
            make_server(app)
    make_server(app)
    assert not path.exists()


def test_an_engine_need_not_wait_for_what_is_being_written():
    from .conftest import running

    before = sys.getswitchinterval()
    with running():
        assert sys.getswitchinterval() < 0.001
    assert sys.getswitchinterval() == pytest.approx(before)
