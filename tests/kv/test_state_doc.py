"""The pages about state say what is so."""

import re
from pathlib import Path

import pytest

import llamay_kv
from llamay_kv import BlockStore, DiskCache, Identity, Key, PrefixTree, diff, inspect, rekey, sweep, verify

DOCS = Path(__file__).parents[2] / "docs"


def blocks(name):
    return re.findall(r"```python\n(.*?)```", (DOCS / name).read_text(), re.DOTALL)


def test_the_examples_run_in_the_order_of_the_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("snapshots").mkdir()
    first, rows, recurrent, spill, snapshots, tree, cache, s3, backend, uses, compare = blocks("state.md")
    assert "write_state" in recurrent, "that one needs a recurrent layout"
    assert "Spill" in spill, "that one takes 64 GiB of disk"
    assert "obstore" in s3, "that one needs a bucket"
    names = {
        "BlockStore": lambda path, **options: BlockStore(path, **options | {"min_free_bytes": 0}),
        "DiskCache": lambda path, **options: DiskCache(tmp_path / "cache", **options | {"min_free_bytes": 0}),
        "Key": Key,
        "PrefixTree": PrefixTree,
        "diff": diff,
        "identity": Identity(weights=b"w"),
        "rekey": rekey,
        "secret": b"s" * 32,
        "new_key": Key("2027", b"n" * 32),
        "sweep": sweep,
        "system_prompt": [],
        "tokens": [11, 12, 13, 14],
        "print": lambda value: None,
    }
    exec(first, names)
    fork = names["fork"]
    exec(rows, names | {"context": fork.fork(), "digest": b"d" * 32})
    exec(snapshots, names)
    assert names["context"].tokens == fork.tokens
    exec(tree, names)
    assert len(names["context"]) == 3
    exec(cache, names)
    names["cache"].close()
    for name in ("a.kv", "b.kv"):
        fork.save(name)
    exec(compare, names)
    exec(backend, names)
    exec(uses, names)
    assert Path("state.db").exists()


def test_every_public_name_is_described():
    text = "".join(
        (DOCS / f"{name}.md").read_text()
        for name in ("state", "snapshot-format", "disk-cache", "adapters", "transformers")
    )
    words = set(re.findall(r"\w+", text.lower()))
    unexplained = {
        "INTERFACE",
        "File",
        "LocalVfs",
        "Vfs",
        "Layer",
        "ClosedError",
        "Miss",
        "Pin",
        "Difference",
    }
    assert {name.lower() for name in set(llamay_kv.__all__) - unexplained} <= words


@pytest.mark.parametrize("read", [inspect, verify])
def test_a_file_that_is_no_snapshot_says_so(tmp_path, read):
    (tmp_path / "x").write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(llamay_kv.SnapshotError, match="this is not a llamay snapshot"):
        read(tmp_path / "x")
