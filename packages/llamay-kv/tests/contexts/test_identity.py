"""Two states are of one kind only if everything agrees that they depend on, whenever they were stored."""

import numpy as np
import pytest

from llamay_kv import (
    DiskCache,
    Identity,
    IdentityMismatchError,
    Layout,
    NotAllowedError,
    Pool,
    PrefixTree,
    SnapshotError,
)

OLD = Identity(weights=b"w" * 32, arithmetic=3, rope=b"r", adapter=None)
NEW = Identity(OLD.fields, operations=b"ops", layer_kinds="attention", device="cpu")
LAYOUT = Layout.uniform(1, 1, 2)


def changed(identity, **fields):
    return Identity({**identity.fields, **fields})


@pytest.fixture
def pool():
    return Pool(LAYOUT, 64, pages=40)


@pytest.fixture
def context(pool):
    context = pool.context()
    context.extend(range(100), {0: (np.ones((100, 1, 2), "f4"),) * 2})
    return context


def test_a_snapshot_from_before_a_field_was_there_stands_for_what_is_implied(context, tmp_path):
    context.save(tmp_path / "s", identity=OLD)
    pool = Pool(LAYOUT, 64, pages=40)
    with pytest.raises(IdentityMismatchError, match="another device: none, not 'cpu'"):
        pool.restore(tmp_path / "s", identity=NEW)
    wanted = NEW.implying(operations=b"ops", layer_kinds="attention", device="cpu")
    assert pool.restore(tmp_path / "s", identity=wanted).tokens == context.tokens
    for name, value in (("operations", b"others"), ("layer_kinds", "scan"), ("device", "cuda")):
        other = changed(NEW, **{name: value}).implying(
            operations=b"ops", layer_kinds="attention", device="cpu"
        )
        with pytest.raises(IdentityMismatchError) as caught:
            pool.restore(tmp_path / "s", identity=other)
        assert (caught.value.field, caught.value.part) == (name, "identity")
        assert caught.value.wanted == (value.hex() if isinstance(value, bytes) else repr(value))
    for name, value in (("weights", b"v" * 32), ("arithmetic", 4), ("adapter", b"a")):
        with pytest.raises(IdentityMismatchError, match=f"the state belongs to another {name}: "):
            pool.restore(tmp_path / "s", identity=changed(NEW, **{name: value}).implying(wanted._implied))


def test_what_a_snapshot_says_counts_whatever_is_implied(context, tmp_path):
    context.save(tmp_path / "s", identity=changed(NEW, device="vulkan"))
    with pytest.raises(IdentityMismatchError, match=r"s: identity: .* another device: 'vulkan', not 'cpu'"):
        Pool(LAYOUT, 64, pages=4).restore(tmp_path / "s", identity=NEW.implying(device="cpu"))


def test_some_fields_may_be_implied_and_others_not(context, tmp_path):
    context.save(tmp_path / "s", identity=OLD)
    with pytest.raises(IdentityMismatchError, match="another operations: none"):
        Pool(LAYOUT, 64, pages=4).restore(
            tmp_path / "s", identity=NEW.implying({"device": "cpu"}, layer_kinds="attention")
        )


def test_less_precision_is_asked_for_in_old_snapshots_too(context, tmp_path):
    context.save(tmp_path / "s", identity=OLD, precision="q8")
    wanted = NEW.implying(operations=b"ops", layer_kinds="attention", device="cpu")
    pool = Pool(LAYOUT, 64, pages=4)
    assert len(pool.restore(tmp_path / "s", identity=wanted.stored_as("q8"))) == 100
    with pytest.raises(IdentityMismatchError, match="another payload"):
        pool.restore(tmp_path / "s", identity=wanted)


def test_tree_and_disk_find_what_has_exactly_these_fields(context, pool, tmp_path):
    tree = PrefixTree(pool, pool.budget_bytes)
    wanted = NEW.implying(operations=b"ops", layer_kinds="attention", device="cpu")
    assert (wanted, wanted.digest, hash(wanted)) == (NEW, NEW.digest, hash(NEW))
    tree.insert(context, identity=OLD)
    with DiskCache(tmp_path, budget_bytes=1 << 20, min_free_bytes=0) as cache:
        cache.save(context, identity=OLD)
        cache.flush()
        assert len(cache.load(pool, range(100), identity=OLD)) == 64
        for identity in (NEW, wanted):
            assert len(tree.match(range(100), identity=identity)) == 0
            assert len(cache.load(pool, range(100), identity=identity)) == 0


def test_only_fields_of_its_own_can_be_implied():
    with pytest.raises(ValueError, match="the identity has no field 'colour' that could be implied"):
        NEW.implying(device="cpu", colour="red")


def test_every_refusal_is_a_snapshot_error(context, pool, tmp_path):
    context.owner, context.marking = "alice", "secret"
    context.save(tmp_path / "s", identity=OLD)
    for asked, part in (
        ({"identity": NEW, "owner": "alice", "markings": ["secret"]}, "identity"),
        ({"owner": "bob", "markings": ["secret"]}, "owner"),
        ({"owner": "alice"}, "marking"),
    ):
        with pytest.raises(SnapshotError) as caught:
            pool.restore(tmp_path / "s", **asked)
        error = caught.value
        assert (error.part, error.path, isinstance(error, ValueError)) == (part, str(tmp_path / "s"), True)
        assert (
            isinstance(error, PermissionError) == isinstance(error, NotAllowedError) == (part != "identity")
        )
        assert str(error) == f"{error.path}: {part}: {error.reason}"
