"""What an operator relies on: logs without prompts, metrics for each model, profiles that refuse."""

from __future__ import annotations

import dataclasses
import json
import logging
import re
import threading

import pytest
from fake_engine import FakeModel

from llamay_server import Config, ConfigError
from llamay_server.observability.logs import configure

CANARY = "Xyzzy-canary-4711"
SAID = [{"role": "user", "content": CANARY}]
TOOL = {
    "type": "function",
    "function": {"name": CANARY, "description": CANARY, "parameters": {"type": "object"}},
}
ROUTES = [
    ("/v1/chat/completions", {"messages": SAID, "user": CANARY}),
    ("/v1/chat/completions", {"messages": SAID, "tools": [TOOL], "tool_choice": "required"}),
    ("/v1/chat/completions", {"messages": SAID, "response_format": {"type": CANARY}}),
    ("/v1/chat/completions", {"messages": [{"role": CANARY, "content": CANARY}]}),
    ("/v1/chat/completions", {"messages": SAID, "model": CANARY}),
    ("/v1/completions", {"prompt": CANARY, "suffix": CANARY, "stop": [CANARY]}),
    ("/v1/completions", {"prompt": [CANARY, {"x": CANARY}]}),
    ("/v1/responses", {"input": CANARY, "instructions": CANARY}),
    ("/v1/responses", {"input": SAID, "previous_response_id": CANARY}),
    ("/v1/messages", {"messages": SAID, "system": CANARY, "max_tokens": 4}),
    ("/v1/messages/count_tokens", {"messages": SAID}),
    ("/v1/embeddings", {"input": CANARY}),
    ("/v1/rerank", {"query": CANARY, "documents": [CANARY]}),
    ("/api/chat", {"model": "fake", "messages": SAID, "format": CANARY}),
    ("/api/chat", {"model": "fake", "messages": SAID, "stream": False}),
    ("/api/generate", {"model": "fake", "prompt": CANARY, "system": CANARY}),
    ("/api/generate", {"model": CANARY, "prompt": CANARY}),
    ("/api/embed", {"model": "fake", "input": CANARY}),
    ("/api/show", {"model": CANARY}),
    ("/api/create", {"model": CANARY, "from": CANARY, "system": CANARY}),
    ("/completion", {"prompt": CANARY, "grammar": f'root ::= "{CANARY}" |||'}),
    ("/infill", {"input_prefix": CANARY, "input_suffix": CANARY}),
    ("/tokenize", {"content": CANARY}),
    ("/apply-template", {"messages": SAID}),
    ("/v1/contexts", {"prompt": CANARY, "label": CANARY, "marking": CANARY}),
    ("/v1/contexts", {"messages": SAID}),
    (f"/v1/contexts/{CANARY}/generate", {"prompt": CANARY}),
    (f"/{CANARY}", {"prompt": CANARY}),
]


def ask_everything(server) -> None:
    for path, body in ROUTES:
        for more in ({}, {"stream": True}, {"max_tokens": CANARY}, {"temperature": -5}):
            server.client.post(path, json=body | more)
        server.client.post(path, content=json.dumps(body)[:-3])
        server.client.get(
            f"{path}?q={CANARY}", headers={"user-agent": CANARY, "authorization": f"Bearer {CANARY}"}
        )


@pytest.mark.parametrize("log_json", [False, True])
def test_j20_no_log_line_ever_holds_what_a_client_said(start, capsys, log_json, monkeypatch):
    names = ("llamay", "uvicorn")
    before = {n: (logging.getLogger(n).handlers, logging.getLogger(n).propagate) for n in names}
    server = start(FakeModel(script=lambda p: f"echo {CANARY}"), log_level="debug", log_json=log_json)
    configure(server.app.services.config)
    try:
        ask_everything(server)
        server.model.fail_after = 1
        ask_everything(server)
        server.model.fail_after = None
        server.model.fail = "the engine stumbled"
        ask_everything(server)

        def broken(*args, **kwargs):
            raise RuntimeError("a defect")

        monkeypatch.setattr(server.model, "encode", broken)
        monkeypatch.setattr(server.model, "render", broken)
        ask_everything(server)
    finally:
        for name, (handlers, propagate) in before.items():
            logging.getLogger(name).handlers, logging.getLogger(name).propagate = handlers, propagate
    said = capsys.readouterr().err
    assert "a defect" in said  # the defect itself is told, so the logs were looked at
    assert CANARY not in said
    if log_json:
        assert all(isinstance(json.loads(line), dict) for line in said.splitlines())
    assert CANARY not in server.client.get("/metrics").text


