"""PL: pulling from a registry that speaks as Ollama's does."""

import hashlib
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from llamay_cli.errors import CliError, IntegrityError, NotFoundError, RefusedError
from llamay_cli.models import resolve
from llamay_cli.models.server_store import ServerStore
from llamay_cli.pull import Ollama, Options, ollama_source, parse, pull_model
from llamay_cli.store import Entry, Store
from llamay_server import StoreError

LAYER = "application/vnd.ollama.image."


class Registry:
    """A registry with models; `layers` of the last one may be changed."""

    def __init__(self, web: Any, serve_ranges: Any) -> None:
        self.web, self.serve_ranges = web, serve_ranges

    def add(self, name: str = "library/tiny", tag: str = "latest", **contents: Any) -> list[dict[str, Any]]:
        layers = []
        for kind, content in contents.items():
            data = content if isinstance(content, bytes) else content.encode()
            digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
            layers.append({"mediaType": LAYER + kind, "digest": digest, "size": len(data)})
            self.web.routes[f"/v2/{name}/blobs/{digest}"] = self.serve_ranges(data)
        self.manifest(name, tag, {"schemaVersion": 2, "layers": layers})
        return layers

    def manifest(self, name: str, tag: str, value: Any) -> None:
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.web.routes[f"/v2/{name}/manifests/{tag}"] = data

    def asked(self, part: str) -> list[tuple[str, dict[str, str]]]:
        return [request for request in self.web.requests if part in request[0]]


@pytest.fixture
def registry(web: Any, serve_ranges: Any, monkeypatch: pytest.MonkeyPatch) -> Registry:
    monkeypatch.setenv("LLAMAY_OLLAMA_REGISTRY", web.url)
    return Registry(web, serve_ranges)


def fetch(store: Store, text: str = "ollama:tiny", **options: Any) -> Entry:
    source = parse(text)
    assert source is not None
    return pull_model(source, store, Options(**options))


@pytest.mark.parametrize(
    ("name", "parts", "shown"),
    [
        ("tiny", ("registry.ollama.ai", "library", "tiny", "latest"), "tiny"),
        ("tiny:1b", ("registry.ollama.ai", "library", "tiny", "1b"), "tiny:1b"),
        ("ann/tiny", ("registry.ollama.ai", "ann", "tiny", "latest"), "ann/tiny"),
        ("localhost:5000/ann/tiny:q4", ("localhost:5000", "ann", "tiny", "q4"), "localhost-5000/ann/tiny:q4"),
    ],
)
def test_ol07_names_have_ollamas_defaults(name: str, parts: tuple[str, ...], shown: str) -> None:
    source = ollama_source(name)
    assert source == Ollama(*parts) == parse(f"ollama:{name}")
    assert source is not None
    assert source.default_name() == shown
    assert ollama_source(str(source).removeprefix("ollama:")) == source


def test_pl01_the_weights_and_what_comes_with_them_arrive(
    registry: Registry, store: Store, gguf: Any, llamay: Any
) -> None:
    registry.add(
        model=gguf(),
        template="{{ .Prompt }}",
        system="Be brief.",
        params='{"temperature": 0.5, "stop": ["<e>"], "odd": [1]}',
        license="MIT",
        other="ignored",
    )

    result = llamay("pull", "ollama:tiny")

    assert result.exit_code == 0, result.stderr
    assert resolve("tiny").path.read_bytes() == gguf()
    own = resolve("tiny").settings()
    assert (own["system"], own["license"], own["template"]) == ("Be brief.", ["MIT"], "{{ .Prompt }}")
    profile = ServerStore(store).profile("tiny:latest")
    assert profile is not None
    assert profile.parameters == {"temperature": 0.5, "stop": ["<e>"]}
    (manifest,) = registry.asked("/manifests/")
    assert manifest[1]["accept"] == "application/vnd.docker.distribution.manifest.v2+json"
    assert registry.asked("other") == []
    assert resolve("ollama:tiny").entry == resolve("tiny").entry
    with pytest.raises(NotFoundError, match="pull model manifest: file does not exist"):
        fetch(store, "ollama:tiny:none")


