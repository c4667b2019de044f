"""Models in Ollama's store and Hugging Face's cache are used where they are, and nothing there changes."""

import hashlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llamay_cli.errors import IntegrityError
from llamay_cli.models import resolve
from llamay_cli.models.server_store import ServerStore
from llamay_cli.store import Store, foreign
from llamay_server import StoreError

LAYER = "application/vnd.ollama.image."


class Ollama:
    """A store as Ollama writes it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "blobs").mkdir(parents=True)

    def blob(self, data: bytes) -> dict[str, Any]:
        digest = hashlib.sha256(data).hexdigest()
        (self.root / "blobs" / f"sha256-{digest}").write_bytes(data)
        return {"digest": f"sha256:{digest}", "size": len(data)}

    def model(self, name: str, **layers: Any) -> Path:
        listed = []
        for kind, contents in layers.items():
            for content in contents if isinstance(contents, list) else [contents]:
                data = content if isinstance(content, bytes) else content.encode()
                listed.append({"mediaType": LAYER + kind, **self.blob(data)})
        path = self.root / "manifests" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        config = {"mediaType": "application/vnd.docker.container.image.v1+json", **self.blob(b"{}")}
        path.write_text(json.dumps({"schemaVersion": 2, "config": config, "layers": listed}))
        return path


@pytest.fixture
def ollama(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ollama:
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "ollama"))
    return Ollama(tmp_path / "ollama")


def everything(root: Path) -> dict[str, tuple[int, bytes]]:
    return {str(p): (p.stat().st_mtime_ns, p.read_bytes()) for p in root.rglob("*") if p.is_file()}


def test_st01_ol07_names_mean_what_they_mean_to_ollama(ollama: Ollama, gguf: Callable[..., bytes]) -> None:
    ollama.model("registry.ollama.ai/library/tiny/latest", model=gguf(seed=1))
    ollama.model("registry.ollama.ai/library/tiny/1b", model=gguf(seed=2))
    ollama.model("registry.ollama.ai/ann/tiny/q4", model=gguf(seed=3))
    ollama.model("hf.co/ann/tiny-GGUF/Q4_K_M", model=gguf(seed=4))
    ollama.model("localhost:5000/ann/tiny/latest", model=gguf(seed=5))

    for name, seed, shown in (
        ("tiny", 1, "tiny:latest"),
        ("library/tiny:latest", 1, "tiny:latest"),
        ("registry.ollama.ai/library/tiny", 1, "tiny:latest"),
        ("tiny:1b", 2, "tiny:1b"),
        ("ann/tiny:q4", 3, "ann/tiny:q4"),
        ("hf.co/ann/tiny-GGUF:Q4_K_M", 4, "hf.co/ann/tiny-GGUF:Q4_K_M"),
        ("localhost:5000/ann/tiny", 5, "localhost:5000/ann/tiny:latest"),
    ):
        found = resolve(name)
        assert (found.path.read_bytes(), found.name) == (gguf(seed=seed), shown), name
    for name in (
        "none",
        "tiny:2b",
        "../tiny",
        "tiny:..",
        "a/b/c/tiny",
        "ti\0ny",
        "tiny:" + "x" * 5000,
        ":",
        "/",
    ):
        assert foreign.find(name) is None, name
    assert {m.name for m in foreign.models()} >= {"tiny:latest", "tiny:1b", "ann/tiny:q4"}


def test_st01_nothing_of_theirs_is_written_also_where_that_is_impossible(
    ollama: Ollama, gguf: Callable[..., bytes], llamay: Callable[..., Any], home: Path
) -> None:
    ollama.model("registry.ollama.ai/library/tiny/latest", model=gguf(), system="Be brief.")
    before = everything(ollama.root)
    for folder in [ollama.root, *(p for p in ollama.root.rglob("*") if p.is_dir())]:
        folder.chmod(0o555)
    try:
        result = llamay("list")
        assert result.exit_code == 0
        assert "tiny:latest" in result.stdout
        assert "(ollama)" in result.stdout
        assert json.loads(llamay("list", "--json").stdout)[0]["path"] == str(resolve("tiny").path)
        assert llamay("show", "tiny", "--system").stdout == "Be brief.\n"
        store = ServerStore(Store(home))
        assert store.find("tiny") == resolve("tiny").path
        assert [m.name for m in store.list()] == ["tiny:latest"]
        for refused in (lambda: store.delete("tiny"), lambda: store.copy("tiny", "again")):
            with pytest.raises(StoreError, match="only read"):
                refused()
        result = llamay("rm", "tiny")
        assert result.exit_code == 3
    finally:
        for folder in [ollama.root, *(p for p in ollama.root.rglob("*") if p.is_dir())]:
            folder.chmod(0o755)
    assert everything(ollama.root) == before


def test_st02_what_is_damaged_is_skipped_with_a_warning(
    ollama: Ollama, gguf: Callable[..., bytes], llamay: Callable[..., Any]
) -> None:
    library = "registry.ollama.ai/library"
    ollama.model(f"{library}/good/latest", model=gguf())
    ollama.model(f"{library}/json/latest", model=gguf()).write_text("{")
    ollama.model(f"{library}/deep/latest", model=gguf()).write_text("[" * 100_000)
    ollama.model(f"{library}/adapted/latest", model=gguf(), adapter=b"GGUF")
    ollama.model(f"{library}/two/latest", model=[gguf(seed=1), gguf(seed=2)])
    manifest = ollama.model(f"{library}/escape/latest", model=gguf())
    manifest.write_text(manifest.read_text().replace("sha256:", "sha256:../../"))
    cut = ollama.model(f"{library}/cut/latest", model=gguf(seed=7))
    blob = ollama.root / "blobs" / json.loads(cut.read_text())["layers"][0]["digest"].replace(":", "-")
    blob.write_bytes(b"GGUF")
    gone = ollama.model(f"{library}/gone/latest", model=gguf(seed=8))
    (ollama.root / "blobs" / json.loads(gone.read_text())["layers"][0]["digest"].replace(":", "-")).unlink()
    loop = ollama.root / "manifests" / library / "loop"
    loop.mkdir()
    (loop / "latest").symlink_to(loop / "latest")
    (loop / "up").symlink_to(ollama.root)
    os.mkdir(os.fsencode(ollama.root / "manifests" / library) + b"/\xff")  # noqa: PTH102

    result = llamay("list")

    assert result.exit_code == 0
    assert [line.split()[0] for line in result.stdout.splitlines()] == ["NAME", "good:latest"]
    assert len(result.stderr.splitlines()) == 7
    assert all(line.startswith("warning: ") for line in result.stderr.splitlines())
    with pytest.raises(IntegrityError, match="cut short"):
        foreign.find("cut")


def test_st03_what_a_model_brings_along_is_used_and_gives_way(
    ollama: Ollama, fake: Any, llamay: Callable[..., Any]
) -> None:
    ollama.model(
        "registry.ollama.ai/library/pirate/latest",
        model=b"GGUF",
        template="{{ .Prompt }}",
        system="Be a pirate.",
        params=json.dumps(
            {"temperature": 0.25, "stop": ["<end>"], "num_ctx": 512, "num_predict": 3, "odd": 1}
        ),
        messages=json.dumps([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Arr"}]),
        license=["one", "two"],
    )

    result = llamay("run", "pirate", "-p", "Go", "--top-k", 5)

    assert result.exit_code == 0, result.stderr
    assert [m["content"] for m in fake.model.rendered[0]] == ["Be a pirate.", "Hi", "Arr", "Go"]
    assert fake.model.options["ctx_size"] == 512
    assert fake.model.template == "{{ .Prompt }}"
    assert (fake.model.sampled[0].temperature, fake.model.sampled[0].top_k) == (0.25, 5)
    llamay("run", "pirate", "-p", "Go", "-s", "Be plain.", "--temperature", 1, "-c", 256)
    assert fake.model.rendered[0][0]["content"] == "Be plain."
    assert fake.model.sampled[0].temperature == 1
    assert fake.model.options["ctx_size"] == 256
    assert llamay("show", "pirate", "--license").stdout == "one\ntwo\n"
    assert "temperature" in llamay("show", "pirate", "--parameters").stdout
    own = ServerStore().profile("pirate")
    assert own is not None
    assert own.parameters == {"temperature": 0.25, "stop": ["<end>"], "num_ctx": 512, "num_predict": 3}
    assert own.system == "Be a pirate."


def cache(tmp_path: Path, files: dict[str, bytes], commit: str = "a" * 40) -> Path:
    """Hugging Face's cache as its tools leave it: links to blobs."""
    folder = tmp_path / "hf" / "hub" / "models--ann--tiny-GGUF"
    (folder / "blobs").mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(commit)
    for name, data in files.items():
        blob = folder / "blobs" / hashlib.sha256(data).hexdigest()
        blob.write_bytes(data)
        path = folder / "snapshots" / commit / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(blob)
    return folder


