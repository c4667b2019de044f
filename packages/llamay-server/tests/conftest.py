from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from llamay_server import Application, Config, create_app
from llamay_server.app.serving import Server, make_server

sys.path.insert(0, str(Path(__file__).parent))

from fake_engine import FakeModel


@dataclass
class Running:
    """A server on a real socket."""

    url: str
    model: FakeModel
    app: Application
    server: Server
    client: httpx.Client

    def wait(self, condition: Callable[[], bool], seconds: float = 30.0) -> float:
        """Wait for a condition; returns how long it took. Only on a busy machine that is near the limit."""
        began = time.monotonic()
        while not condition():
            assert time.monotonic() - began < seconds, "it did not come true in time"
            time.sleep(0.002)
        return time.monotonic() - began

    def metric(self, name: str, **labels: str) -> float:
        """A metric's value as scraped, 0 where it was never counted."""
        value = self.app.services.metrics.registry.get_sample_value(name, labels or None)
        return value or 0.0


def no_loader(path: Path, **_: Any) -> Any:
    raise AssertionError("no model is loaded from a file in these tests")


@contextlib.contextmanager
def running(*models: Any, loader: Any = no_loader, **settings: Any) -> Iterator[Running]:
    """Serve on a free port until the block ends."""
    items = list(models) or [FakeModel()]
    app = create_app(items, config=Config(**{"port": 0} | settings), loader=loader)
    server = make_server(app)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        time.sleep(0.002)
    url = "http://localhost" if settings.get("uds") else server.url()
    transport = httpx.HTTPTransport(uds=settings["uds"]) if settings.get("uds") else None
    with httpx.Client(base_url=url, timeout=20, transport=transport) as client:
        yield Running(url, FakeModel() if isinstance(items[0], str) else items[0], app, server, client)
    server.should_exit = True
    thread.join(10)
    assert not thread.is_alive(), "the server did not stop"


@pytest.fixture(scope="module")
def model() -> FakeModel:
    """The model of `shared`."""
    return FakeModel()


@pytest.fixture(scope="module")
def shared(model: FakeModel) -> Iterator[Running]:
    """One server for tests that leave it as it was."""
    with running(model) as server:
        yield server


@pytest.fixture
def start() -> Iterator[Callable[..., Running]]:
    """Start servers of one's own; they end with the test."""
    with contextlib.ExitStack() as stack:
        yield lambda *models, **settings: stack.enter_context(running(*models, **settings))