def test_metrics_tell_the_models_apart(start):
    server = start(FakeModel("one"), FakeModel("two"))
    for model in ("one", "two", "two"):
        server.client.post(
            "/v1/chat/completions",
            json={"model": model, "messages": SAID, "max_tokens": 3, "ignore_eos": True},
        )
        made = server.client.post("/v1/contexts", json={"model": model, "prompt": "x"}).json()
        server.client.post(f"/v1/contexts/{made['id']}/fork?n=2")
    for name, labels in (
        ("llamay_generations_total", {"reason": "length"}),
        ("llamay_prompt_tokens_total", {}),
        ("llamay_generated_tokens_total", {}),
        ("llamay_time_to_first_token_seconds_count", {}),
        ("llamay_request_duration_seconds_count", {}),
        ("llamay_context_operations_total", {"operation": "fork"}),
        ("llamay_context_operations_total", {"operation": "create"}),
    ):
        one, two = (server.metric(name, model=model, **labels) for model in ("one", "two"))
        assert 0 < one < two, name


def test_metrics_name_a_model_as_it_is_served_whatever_its_file_is_called(start, tmp_path):
    blob = f"sha256-{'a' * 64}"

    def load(path, *, progress=None):
        model = FakeModel(path.name)
        model.info = dataclasses.replace(model.info, chat_template=None)
        return model

    server = start(f"tiny:1b={tmp_path / blob}", loader=load)
    client = server.client
    # Greedy, so that no text happens to end before its limit; and no stream, whose end is counted when it was sent.
    client.post("/v1/completions", json={"prompt": "x", "max_tokens": 3, "temperature": 0})
    options = {"num_predict": 3, "temperature": 0}
    body = {"model": "tiny:1b", "prompt": "x", "options": options, "stream": False}
    client.post("/api/generate", json=body)
    client.post("/v1/embeddings", json={"input": "x"})
    client.post("/v1/rerank", json={"query": "x", "documents": ["x"]})
    client.post("/v1/score", json={"text_1": "x", "text_2": "x"})
    client.post("/v1/contexts", json={"prompt": "x"})
    text = client.get("/metrics").text
    labels = set(re.findall(r'model="([^"]*)"', text))
    assert labels == {"tiny:1b"}
    assert server.metric("llamay_generations_total", model="tiny:1b", reason="length") == 2


def test_the_enterprise_profile_keeps_nothing_on_the_disk_in_the_clear(tmp_path):
    with pytest.raises(ConfigError, match="ctx_key"):
        Config(profile="enterprise", prefix_cache_dir=str(tmp_path))
    Config(profile="enterprise", prefix_cache_dir=str(tmp_path), ctx_key=str(tmp_path / "key"))
    Config(prefix_cache_dir=str(tmp_path))
    assert not Config(profile="enterprise").manages_models


def test_keep_alive_of_a_request_holds_until_the_model_is_unloaded(start, tmp_path):
    server = start(
        FakeModel(), f"disk={tmp_path / 'x.gguf'}", loader=lambda path, progress=None: FakeModel("disk")
    )
    held = lambda: {m["name"] for m in server.client.get("/api/ps").json()["models"]}  # noqa: E731

    def load(**more):
        assert server.client.post("/api/generate", json={"model": "disk", **more}).status_code == 200

    load(keep_alive=0)
    assert held() == {"fake"}
    load()
    assert held() == {"fake", "disk"}
    load(keep_alive="100ms")
    server.wait(lambda: held() == {"fake"})
    load()
    expires = [m["expires_at"] for m in server.client.get("/api/ps").json()["models"] if m["name"] == "disk"]
    assert expires[0].startswith("2318")
    load(keep_alive=300)
    expires = [m["expires_at"] for m in server.client.get("/api/ps").json()["models"] if m["name"] == "disk"]
    assert not expires[0].startswith("2318")


