"""The hub: the right file of the right commit, verified, with the token going nowhere else."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llamay_cli.errors import CliError, IntegrityError, NotFoundError, RefusedError
from llamay_cli.pull import HuggingFace, Limits, Options, parse, pull_model
from llamay_cli.store import Entry, Store
from llamay_cli.store.repository import RepositoryFile, choose

COMMIT = "c0ffee" * 6 + "c0ff"


class Hub:
    """A hub with one repository, o/r."""

    def __init__(self, web: Any, respond: Callable[..., None], serve_ranges: Any) -> None:
        self.web, self.respond, self.serve_ranges = web, respond, serve_ranges
        self.tree: list[dict[str, Any]] = []
        web.routes["/api/models/o/r/revision/main"] = json.dumps(
            {"sha": COMMIT, "cardData": {"license": "apache-2.0"}}
        ).encode()
        web.routes[f"/api/models/o/r/tree/{COMMIT}?recursive=true"] = lambda handler: respond(
            handler, json.dumps(self.tree).encode()
        )

    def add(self, path: str, body: bytes, /, **changes: Any) -> None:
        lfs = {"oid": hashlib.sha256(body).hexdigest(), "size": len(body), "pointerSize": 134}
        self.tree.append({"type": "file", "path": path, "size": 134, "oid": "0" * 40, "lfs": lfs, **changes})
        self.web.routes[f"/o/r/resolve/{COMMIT}/{path}"] = self.serve_ranges(body)

    def add_text(self, path: str, body: bytes) -> None:
        self.tree.append({"type": "file", "path": path, "size": len(body), "oid": "0" * 40})
        self.web.routes[f"/o/r/resolve/{COMMIT}/{path}"] = body


@pytest.fixture
def hub(web: Any, respond: Any, serve_ranges: Any, monkeypatch: pytest.MonkeyPatch) -> Hub:
    monkeypatch.setenv("HF_ENDPOINT", web.url)
    return Hub(web, respond, serve_ranges)


def fetch(store: Store, text: str = "hf:o/r", **options: Any) -> Entry:
    source = parse(text)
    assert source is not None
    return pull_model(source, store, Options(**options))


def test_hf02_the_file_comes_by_commit_with_licence_and_digest(hub: Hub, store: Store, gguf: Any) -> None:
    hub.add("r-Q4_K_M.gguf", gguf(5000))
    hub.add("r-Q8_0.gguf", gguf(9000))
    hub.add_text("LICENSE", b"be kind")
    hub.add_text("README.md", b"about")

    entry = fetch(store)

    assert store.path(entry).read_bytes() == gguf(5000)
    assert entry.manifest.name == "o/r"
    assert entry.manifest.details == {"repository": "o/r", "commit": COMMIT, "license": "apache-2.0"}
    assert [f.name for f in entry.manifest.files] == ["r-Q4_K_M.gguf", "LICENSE"]


def test_hf03_bytes_that_are_not_those_of_the_list_are_refused(hub: Hub, store: Store, gguf: Any) -> None:
    hub.add("r-Q4_K_M.gguf", gguf(5000, 1))
    hub.web.routes[f"/o/r/resolve/{COMMIT}/r-Q4_K_M.gguf"] = hub.serve_ranges(gguf(5000, 2))

    with pytest.raises(IntegrityError, match="SHA-256"):
        fetch(store)
    assert store.names() == []


@pytest.mark.parametrize(
    "change",
    [
        {"path": "../x.gguf"},
        {"path": "/x.gguf"},
        {"path": "a\0.gguf"},
        {"path": 7},
        {"lfs": {"oid": "../../x", "size": 5000}},
        {"lfs": {"oid": "A" * 64, "size": 5000}},
        {"lfs": {"oid": "0" * 63, "size": 5000}},
        {"lfs": {"oid": "0" * 64, "size": -1}},
        {"lfs": {"oid": "0" * 64, "size": 2**63}},
        {"lfs": {"oid": "0" * 64, "size": True}},
        {"lfs": {"oid": "0" * 64, "size": "5000"}},
    ],
)
def test_pl07_pl09_j18_a_hostile_list_is_refused_before_anything_is_fetched(
    hub: Hub, store: Store, gguf: Any, change: dict[str, Any]
) -> None:
    hub.add("r-Q4_K_M.gguf", gguf(5000), **change)

    with pytest.raises(CliError):
        fetch(store)
    assert not any("/resolve/" in path for path, _ in hub.web.requests)


@pytest.mark.parametrize("body", [b"[", b"[" * 200_000, b"null", b"{}", b"<html>"])
def test_a_list_that_is_none_is_refused(hub: Hub, store: Store, body: bytes) -> None:
    hub.web.routes[f"/api/models/o/r/tree/{COMMIT}?recursive=true"] = body

    with pytest.raises(IntegrityError):
        fetch(store)


def test_an_endless_list_is_refused(hub: Hub, store: Store, respond: Any, gguf: Any) -> None:
    hub.add("r.gguf", gguf(100))
    again = f"/api/models/o/r/tree/{COMMIT}?recursive=true"
    hub.web.routes[again] = lambda handler: respond(
        handler, json.dumps(hub.tree).encode(), Link=f'<{hub.web.url}{again}>; rel="next"'
    )

    with pytest.raises(IntegrityError, match="more files than"):
        fetch(store, limits=Limits(files=20))


def test_a_document_over_its_limit_is_refused(hub: Hub, store: Store, gguf: Any) -> None:
    hub.add("r.gguf", gguf(100))

    with pytest.raises(IntegrityError, match="more than"):
        fetch(store, limits=Limits(document=50))


def test_pl02_hf02_the_token_goes_to_the_hub_and_not_to_where_it_redirects(
    hub: Hub, store: Store, gguf: Any, respond: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    hub.add("r-Q4_K_M.gguf", gguf(5000))
    elsewhere = hub.web.url.replace("127.0.0.1", "localhost")
    hub.web.routes["/cdn"] = hub.serve_ranges(gguf(5000))
    hub.web.routes[f"/o/r/resolve/{COMMIT}/r-Q4_K_M.gguf"] = lambda handler: respond(
        handler, b"", status=302, Location=f"{elsewhere}/cdn"
    )

    fetch(store)

    for path, headers in hub.web.requests:
        assert headers.get("authorization") == (None if path == "/cdn" else "Bearer hf_secret")
    assert "hf_secret" not in "".join(p.read_text() for p in store.manifests.iterdir())


@pytest.mark.parametrize(
    ("code", "status", "kind", "hint"),
    [("GatedRepo", 403, RefusedError, "accept it at"), ("RepoNotFound", 401, NotFoundError, "HF_TOKEN")],
)
def test_hf04_a_closed_door_says_how_it_opens(
    hub: Hub, store: Store, respond: Any, code: str, status: int, kind: type[CliError], hint: str
) -> None:
    hub.web.routes["/api/models/o/r/revision/main"] = lambda handler: respond(
        handler, b"{}", status=status, X_Error_Code=code
    )

    with pytest.raises(kind) as error:
        fetch(store)
    assert hint in str(error.value.hint)


def files(*paths: str) -> list[RepositoryFile]:
    return [RepositoryFile(path, 1000 + i, None) for i, path in enumerate(paths)]


@pytest.mark.parametrize(
    ("there", "asked", "chosen"),
    [
        (("m-Q8_0.gguf", "m-Q4_K_M.gguf"), None, ["m-Q4_K_M.gguf"]),
        (("m-F16.gguf", "m-Q8_0.gguf"), None, ["m-Q8_0.gguf"]),
        (("m.IQ2_XS.gguf", "m.TQ1_0.gguf"), None, ["m.IQ2_XS.gguf"]),
        (("mmproj-m-f16.gguf", "m-q8_0.gguf"), None, ["m-q8_0.gguf"]),
        (("a/m-Q4_0.gguf", "b/m-Q5_K_S.gguf"), "q5_k_s", ["b/m-Q5_K_S.gguf"]),
        (("a/m.gguf", "b/n.gguf"), "N.gguf", ["b/n.gguf"]),
        (
            ("m-Q8_0-00002-of-00002.gguf", "m-Q8_0-00001-of-00002.gguf"),
            "Q8_0",
            ["m-Q8_0-00001-of-00002.gguf", "m-Q8_0-00002-of-00002.gguf"],
        ),
    ],
)
def test_hf01_the_file_that_is_meant_is_chosen(
    there: tuple[str, ...], asked: str | None, chosen: list[str]
) -> None:
    found = choose(files(*there), HuggingFace("o", "r", asked))

    assert [file.path for file in found] == chosen


@pytest.mark.parametrize(
    ("there", "asked", "message"),
    [
        (("README.md",), None, "no GGUF file"),
        (("m-Q8_0.gguf",), "Q4_0", "no GGUF file for Q4_0"),
        (("m-00001-of-00003.gguf", "m-00002-of-00003.gguf"), None, "lacks m-00003-of-00003"),
    ],
)
def test_what_is_not_there_is_told(there: tuple[str, ...], asked: str | None, message: str) -> None:
    with pytest.raises(CliError, match=message):
        choose(files(*there), HuggingFace("o", "r", asked))


def test_hf04_the_saved_token_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from llamay_cli.pull import huggingface

    monkeypatch.setenv("HF_TOKEN_PATH", str(tmp_path / "token"))
    assert huggingface._token() is None
    (tmp_path / "token").write_text("hf_saved\n")
    assert huggingface._token() == "hf_saved"
