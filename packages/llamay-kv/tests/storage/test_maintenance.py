"""Two snapshots are compared position by position, and files left by processes that ended are swept away."""

import os

import numpy as np
import pytest

from llamay_kv import Group, Identity, Key, Layer, Layout, Pool, SnapshotError, diff, sweep

LAYOUT = Layout([Group.full([Layer(0, 2, 3, 4)], "q8"), Group.sliding(40, [Layer(1, 1, 2, 2)], "f16")])
KEY = Key("k", b"k" * 32)


def extend(context, tokens, seed=0):
    rng = np.random.default_rng(seed)
    n = len(tokens)
    with context.reserve(n) as lease:
        for index, heads, k_dim, v_dim in ((0, 2, 3, 4), (1, 1, 2, 2)):
            k, v = (rng.standard_normal((n, heads, d)).astype("f4") for d in (k_dim, v_dim))
            lease.write(index, k, v)
        lease.commit(tokens)
    return context


@pytest.fixture
def context():
    return extend(Pool(LAYOUT, 16, pages=64).context(), range(150))


def test_equal_contexts_have_no_difference_however_they_are_encrypted(tmp_path, context):
    context.save(tmp_path / "a")
    context.fork().save(tmp_path / "b", key=KEY)
    found = diff(tmp_path / "a", tmp_path / "b", keys=KEY)
    assert not found
    assert found.to_json()["equal"] is True
    assert found.tokens == (150, 150, 150)
    with pytest.raises(SnapshotError, match="which was not given"):
        diff(tmp_path / "a", tmp_path / "b")


def test_the_first_token_that_differs_is_where_comparing_ends(tmp_path, context):
    fork = context.fork()
    context.save(tmp_path / "a")
    fork.truncate(140)
    extend(fork, [7, 8, 9], seed=5)
    fork.save(tmp_path / "b")
    found = diff(tmp_path / "a", tmp_path / "b")
    assert found
    assert (found.tokens, found.values, found.layout, found.identity) == ((150, 143, 140), (), None, None)


def test_values_that_differ_after_the_same_tokens_are_named(tmp_path, context):
    context.save(tmp_path / "a")
    fork = context.fork()
    k, v = fork.read(0, 70, 71)
    fork.overwrite(0, 70, k + 1, v)
    k, v = fork.read(1, 149, 150)
    fork.overwrite(1, 149, k, v + 1)
    fork.save(tmp_path / "b")
    assert diff(tmp_path / "a", tmp_path / "b").values == ((0, 64, 128), (1, 128, 150))


def test_what_else_differs_is_named(tmp_path, context):
    context.save(tmp_path / "a", identity=Identity(weights="a", rope=1), side={"x": (1, b"1"), "y": (1, b"")})
    fork = context.fork()
    fork.owner = "alice"
    fork.save(tmp_path / "b", identity=Identity(weights="a", rope=2), side={"x": (2, b"1"), "z": (1, b"")})
    found = diff(tmp_path / "a", tmp_path / "b")
    assert (found.identity, found.side, found.labels) == ("rope", ("x", "y", "z"), ("owner",))
    fork.save(tmp_path / "b")
    assert diff(tmp_path / "a", tmp_path / "b").identity == "identity"
    Pool(Layout.uniform(1, 1, 1), pages=1).context().save(tmp_path / "b")
    assert diff(tmp_path / "a", tmp_path / "b").layout == "2 groups, not 1"


def test_damage_is_an_error_and_not_a_difference(tmp_path, context):
    context.save(tmp_path / "a")
    data = bytearray((tmp_path / "a").read_bytes())
    data[-20] ^= 1
    (tmp_path / "b").write_bytes(data)
    with pytest.raises(SnapshotError, match="its checksum does not match"):
        diff(tmp_path / "a", tmp_path / "b")


def test_only_what_was_abandoned_is_swept(tmp_path, context):
    context.save(tmp_path / "a")
    for name in (".a.1-2.partial", ".b.1-2.partial", "mine.partial"):
        (tmp_path / name).write_bytes(b"x")
    for name in (".a.1-2.partial", "mine.partial", "a"):
        os.utime(tmp_path / name, (1, 1))
    assert sweep(tmp_path) == [".a.1-2.partial"]
    assert sorted(p.name for p in tmp_path.iterdir()) == [".b.1-2.partial", "a", "mine.partial"]
