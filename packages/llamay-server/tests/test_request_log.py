"""Each request is one line of the log: its outcome, its tokens and its times, and nothing that a client said."""

from __future__ import annotations

import json
import logging
import re
import threading
import time

import httpx
import pytest
from fake_engine import FakeModel

from llamay_server.observability.logs import configure

CHAT = {"messages": [{"role": "user", "content": "a secret"}], "max_tokens": 5}


@pytest.fixture
def lines(caplog):
    """The messages of requests, once there are so many."""
    caplog.set_level(logging.DEBUG, "llamay.server")

    def wait(n):
        until = time.monotonic() + 20
        while time.monotonic() < until:
            found = [r for r in caplog.records if hasattr(r, "fields")]
            if len(found) >= n:
                return found
            time.sleep(0.005)
        raise AssertionError(f"{len(found)} lines, not {n}")

    return wait


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_is_a_line_with_its_tokens_and_times(start, lines, stream):
    server = start(FakeModel(script=lambda _: "hello"))
    headers = {"x-request-id": "mine"}
    server.client.post("/v1/chat/completions", json=CHAT | {"stream": stream}, headers=headers).read()
    (record,) = lines(1)
    line = record.getMessage()
    assert re.fullmatch(
        r"POST /v1/chat/completions 200 model=fake tokens_in=\d+ tokens_cached=\d+ tokens_out=\d+ "
        r"seconds_to_first_token=\d+\.?\d* seconds=\d+\.?\d* request_id=mine",
        line,
    ), line
    assert record.levelno == logging.INFO
    assert record.fields["tokens_out"] >= 5
    assert record.fields["seconds_to_first_token"] <= record.fields["seconds"]
    assert "secret" not in line


def test_refusals_failures_and_probes(start, lines):
    server = start(FakeModel(), api_keys=("ann:key",))
    server.client.get("/health")
    server.client.post("/v1/chat/completions", json=CHAT)
    server.client.post("/v1/chat/completions", json={"messages": 5}, headers={"authorization": "Bearer key"})
    health, unauthorised, wrong = lines(3)
    assert (health.levelno, health.fields["status"]) == (logging.DEBUG, 200)
    assert (unauthorised.levelno, unauthorised.fields["status"]) == (logging.INFO, 401)
    assert "owner" not in unauthorised.fields
    assert wrong.fields["status"] == 400
    assert wrong.fields["owner"]
    assert "tokens_in" not in wrong.fields


def test_the_path_is_that_of_the_route(start, lines):
    server = start(FakeModel())
    for path in ("/v1/contexts/ctx_secret", "/v1/secret", "/v1/models"):
        server.client.get(path)
    assert [r.fields["path"] for r in lines(3)] == [
        "/v1/contexts/{context_id}",
        "(no route)",
        "/v1/models",
    ]


def test_a_client_that_leaves_is_499_with_what_was_spent(start, lines):
    model = FakeModel(script=lambda _: "a" * 10_000)
    model.decode_delay = 0.01
    server = start(model)
    body = {"prompt": "hi", "max_tokens": 5000, "stream": True}
    with httpx.stream("POST", f"{server.url}/v1/completions", json=body, timeout=20) as answer:
        next(answer.iter_bytes())
    (record,) = lines(1)
    assert record.fields["status"] == 200, "the answer had begun"
    assert 0 < record.fields["tokens_out"] < 5000
    model.blocked.set()

    def leave():
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{server.url}/v1/completions", json=body | {"stream": False}, timeout=0.3)

    thread = threading.Thread(target=leave)
    thread.start()
    thread.join(20)
    assert lines(2)[1].fields["status"] == 499


def test_an_object_a_line_has_the_fields_by_name(capsys):
    from llamay_server.config import Config

    names = ("llamay", "uvicorn")
    before = {n: (logging.getLogger(n).handlers, logging.getLogger(n).propagate) for n in names}
    try:
        configure(Config(log_json=True))
        logging.getLogger("llamay.server").info("x", extra={"fields": {"status": 200, "path": "/a\n"}})
    finally:
        for name, (handlers, propagate) in before.items():
            logging.getLogger(name).handlers, logging.getLogger(name).propagate = handlers, propagate
    told = json.loads(capsys.readouterr().err)
    assert (told["status"], told["path"], told["level"]) == (200, "/a\n", "info")