def test_a_stream_limit_and_a_queue_limit_are_told_apart(start):
    server = start(max_streams=1, max_queue=5)
    server.model.blocked.set()
    body = {"messages": SAID, "max_tokens": 2}
    thread = threading.Thread(
        target=server.client.post, args=("/v1/chat/completions",), kwargs={"json": body}
    )
    thread.start()
    server.wait(lambda: server.app.services.admission.waiting == 1)
    refused = server.client.post("/v1/chat/completions", json=body)
    server.model.blocked.clear()
    thread.join()
    assert refused.status_code == 429
    assert server.metric("llamay_refused_total", reason="streams") == 1


@pytest.fixture
def certificate(tmp_path):
    """A key and a certificate for localhost that signs itself."""
    import datetime

    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), False)
        .sign(key, hashes.SHA256())
    )
    (tmp_path / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    form = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (tmp_path / "key.pem").write_bytes(key.private_bytes(serialization.Encoding.PEM, *form))
    return {"tls_cert": str(tmp_path / "cert.pem"), "tls_key": str(tmp_path / "key.pem")}


def test_https_answers_and_plain_http_does_not(start, certificate):
    import ssl

    import httpx

    server = start(**certificate)
    assert server.url.startswith("https://127.0.0.1:")
    trust = ssl.create_default_context(cafile=certificate["tls_cert"])
    url = server.url.replace("127.0.0.1", "localhost")
    with httpx.Client(base_url=url, verify=trust) as client:
        assert client.get("/health").json() == {"status": "ok"}
        body = {"messages": SAID, "max_tokens": 5, "stream": True}
        assert client.post("/v1/chat/completions", json=body).text.endswith("data: [DONE]\n\n")
        # The page is of this very origin, scheme included.
        assert client.get("/v1/models", headers={"origin": url}).status_code == 200
        assert client.get("/v1/models", headers={"origin": url.replace("https", "http")}).status_code == 403
    with pytest.raises(httpx.HTTPError):
        httpx.get(server.url.replace("https", "http") + "/health")


def test_a_certificate_that_is_not_there_is_named(certificate, tmp_path):
    from llamay_server import create_app
    from llamay_server.app.serving import make_server

    config = Config(**(certificate | {"tls_key": str(tmp_path / "none.pem")}))
    with pytest.raises(ConfigError, match=r"tls_key .*none\.pem"):
        make_server(create_app([FakeModel()], config=config))


def test_of_several_models_only_so_many_are_loaded_and_the_idle_one_goes(start, tmp_path):
    closed = []

    class Disk(FakeModel):
        def close(self):
            closed.append(self.info.name)

    server = start(
        f"a={tmp_path / 'a'}",
        f"b={tmp_path / 'b'}",
        loader=lambda path, progress=None: Disk(path.name, script=lambda p: "word " * 50),
        max_loaded_models=1,
    )
    held = lambda: {m["name"] for m in server.client.get("/api/ps").json()["models"]}  # noqa: E731
    server.wait(lambda: held() == {"a"})
    body = {"messages": SAID, "max_tokens": 3}
    assert server.client.post("/v1/chat/completions", json=body | {"model": "b"}).status_code == 200
    assert (held(), closed) == ({"b"}, ["a"])
    entry = server.app.services.models.entries["b"]
    entry.model.blocked.set()
    at_work = threading.Thread(
        target=server.client.post, args=("/v1/chat/completions",), kwargs={"json": body | {"model": "b"}}
    )
    at_work.start()
    server.wait(lambda: entry.status.users == 1)
    refused = server.client.post("/v1/chat/completions", json=body | {"model": "a"})
    assert refused.status_code == 503
    assert "in use" in refused.json()["error"]["message"]
    entry.model.blocked.clear()
    at_work.join()
    server.wait(
        lambda: server.client.post("/v1/chat/completions", json=body | {"model": "a"}).status_code == 200
    )
    assert held() == {"a"}
