"""Models that cannot be loaded: each way to fail has one status and one sentence, in the shape of the route."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from fake_engine import FakeModel

import llamay_models
from llamay_models import errors
from llamay_server import Config
from llamay_server.engine.loading import load

USER = [{"role": "user", "content": "hi"}]
ROUTES: dict[str, tuple[str, dict[str, Any]]] = {
    "openai": ("/v1/chat/completions", {"messages": USER}),
    "completions": ("/v1/completions", {"prompt": "hi"}),
    "responses": ("/v1/responses", {"input": "hi"}),
    "embeddings": ("/v1/embeddings", {"input": "hi"}),
    "anthropic": ("/v1/messages", {"messages": USER, "max_tokens": 3}),
    "count": ("/v1/messages/count_tokens", {"messages": USER}),
    "ollama": ("/api/chat", {"messages": USER}),
    "generate": ("/api/generate", {"prompt": "hi"}),
    "preload": ("/api/generate", {}),
    "embed": ("/api/embed", {"input": "hi"}),
    "llamacpp": ("/completion", {"prompt": "hi"}),
    "tokenize": ("/tokenize", {"content": "hi"}),
    "rerank": ("/v1/rerank", {"query": "a", "documents": ["b"]}),
    "contexts": ("/v1/contexts", {"prompt": "hi"}),
}


def gguf(**metadata: str) -> bytes:
    """A file of metadata alone."""

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    pairs = b"".join(
        text(key.replace("_", ".")) + struct.pack("<I", 8) + text(value) for key, value in metadata.items()
    )
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(metadata)) + pairs


def write(path: Path, data: bytes | None) -> None:
    if data is None:
        path.mkdir()
    else:
        path.write_bytes(data)


# What is in the file (None: it is a folder), and what comes of it: status, code, part of the sentence.
FILES: dict[str, tuple[bytes | None, int, str, str]] = {
    "empty": (b"", 422, "model_unusable", "cannot be loaded"),
    "not GGUF": (b"PK\3\4" + bytes(64), 422, "model_unusable", "GGUF"),
    "cut short": (gguf(general_architecture="llama")[:30], 422, "model_unusable", "cannot be loaded"),
    "a folder": (None, 422, "model_unusable", "not a regular file"),
    "without an architecture": (gguf(general_name="x"), 422, "model_unusable", "general.architecture"),
    "without hyper-parameters": (gguf(general_architecture="llama"), 422, "model_unusable", "llama."),
    "of another architecture": (
        gguf(general_architecture="mamba9"),
        501,
        "model_not_supported",
        "'mamba9' is not supported; supported are",
    ),
}
# What loading raises, where no small file shows it.
RAISED: dict[str, tuple[BaseException, int, str, str]] = {
    "gone": (FileNotFoundError(2, "No such file or directory"), 404, "model_not_found", "not there any more"),
    "forbidden": (PermissionError(13, "Permission denied"), 422, "model_unusable", "Permission denied"),
    "broken disk": (OSError(5, "Input/output error"), 422, "model_unusable", "Input/output error"),
    "memory": (MemoryError(), 507, "out_of_memory", "not enough memory"),
    "K/V budget": (
        errors.OutOfMemoryError("the budget holds no page"),
        507,
        "out_of_memory",
        "holds no page",
    ),
    "tensor": (errors.TensorError("blk.0.attn_q.weight is missing"), 422, "model_unusable", "attn_q"),
    "plan": (errors.PlanError("widths do not fit"), 422, "model_unusable", "widths"),
    "draft": (errors.ModelError("the draft has another vocabulary"), 422, "model_unusable", "vocabulary"),
    "setting": (ValueError("ctx_size must be at most 1024"), 422, "model_unusable", "ctx_size"),
    "the unforeseen": (RuntimeError("secret of /home/ann"), 500, "", "its log has the details"),
}


def said(answer: Any) -> tuple[str, str | None]:
    """Message and code of an error in any shape; checks that shape."""
    body, path = answer.json(), answer.request.url.path
    if path.startswith("/v1/contexts"):
        assert answer.headers["content-type"] == "application/problem+json"
        assert body["status"] == answer.status_code
        return body["detail"], body.get("code")
    if path.startswith("/v1/messages"):
        assert body["type"] == "error"
        assert set(body["error"]) == {"type", "message"}
        return body["error"]["message"], None
    if path.startswith("/api"):
        assert set(body) == {"error"}
        return body["error"], None
    assert set(body["error"]) == {"message", "type", "param", "code"}
    return body["error"]["message"], body["error"]["code"] or ""


def check(answer: Any, status: int, code: str, text: str, folder: Path) -> None:
    message, told = said(answer)
    assert answer.status_code == status, message
    assert text in message
    assert told in (None, code)
    assert str(folder) not in message, "folders of the server are not told"
    assert "/home" not in message
    if status > 500 or status == 507:
        assert answer.headers["x-should-retry"] == "false", "it would only fail again"


@pytest.mark.parametrize("kind", FILES)
def test_a_file_that_is_no_usable_model_is_told_in_every_dialect(start, tmp_path, kind):
    data, status, code, text = FILES[kind]
    path = tmp_path / "bad.gguf"
    write(path, data)
    server = start(FakeModel(), f"bad={path}", loader=load(Config()))
    for route, fields in ROUTES.values():
        for stream in (False, True):
            answer = server.client.post(route, json=fields | {"model": "bad", "stream": stream})
            check(answer, status, code, text, tmp_path)
    fine = server.client.post("/v1/completions", json={"model": "fake", "prompt": "hi", "max_tokens": 2})
    assert fine.status_code == 200, "other models answer on"


@pytest.mark.parametrize("kind", RAISED)
def test_what_loading_raises_is_told_in_every_dialect(start, tmp_path, monkeypatch, kind):
    error, status, code, text = RAISED[kind]

    def fail(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(llamay_models, "load", fail)
    server = start(FakeModel(), f"bad={tmp_path / 'bad.gguf'}", loader=load(Config()))
    for route, fields in ROUTES.values():
        answer = server.client.post(route, json=fields | {"model": "bad"})
        if status == 500:
            assert answer.status_code == 500
            assert "secret" not in answer.text
        else:
            check(answer, status, code, text, tmp_path)


def test_a_file_that_is_gone_is_told_before_it_is_looked_for_elsewhere(start, tmp_path):
    server = start(FakeModel(), f"bad={tmp_path / 'bad.gguf'}", loader=load(Config()))
    for route, fields in ROUTES.values():
        answer = server.client.post(route, json=fields | {"model": "bad"})
        check(answer, 404, "model_not_found", "not there any more", tmp_path)


def test_a_model_larger_than_the_budget_is_told_and_not_to_be_asked_for_again(start, tmp_path):
    path = tmp_path / "bad.gguf"
    path.write_bytes(bytes(5000))
    server = start(FakeModel(), f"bad={path}", loader=load(Config()), model_mem_budget=1000)
    for route, fields in ROUTES.values():
        answer = server.client.post(route, json=fields | {"model": "bad"})
        check(
            answer, 507, "out_of_memory", "takes 5000 bytes, but all models together may take 1000", tmp_path
        )


def test_a_template_that_cannot_be_read_makes_a_model_unusable(start, tmp_path):
    closed = []

    class Picky(FakeModel):
        def use_template(self, source: str) -> None:
            raise errors.PromptError("the template has no end")

        def close(self) -> None:
            closed.append(self)

    template = tmp_path / "t.jinja"
    template.write_text("{% if %}")
    server = start(
        f"bad={tmp_path / 'bad.gguf'}",
        loader=lambda path, *, progress=None: Picky("bad"),
        chat_template_file=str(template),
    )
    for route, fields in ROUTES.values():
        answer = server.client.post(route, json=fields | {"model": "bad"})
        check(answer, 422, "model_unusable", "the template has no end", tmp_path)
    assert len(closed) >= len(ROUTES), "what was loaded is let go"


@pytest.mark.parametrize(
    ("adapter", "status", "code", "text"),
    [
        (
            "gone.gguf",
            404,
            "model_not_found",
            "The file gone.gguf that model 'bad' is used with is not there",
        ),
        ("junk.gguf", 422, "model_unusable", "junk.gguf"),
        ("junk.gguf:nan", 422, "model_unusable", "the scale of junk.gguf must be a finite number"),
    ],
)
def test_an_adapter_that_cannot_be_used_is_told_without_its_folder(
    start, tmp_path, adapter, status, code, text
):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "junk.gguf").write_bytes(b"junk")
    server = start(
        FakeModel(),
        f"bad={tmp_path / 'bad.gguf'}",
        loader=load(Config()),
        lora=(f"bad={elsewhere / adapter}",),
    )
    for route, fields in ROUTES.values():
        answer = server.client.post(route, json=fields | {"model": "bad"})
        check(answer, status, code, text, tmp_path)
