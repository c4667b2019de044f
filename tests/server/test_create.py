"""Models made over HTTP, kept in the store that `llamay pull` keeps, and served as what they were made."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("llamay_models")
cli = pytest.importorskip("llamay_cli.store")
DATA = Path(os.environ["LLAMAY_TEST_DATA"])
STORIES = DATA / "models" / "stories260K.gguf"
pytestmark = pytest.mark.skipif(not STORIES.is_file(), reason=f"{STORIES} is not there")
DIGEST = f"sha256:{hashlib.sha256(STORIES.read_bytes()).hexdigest()}" if STORIES.is_file() else ""
TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}"


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    import contextlib

    from llamay_server_tests import conftest

    from llamay_cli.models.server_store import ServerStore
    from llamay_server import Config
    from llamay_server.engine.loading import load

    real = conftest.create_app
    store = ServerStore(cli.Store(tmp_path / "store"))
    monkeypatch.setattr(conftest, "create_app", lambda *a, **k: real(*a, **k, store=store))
    with contextlib.ExitStack() as stack:
        yield lambda **more: stack.enter_context(
            conftest.running(f"fixed={STORIES}", loader=load(Config(threads=1)), **more)
        )


def kept(tmp_path: Path) -> list[str]:
    """Every file of the store but its lock."""
    return sorted(p.name for p in (tmp_path / "store").rglob("*") if p.is_file() and p.name != "lock")


def make(server: Any, model: str = "new", **body: Any) -> Any:
    return server.client.post("/api/create", json={"model": model, "stream": False} | body)


def upload(server: Any) -> None:
    assert server.client.post(f"/api/blobs/{DIGEST}", content=STORIES.read_bytes()).status_code == 201


def test_ol20_j19_a_blob_is_kept_only_when_it_is_what_its_digest_says(start: Any, tmp_path: Path) -> None:
    server = start(max_blob=STORIES.stat().st_size)
    blob = f"/api/blobs/{DIGEST}"
    assert server.client.head(blob).status_code == 404
    r = server.client.post(blob, content=b"GGUF of another kind")
    assert r.status_code == 400
    assert "digest mismatch" in r.json()["error"]
    assert server.client.post(blob, content=STORIES.read_bytes() + b"x").status_code == 413
    chunks = (b"x" * 65536 for _ in range(64))
    assert server.client.post(blob, content=chunks).status_code == 413
    assert kept(tmp_path) == []
    assert server.client.head(blob).status_code == 404
    upload(server)
    assert server.client.head(blob).status_code == 200
    assert server.client.head(blob.replace("sha256:", "sha256-")).status_code == 200
    assert kept(tmp_path) == [DIGEST.replace(":", "-")]
    for bad in ("sha256:abc", "md5:" + "a" * 64, "sha256:" + "A" * 64, "..%2f..%2fx"):
        assert server.client.post(f"/api/blobs/{bad}", content=b"x").status_code in (400, 404), bad


def test_ol20_the_official_client_makes_a_model_of_a_file_and_of_a_model(start: Any) -> None:
    ollama = pytest.importorskip("ollama")
    server = start()
    client = ollama.Client(host=server.url)
    assert client.create_blob(STORIES) == DIGEST
    lines = list(
        client.create(
            "lily",
            files={"lily.gguf": DIGEST},
            template=TEMPLATE,
            system="Be brief.",
            license=["one", "two"],
            parameters={"temperature": 0.0, "num_predict": 5, "stop": "zzz", "repeat_penalty": 1.0},
            messages=[{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Oh"}],
            stream=True,
        )
    )
    assert lines[-1].status == "success"
    shown = client.show("lily")
    assert shown.template == TEMPLATE
    verbose = server.client.post("/api/show", json={"model": "lily", "verbose": True}).json()
    assert {"name": "output_norm.weight", "type": "F32", "shape": [64]} in verbose["tensors"]
    brief = server.client.post("/api/show", json={"model": "lily"}).json()
    assert brief["tensors"] == []
    assert shown.license == "one\ntwo"
    assert 'SYSTEM """Be brief."""' in shown.modelfile
    assert "num_predict" in shown.parameters
    assert client.create("lily2", from_="lily", system="Be long.").status == "success"
    raw = server.client.post("/api/show", json={"model": "lily2"}).json()
    assert (raw["system"], raw["template"]) == ("Be long.", TEMPLATE)
    assert raw["details"]["parent_model"] == "lily"
    assert [m["content"] for m in raw["messages"]] == ["Hi", "Oh"]
    assert {m.model for m in client.list().models} == {"fixed", "lily", "lily2"}
    client._client.close()


def test_ol20_a_go_template_is_used_as_ollama_uses_it(start: Any) -> None:
    server = start()
    upload(server)
    source = "{{ if .System }}<s>{{ .System }}{{ end }}<u>{{ .Prompt }}<a>{{ .Response }}</a>"
    made = make(server, files={"m.gguf": DIGEST}, template=source, system="Be brief.")
    assert made.json()["status"] == "success"
    assert server.client.post("/api/show", json={"model": "new"}).json()["template"] == source
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Oh"}]
    messages.append({"role": "user", "content": "Go"})
    r = server.client.post("/apply-template", json={"model": "new", "messages": messages})
    assert r.json()["prompt"] == "<s>Be brief.<u>Hi<a>Oh</a><u>Go<a>"


def test_ol20_what_a_model_was_made_with_holds_until_a_request_says_otherwise(start: Any) -> None:
    server = start()
    upload(server)
    parameters = {"temperature": 0, "num_predict": 5, "ignore_eos": True}
    made = make(
        server,
        files={"m.gguf": DIGEST},
        template=TEMPLATE,
        system="Be brief.",
        parameters=parameters,
        messages=[{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Oh"}],
    )
    assert made.json() == {"status": "success"}

    def tokens(text: str) -> list[int]:
        body = {"content": text, "model": "new", "add_special": False, "parse_special": True}
        return list(server.client.post("/tokenize", json=body).json()["tokens"])

    def generated(**more: Any) -> Any:
        body = {"model": "new", "prompt": "So", "stream": False} | more
        return server.client.post("/api/generate", json=body).json()

    def prompt(answer: Any) -> str:
        ids = answer["context"][: answer["prompt_eval_count"]]
        return str(server.client.post("/detokenize", json={"tokens": ids, "model": "new"}).json()["content"])

    own = generated()
    assert (own["eval_count"], own["done_reason"]) == (5, "length")
    assert own["response"] == generated()["response"]
    for part in ("<system>Be brief.", "<user>Hi", "<assistant>Oh", "<user>So"):
        assert part in prompt(own)
    other = generated(system="Other.", options={"num_predict": 3})
    assert other["eval_count"] == 3
    assert "<system>Other." in prompt(other)
    assert "Be brief." not in prompt(other)

    def chat(*messages: Any) -> Any:
        return server.client.post(
            "/api/chat", json={"model": "new", "stream": False, "messages": list(messages)}
        ).json()

    asked = chat({"role": "user", "content": "So"})
    assert asked["eval_count"] == 5
    assert asked["prompt_eval_count"] == own["prompt_eval_count"]
    assert asked["message"]["content"] == own["response"]
    again = chat({"role": "system", "content": "Other."}, {"role": "user", "content": "So"})
    assert again["prompt_eval_count"] != asked["prompt_eval_count"]

    # Made anew under its name, it is at once the new one, also where it was loaded.
    assert make(server, **{"from": "new", "system": "Now."}).json() == {"status": "success"}
    assert "<system>Now." in prompt(generated())


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({}, "from"),
        ({"from": "fixed", "files": {"a.gguf": "sha256:" + "0" * 64}}, "from"),
        ({"files": {"../a.gguf": "GOOD"}}, "file name"),
        ({"files": {"/etc/a.gguf": "GOOD"}}, "file name"),
        ({"files": {"a\\b.gguf": "GOOD"}}, "file name"),
        ({"files": {"a\0.gguf": "GOOD"}}, "file name"),
        ({"files": {"..": "GOOD"}}, "file name"),
        ({"files": {"a.gguf": "../../x"}}, "digest"),
        ({"files": {"a.gguf": "sha256:" + "0" * 64}}, "not uploaded"),
        ({"files": {"a.gguf": "GOOD", "b.gguf": "GOOD"}}, "files"),
        ({"files": {"a.gguf": "JUNK"}}, "files"),
        ({"files": {"a.gguf": "GOOD"}, "adapters": {"x": "GOOD"}}, "adapters"),
        ({"files": {"a.gguf": "GOOD"}, "template": "{{ .Prompt }}{{ toTypeScriptType .Tools }}"}, "template"),
        ({"files": {"a.gguf": "GOOD"}, "template": "{% for %}"}, "template"),
        ({"files": {"a.gguf": "GOOD"}, "parameters": {"temperature": "hot"}}, "parameters.temperature"),
        ({"files": {"a.gguf": "GOOD"}, "parameters": {"nonsense": 1}}, "parameters.nonsense"),
        ({"files": {"a.gguf": "GOOD"}, "quantize": "Q99"}, "quantize"),
        ({"files": {"a.gguf": "GOOD"}, "system": "x" * 600_000}, "longer"),
        ({"files": {"a.gguf": "GOOD"}, "model": "../evil"}, "model name"),
    ],
)
def test_j19_ol20_what_cannot_be_made_is_refused_by_name(
    start: Any, tmp_path: Path, body: dict[str, Any], says: str
) -> None:
    server = start()
    upload(server)
    junk = b"GGUF but nothing else"
    bad = f"sha256:{hashlib.sha256(junk).hexdigest()}"
    assert server.client.post(f"/api/blobs/{bad}", content=junk).status_code == 201
    text = json.dumps(body).replace("GOOD", DIGEST).replace("JUNK", bad)
    r = make(server, **json.loads(text))
    assert r.status_code == 400, r.text
    assert says in r.json()["error"]
    assert str(tmp_path) not in r.text
    assert not list((tmp_path / "store").glob("manifests/*"))
    assert server.client.head(f"/api/blobs/{DIGEST}").status_code == 200


def test_ol20_a_model_is_quantized_on_the_way(start: Any) -> None:
    server = start()
    upload(server)
    assert make(server, files={"m.gguf": DIGEST}).status_code == 200
    r = make(server, "small", **{"from": "new", "quantize": "q8_0"})
    assert r.json() == {"status": "success"}
    sizes = {m["name"]: m["size"] for m in server.client.get("/api/tags").json()["models"]}
    assert 0 < sizes["small"] < sizes["new"]
    body = {"model": "small", "prompt": "Once", "stream": False, "raw": True, "options": {"num_predict": 2}}
    assert server.client.post("/api/generate", json=body).json()["eval_count"] == 2


def test_ol20_a_missing_source_is_404_and_a_closed_store_403(start: Any) -> None:
    server = start()
    assert make(server, **{"from": "nothing"}).status_code == 404
    closed = start(manage_models=False)
    assert make(closed, **{"from": "x"}).status_code == 403
    assert closed.client.post(f"/api/blobs/{DIGEST}", content=b"x").status_code == 403
    assert closed.client.head(f"/api/blobs/{DIGEST}").status_code == 403


def test_ol21_ol28_the_official_client_pulls_from_a_registry_and_runs_what_came(
    start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import http.server
    import threading

    ollama = pytest.importorskip("ollama")
    layer = "application/vnd.ollama.image."
    texts = {"template": "{{ .System }}|{{ .Prompt }}", "system": "Be brief.", "params": '{"num_predict": 3}'}
    blobs = {DIGEST: STORIES.read_bytes()}
    layers = [{"mediaType": f"{layer}model", "digest": DIGEST, "size": STORIES.stat().st_size}]
    for kind, text in texts.items():
        digest = f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
        blobs[digest] = text.encode()
        layers.append({"mediaType": layer + kind, "digest": digest, "size": len(text)})
    files = {f"/v2/library/lily/blobs/{digest}": data for digest, data in blobs.items()}
    files["/v2/library/lily/manifests/1b"] = json.dumps({"schemaVersion": 2, "layers": layers}).encode()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            data = files.get(self.path)
            self.send_response(200 if data else 404)
            self.send_header("Content-Length", str(len(data or b"")))
            self.end_headers()
            self.wfile.write(data or b"")

        def log_message(self, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as registry:
        threading.Thread(target=registry.serve_forever, args=(0.01,), daemon=True).start()
        monkeypatch.setenv("LLAMAY_OLLAMA_REGISTRY", f"http://127.0.0.1:{registry.server_port}")
        server = start()
        client = ollama.Client(host=server.url)
        lines = list(client.pull("lily:1b", stream=True))
        assert lines[0].status == "pulling manifest"
        assert lines[-1].status == "success"
        counted = [line for line in lines if line.digest == DIGEST]
        assert counted[-1].completed == counted[-1].total == STORIES.stat().st_size
        assert client.chat("lily:1b", [{"role": "user", "content": "Hi"}]).eval_count <= 3
        assert client.show("lily:1b").template == texts["template"]
        assert "lily:1b" in {m.model for m in client.list().models}
        with pytest.raises(ollama.ResponseError, match="file does not exist"):
            client.pull("nothing")
        assert client.delete("lily:1b").status == "success"
        client._client.close()
        registry.shutdown()
