"""Blocking work of some requests does not keep others waiting."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from fake_engine import FakeModel

SCHEMA = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}


def test_slow_compilations_delay_nobody_else(start):
    begun, go = threading.Semaphore(0), threading.Event()

    class Slow(FakeModel):
        def compile(self, wanted):
            if wanted.param.startswith("response_format"):
                begun.release()
                assert go.wait(60)
            return super().compile(wanted)

    server = start(Slow())
    body = {"model": "fake", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
    with ThreadPoolExecutor(40) as clients:
        slow = [
            clients.submit(
                server.client.post, "/v1/chat/completions", json=body | {"response_format": SCHEMA}
            )
            for _ in range(40)
        ]
        for _ in slow:
            assert begun.acquire(timeout=30), "all are compiled at a time"
        try:
            quick = server.client.post(
                "/v1/completions", json={"prompt": "hi", "regex": "a+", "max_tokens": 4}
            )
            assert quick.status_code == 200, quick.text
        finally:
            go.set()
        assert [answer.result().status_code for answer in slow] == [200] * 40
