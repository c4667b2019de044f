"""Stored state can be looked after from the command line, and every verb can say it in JSON."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from llamay_kv import Context, DiskCache, Identity, Key, Layout, Pool, inspect, rekey, verify

POOL = Pool(Layout.uniform(1, 1, 4, 2), pages=64)
US = Identity(weights=b"w" * 32, rope_base=10_000.0)


def context(n: int = 130, seed: int = 0) -> Context:
    made, rng = POOL.context(), np.random.default_rng(seed)
    with made.reserve(n) as lease:
        lease.write(0, *(rng.standard_normal((n, 1, d), np.float32) for d in (4, 2)))
        lease.commit(range(n))
    made.side = {"sampler": (1, b"state")}
    return made


@pytest.fixture
def file(tmp_path: Path) -> Path:
    context().save(tmp_path / "a.llamay", identity=US)
    return tmp_path / "a.llamay"


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    (tmp_path / "mine.key").write_text("ab" * 32 + "\n")
    return tmp_path / "mine.key"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with DiskCache(tmp_path / "cache", budget_bytes=1 << 20, min_free_bytes=0) as cache:
        cache.save(context(200), identity=US)
    return tmp_path / "cache"


def test_inspect_shows_what_a_file_is(llamay, file):
    result = llamay("ctx", "inspect", file)
    assert result.exit_code == 0
    for word in ("130", "every byte checked", "group 0       full, 1 layers, f16", "sampler", "rope_base"):
        assert word in result.stdout
    found = json.loads(llamay("ctx", "inspect", file, "--json").stdout)
    assert (found["tokens"], found["checked"], found["format"]) == (130, True, 1)
    assert llamay("ctx", "inspect", file, "--tokens").stdout.split() == [str(i) for i in range(130)]


def test_inspect_says_in_what_precision_it_was_computed(llamay, tmp_path):
    context().save(tmp_path / "q", identity=US, precision="q8")
    assert "q8, computed in f16" in llamay("ctx", "inspect", tmp_path / "q").stdout


def test_verify_names_the_damaged_part(llamay, file, tmp_path):
    assert llamay("ctx", "verify", file).exit_code == 0
    data = bytearray(file.read_bytes())
    data[-30] ^= 1
    (tmp_path / "bad").write_bytes(data)
    result = llamay("ctx", "verify", file, tmp_path / "bad", "--json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert [row["ok"] for row in found["files"]] == [True, False]
    assert found["files"][1]["part"] == "chunk 2 of group 0"
    assert "DAMAGED: chunk 2 of group 0: its checksum" in llamay("ctx", "verify", tmp_path / "bad").stdout
    assert llamay("ctx", "verify", tmp_path / "nothing").exit_code == 3


def test_a_key_is_made_given_and_changed(llamay, file, tmp_path):
    one, two = tmp_path / "one.key", tmp_path / "two.key"
    result = llamay("ctx", "rekey", file, "--new-key", one, "--generate")
    assert result.exit_code == 0, result.output
    assert "encrypted under 'one'" in result.stdout
    assert one.stat().st_mode & 0o777 == 0o600
    assert llamay("ctx", "verify", file).exit_code == 1
    assert llamay("ctx", "verify", file, "--key", one).exit_code == 0
    assert '"checked": false' in llamay("ctx", "inspect", file, "--json").stdout
    assert "every byte checked" in llamay("ctx", "inspect", file, "--key", one).stdout
    assert llamay("ctx", "rekey", file, "--new-key", one, "--generate").exit_code == 5, "never overwritten"
    new = llamay("ctx", "rekey", file, "--key", one, "--new-key", f"2027={two}", "--generate", "--json")
    assert json.loads(new.stdout)["files"][0]["key"] == "2027"
    secret = bytes.fromhex(two.read_text())
    assert verify(file, keys=Key("2027", secret)).n_tokens == 130
    assert llamay("ctx", "rekey", file, "--key", f"2027={two}", "--decrypt").exit_code == 0
    assert inspect(file).encryption is None


@pytest.mark.parametrize(
    "arguments", [(), ("--decrypt", "--new-key", "k"), ("--decrypt", "--generate"), ("--generate",)]
)
def test_rekey_wants_one_thing(llamay, file, arguments):
    assert llamay("ctx", "rekey", file, *arguments).exit_code == 2


def test_a_short_or_missing_key_file_is_an_error(llamay, file, tmp_path):
    (tmp_path / "short").write_bytes(b"abc")
    result = llamay("ctx", "rekey", file, "--new-key", tmp_path / "short")
    assert result.exit_code == 1
    assert "has 3 bytes" in result.stderr
    assert llamay("ctx", "rekey", file, "--new-key", tmp_path / "none").exit_code == 3


def test_a_marked_file_is_not_decrypted(llamay, tmp_path, key_file):
    made = context()
    made.marking = "secret"
    made.save(tmp_path / "m")
    rekey(tmp_path / "m", Key("mine", bytes.fromhex("ab" * 32)))
    result = llamay("ctx", "rekey", tmp_path / "m", "--key", key_file, "--decrypt")
    assert result.exit_code == 1
    assert "stays encrypted" in result.stderr


def test_diff_says_where(llamay, file, tmp_path):
    same = llamay("ctx", "diff", file, file)
    assert (same.exit_code, same.stdout) == (0, "no difference in 130 tokens\n")
    other = context()
    k, v = other.read(0, 70, 71)
    other.overwrite(0, 70, k + 1, v)
    other.save(tmp_path / "b", identity=Identity(weights=b"w" * 32, rope_base=1.0))
    result = llamay("ctx", "diff", file, tmp_path / "b", "--json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert (found["identity"], found["values"], found["side"]) == ("rope_base", [[0, 64, 128]], ["sampler"])
    text = llamay("ctx", "diff", file, tmp_path / "b").stdout
    assert "K/V           group 0, positions 64 to 127" in text


def test_gc_removes_what_was_left_and_nothing_else(llamay, file):
    left = file.parent / ".a.llamay.1-2.partial"
    left.write_bytes(b"x")
    os.utime(left, (1, 1))
    result = llamay("ctx", "gc", file.parent, "--json")
    assert list(json.loads(result.stdout)["removed"]) == [left.name]
    assert file.exists()
    assert llamay("ctx", "gc", file).exit_code == 1


def test_a_cache_folder_is_inspected_verified_and_trimmed(llamay, folder):
    assert json.loads(llamay("ctx", "inspect", folder, "--json").stdout)["chunks"] == 3
    assert "chunks        3 (" in llamay("ctx", "inspect", folder).stdout
    assert llamay("ctx", "verify", folder).exit_code == 0
    victim = sorted(folder.glob("*.kvc"))[0]
    data = bytearray(victim.read_bytes())
    data[-1] ^= 1
    victim.write_bytes(data)
    result = llamay("ctx", "verify", folder, "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["files"][0]["file"].endswith(victim.name)
    removed = json.loads(llamay("ctx", "gc", folder, "--damaged", "--json").stdout)
    assert list(removed["removed"]) == [victim.name]
    assert llamay("ctx", "verify", folder).exit_code == 0
    json.loads(llamay("ctx", "gc", folder, "--budget", "1k", "--json").stdout)
    assert len(list(folder.glob("*.kvc"))) == 1
    assert json.loads(llamay("ctx", "gc", folder, "--older-than", "1h", "--json").stdout)["removed"] == {}
    assert llamay("ctx", "gc", folder, "--older-than", "soon").exit_code == 2
    assert llamay("ctx", "rekey", folder, "--decrypt").exit_code == 1


def test_a_folder_under_a_key_needs_it(llamay, tmp_path, key_file):
    key = Key("mine", bytes.fromhex("ab" * 32))
    with DiskCache(tmp_path / "c", budget_bytes=1 << 20, min_free_bytes=0, key=key) as cache:
        cache.save(context(64))
    assert llamay("ctx", "verify", tmp_path / "c").exit_code == 1
    assert llamay("ctx", "verify", tmp_path / "c", "--key", key_file).exit_code == 0


def test_explain_miss_names_the_field_or_the_token(llamay, file, tmp_path):
    other = context()
    other.truncate(100)
    with other.reserve(1) as lease:
        lease.commit([7])
    other.save(tmp_path / "b", identity=Identity(weights=b"w" * 32, rope_base=1.0))
    found = json.loads(llamay("ctx", "explain-miss", file, tmp_path / "b", "--json").stdout)
    assert (found["equal"], found["identity"], found["layout"]) == (100, "rope_base", None)
    assert found["token"] == {"position": 100, "stored": 100, "wanted": 7}
    text = llamay("ctx", "explain-miss", file, tmp_path / "b").stdout
    assert (
        "100 of 101 tokens are the same; token 100 is 100, 7 was wanted; the identity differs in rope_base"
        in text
    )
    assert "the stored state can be used" in llamay("ctx", "explain-miss", file, file).stdout


def test_explain_miss_on_a_cache(llamay, folder, file, tmp_path):
    found = json.loads(llamay("ctx", "explain-miss", folder, file, "--json").stdout)
    assert (found["length"], found["stored"], found["reason"]) == (130, 128, "complete")
    context().save(tmp_path / "other", identity=Identity(weights=b"x"))
    assert "nothing here begins with them" in llamay("ctx", "explain-miss", folder, tmp_path / "other").stdout
    assert "nothing here begins" in llamay("ctx", "explain-miss", folder, file, "--tenant", "alice").stdout
    made = context(64)
    with made.reserve(64) as lease:
        lease.commit([9] * 64)
    made.save(tmp_path / "branch", identity=US)
    assert (
        "no history here goes on to token 128"
        in llamay("ctx", "explain-miss", folder, tmp_path / "branch").stdout
    )
    for victim in folder.glob("*.kvc"):
        victim.write_bytes(victim.read_bytes()[:-1])
    found = json.loads(llamay("ctx", "explain-miss", folder, file, "--json").stdout)
    assert (found["reason"], found["stored"]) == ("damaged", 0)