def test_pl02_a_blob_may_be_elsewhere(registry: Registry, store: Store, gguf: Any, respond: Any) -> None:
    (layer,) = registry.add(model=gguf())
    path = f"/v2/library/tiny/blobs/{layer['digest']}"
    elsewhere = registry.web.url.replace("127.0.0.1", "localhost") + "/moved"
    registry.web.routes["/moved"] = registry.web.routes[path]
    registry.web.routes[path] = lambda handler: respond(handler, b"", status=307, location=elsewhere)
    fetch(store)
    ((_, headers),) = registry.asked("/moved")
    assert "authorization" not in headers
    registry.web.routes["/moved"] = lambda handler: respond(handler, b"", status=307, location="/moved")
    with pytest.raises(CliError):
        pull_model(Ollama("registry.ollama.ai", "library", "tiny", "latest"), store, Options(name="again"))


def test_pl03_ol21_status_lines_are_ollamas(registry: Registry, store: Store, gguf: Any) -> None:
    layer, _ = registry.add(model=gguf(3 << 20), system="x")
    lines: list[Any] = []

    ServerStore(store).pull("tiny", insecure=False, status=lines.append)

    assert lines[0] == {"status": "pulling manifest"}
    assert [line["status"] for line in lines[-3:]] == [
        "verifying sha256 digest",
        "writing manifest",
        "success",
    ]
    parts = lines[1:-3]
    assert {line["status"] for line in parts} == {f"pulling {layer['digest'][7:19]}"}
    assert {line["digest"] for line in parts} == {layer["digest"]}
    assert {line["total"] for line in parts} == {3 << 20}
    counts = [line["completed"] for line in parts]
    assert counts == sorted(counts)
    assert counts[-1] == 3 << 20
    before = len(registry.web.requests)
    ServerStore(store).pull("tiny:latest", insecure=False, status=lines.append)
    assert len(registry.web.requests) == before  # what is here is left alone