def test_hf06_what_hugging_faces_tools_fetched_is_used_by_name_without_a_network(
    tmp_path: Path, gguf: Callable[..., bytes], llamay: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    folder = cache(
        tmp_path,
        {
            "tiny-Q4_K_M.gguf": gguf(seed=1),
            "tiny-Q8_0.gguf": gguf(seed=2),
            "mmproj-tiny.gguf": gguf(seed=3),
            "big/tiny-F16-00001-of-00002.gguf": gguf(seed=4),
            "big/tiny-F16-00002-of-00002.gguf": gguf(seed=5),
        },
    )
    before = everything(folder)

    for name, seed in (
        ("hf.co/ann/tiny-GGUF", 1),
        ("hf:ann/tiny-GGUF:Q8_0", 2),
        ("hf.co/ann/tiny-GGUF:tiny-Q8_0.gguf", 2),
        ("https://huggingface.co/ann/tiny-GGUF/resolve/main/tiny-Q8_0.gguf", 2),
        ("hf.co/ann/tiny-GGUF:big/tiny-F16-00001-of-00002.gguf", 4),
    ):
        assert resolve(name, offline=True).path.read_bytes() == gguf(seed=seed), name
    listed = [line.split()[0] for line in llamay("list").stdout.splitlines()[1:]]
    assert sorted(listed) == [
        "hf.co/ann/tiny-GGUF:big/tiny-F16-00001-of-00002.gguf",
        "hf.co/ann/tiny-GGUF:tiny-Q4_K_M.gguf",
        "hf.co/ann/tiny-GGUF:tiny-Q8_0.gguf",
    ]
    for name in listed:
        assert resolve(name, offline=True).path.is_file()
    assert everything(folder) == before
    (folder / "refs" / "main").write_text("../../../etc")
    assert foreign.find("hf.co/ann/tiny-GGUF") is None


def test_a_listing_needs_no_engine_where_there_are_no_files_of_hugging_faces_tools(
    llamay: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "llamay_models.gguf.split", None)

    assert llamay("list").exit_code == 0