def test_pl04_a_killed_pull_goes_on_where_it_was(
    registry: Registry, store: Store, gguf: Any, serve_ranges: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from llamay_cli.pull import download

    data = gguf(1 << 20)
    (layer,) = registry.add(model=data)
    registry.web.routes[f"/v2/library/tiny/blobs/{layer['digest']}"] = serve_ranges(data, cut=400_000, cuts=1)
    monkeypatch.setattr(download, "ATTEMPTS", 0)
    with pytest.raises(CliError):
        fetch(store)
    assert store.names() == []
    monkeypatch.undo()
    monkeypatch.setenv("LLAMAY_OLLAMA_REGISTRY", registry.web.url)
    fetch(store)
    assert registry.asked("/blobs/")[-1][1]["range"] == "bytes=400000-"


def test_pl05_wrong_bytes_are_not_kept_and_the_old_model_stays(
    registry: Registry, store: Store, gguf: Any
) -> None:
    registry.add(model=gguf(seed=1))
    old = fetch(store)
    (layer,) = registry.add(model=gguf(seed=2))
    registry.web.routes[f"/v2/library/tiny/blobs/{layer['digest']}"] = gguf(seed=3)
    with pytest.raises(IntegrityError, match="SHA-256"):
        fetch(store)
    assert store.get("tiny") == old
    assert len(list(store.blobs.iterdir())) == 1
    registry.add(model=gguf(seed=4), system="good")
    registry.web.routes["/v2/library/tiny/blobs/sha256:" + hashlib.sha256(b"good").hexdigest()] = b"evil"
    with pytest.raises(IntegrityError, match="SHA-256"):
        fetch(store)
    assert store.get("tiny") == old


def test_pl06_a_refusal_is_final_and_no_realm_is_followed(
    registry: Registry, store: Store, gguf: Any, respond: Any
) -> None:
    registry.web.routes["/v2/library/tiny/manifests/latest"] = lambda handler: respond(
        handler, b"", status=401, www_authenticate=f'Bearer realm="{registry.web.url}/steal"'
    )
    with pytest.raises(RefusedError):
        fetch(store)
    assert registry.asked("/steal") == []


@pytest.mark.parametrize(
    "change",
    [
        {"digest": "sha256:../../../etc/passwd"},
        {"digest": "sha256:" + "A" * 64},
        {"digest": "sha256:" + "a" * 63},
        {"digest": "sha256:" + "a" * 63 + "\0"},
        {"digest": "md5:" + "a" * 64},
        {"digest": None},
        {"digest": "/etc/passwd"},
        {"size": -1},
        {"size": 2**63},
        {"size": True},
        {"size": "5"},
    ],
)
def test_j18_pl07_pl09_what_a_manifest_says_is_believed_only_in_its_form(
    registry: Registry, store: Store, gguf: Any, change: dict[str, Any]
) -> None:
    layers = registry.add(model=gguf(), system="x")
    layers[1] |= change
    registry.manifest("library/tiny", "latest", {"layers": layers})
    with pytest.raises(IntegrityError):
        fetch(store)
    assert registry.asked("/blobs/") == []
    assert store.names() == []


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b'{"layers": []}',
        b'{"layers": {}}',
        b'{"layers": [1]}',
        b"[" * 100_000,
        b" " * (2 << 20),
        json.dumps(
            {"layers": [{"mediaType": "x", "digest": "sha256:" + "a" * 64, "size": 1}] * 10_000}
        ).encode(),
    ],
)
def test_j18_pl09_a_manifest_that_is_none_or_endless_is_refused(
    registry: Registry, store: Store, body: bytes
) -> None:
    registry.manifest("library/tiny", "latest", body)
    with pytest.raises(IntegrityError):
        fetch(store)


def test_pl09_a_text_beyond_its_measure_and_an_adapter_are_refused(
    registry: Registry, store: Store, gguf: Any
) -> None:
    registry.add(model=gguf(), license="x" * (600 << 10))
    with pytest.raises(IntegrityError, match="at most"):
        fetch(store)
    registry.add(model=gguf(), adapter=b"GGUF")
    with pytest.raises(CliError, match="adapter"):
        fetch(store)
    registry.add(model=gguf(), params="[1]")
    with pytest.raises(IntegrityError, match="damaged"):
        fetch(store)
    assert store.names() == []


def test_pl10_a_full_disk_is_noticed_before_anything_is_fetched(
    registry: Registry, store: Store, gguf: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.add(model=gguf())
    monkeypatch.setattr(Store, "free_space", lambda self: 1000)
    with pytest.raises(CliError, match="free"):
        fetch(store)
    assert registry.asked("/blobs/") == []


def test_pl11_plain_http_elsewhere_needs_a_word(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMAY_OLLAMA_REGISTRY", "http://registry.invalid")
    with pytest.raises(RefusedError, match="plain http"):
        fetch(store)


def test_a_path_on_the_servers_disk_is_no_clients_to_read(
    registry: Registry, store: Store, tmp_path: Path
) -> None:
    (tmp_path / "x.gguf").write_bytes(b"GGUF")
    for name in (str(tmp_path / "x.gguf"), "file:///x.gguf", "../x.gguf", "a b", "x" * 5000):
        with pytest.raises(StoreError):
            ServerStore(store).pull(name, insecure=False, status=lambda line: None)


def test_pl08_two_that_pull_the_same_share_the_bytes(registry: Registry, store: Store, gguf: Any) -> None:
    registry.add(model=gguf(1 << 20))
    entries: list[Entry] = []
    threads = [threading.Thread(target=lambda: entries.append(fetch(store))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(entries) == 3
    assert len(list(store.blobs.iterdir())) == 1
