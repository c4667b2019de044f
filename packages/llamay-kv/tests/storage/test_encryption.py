"""Encrypted data can be read with its key only, unchanged, and by its owner."""

import contextlib
import hashlib
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kv_crash import CrashVfs, Inode

from llamay_kv import Identity, Key, Layout, NotAllowedError, Pool, SnapshotError, inspect, rekey, verify
from llamay_kv._kv import crc64
from llamay_kv.snapshots.format import HEADER

LAYOUT = Layout.uniform(1, 1, 4, 2, "f16")
KEY, OTHER = Key("2026", b"k" * 32), Key("2027", b"o" * 32)
SECRET = b"the sampler's state, which nobody else may see"


@pytest.fixture
def pool():
    return Pool(LAYOUT, 64, pages=8)


def filled(pool, n=130, seed=0):
    context, rng = pool.context(), np.random.default_rng(seed)
    with context.reserve(n) as lease:
        k, v = (rng.standard_normal((n, 1, d)).astype("f4") for d in (4, 2))
        lease.write(0, k, v)
        lease.commit(rng.integers(0, 1000, n, dtype=np.int32))
    context.side = {"sampler": (1, SECRET)}
    return context


def same(a, b):
    assert (a.tokens, a.side, a.owner, a.marking) == (b.tokens, b.side, b.owner, b.marking)
    for x, y in zip(a.read(0), b.read(0), strict=True):
        np.testing.assert_array_equal(x, y)


@settings(max_examples=30, deadline=None)
@given(n=st.integers(0, 200), page=st.sampled_from([16, 64, 256]))
def test_what_is_encrypted_comes_back_with_its_key(n, page):
    pool, vfs = Pool(LAYOUT, page, pages=32), CrashVfs()
    context = filled(pool, n)
    manifest = context.save("s", key=KEY, vfs=vfs)
    assert len(vfs.names["s"].data) == manifest.file_bytes
    same(context, pool.restore("s", keys=[OTHER, KEY], vfs=vfs))
    assert verify("s", keys=KEY, vfs=vfs) == inspect("s", vfs=vfs) == manifest


def test_nothing_of_the_contents_shows(tmp_path, pool):
    context = filled(pool)
    context.save(tmp_path / "plain")
    context.save(tmp_path / "sealed", key=KEY)
    plain, sealed = ((tmp_path / name).read_bytes() for name in ("plain", "sealed"))
    for secret in (
        SECRET,
        np.array(context.tokens[:8], "<i4").tobytes(),
        context.packed_view(0, 0, 64).tobytes()[:64],
    ):
        assert secret in plain
        assert secret not in sealed
    assert b'tokens_sha256":null' in sealed
    assert "kkkk" not in repr(KEY)
    assert KEY.secret in pickle.dumps(KEY)


def test_j23_two_saves_of_one_context_share_no_key_stream(tmp_path, pool):
    context = filled(pool)
    context.save(tmp_path / "a", key=KEY)
    context.save(tmp_path / "b", key=KEY)
    a, b = ((tmp_path / name).read_bytes() for name in "ab")
    assert a[-200:] != b[-200:]


def test_without_the_key_nothing_is_restored(tmp_path, pool):
    filled(pool).save(tmp_path / "s", key=KEY)
    used = pool.used_bytes
    for keys in (None, [], OTHER, [OTHER]):
        with pytest.raises(SnapshotError, match="encrypted under the key '2026', which was not given"):
            pool.restore(tmp_path / "s", keys=keys)
    with pytest.raises(SnapshotError, match="the frame is not authentic"):
        pool.restore(tmp_path / "s", keys=Key("2026", b"x" * 32))
    assert pool.used_bytes == used
    with pytest.raises(ValueError, match="a secret of at least 32 bytes, not 5"):
        Key("a", b"short")


def refused(pool, data, **options):
    vfs = CrashVfs()
    vfs.names["s"] = Inode(bytearray(data))
    with pytest.raises(SnapshotError) as caught:
        pool.restore("s", keys=KEY, vfs=vfs, **options)
    assert pool.used_bytes == 0
    return caught.value.part


def test_j23_every_single_byte_corruption_and_every_truncation_is_refused(tmp_path, pool):
    with filled(pool, 70) as context:
        context.save(tmp_path / "s", key=KEY)
    good = (tmp_path / "s").read_bytes()
    rng = np.random.default_rng(0)
    parts = set()
    for i in range(len(good)):
        bad = bytearray(good)
        bad[i] ^= int(rng.integers(1, 256))
        parts.add(refused(pool, bad))
        refused(pool, good[:i])
    chunks = {"chunk 0 of group 0", "chunk 1 of group 0"}
    assert parts == {"header", "manifest", "tokens", "side state 'sampler'", *chunks}


def forge(data, old, new):
    """Change the manifest and make every checksum right again."""
    size = HEADER.unpack(data[:72])[3]
    manifest = data[72 : 72 + size].replace(old, new)
    assert manifest != data[72 : 72 + size]
    flags = HEADER.unpack(data[:72])[2]
    total = len(data) - size + len(manifest)
    digest = hashlib.sha256(manifest).digest()
    head = HEADER.pack(b"LLAMAYKV", 1, flags, len(manifest), total, digest, 0)[:-8]
    return head + crc64(head).to_bytes(8, "little") + manifest + data[72 + size :]


def test_j23_whoever_changes_the_manifest_is_found_out(tmp_path, pool):
    with filled(pool, 70) as context:
        context.owner, context.marking = "alice", "secret"
        context.save(tmp_path / "s", key=KEY, identity=Identity(weights="a"))
    good = (tmp_path / "s").read_bytes()
    options = {"owner": "alice", "markings": ["secret", "public"], "identity": Identity(weights="a")}
    for old, new in [
        (b'"owner":"alice"', b'"owner":null'),
        (b'"marking":"secret"', b'"marking":"public"'),
    ]:
        assert refused(pool, forge(good, old, new), **options) == "tokens"
    assert (
        refused(pool, forge(good, b"s:a", b"s:b"), **options | {"identity": Identity(weights="b")})
        == "tokens"
    )


def test_frames_cannot_change_places_or_files(tmp_path, pool):
    contexts = [filled(pool, 128, seed) for seed in (0, 1)]
    files = []
    for i, context in enumerate(contexts):
        context.save(tmp_path / str(i), key=KEY)
        files.append((tmp_path / str(i)).read_bytes())
        context.close()
    size = 64 * 12 + 16
    a, b = files[0][-2 * size : -size], files[0][-size:]
    assert refused(pool, files[0][: -2 * size] + b + a) == "chunk 0 of group 0"
    assert refused(pool, files[0][:-size] + files[1][-size:]) == "chunk 1 of group 0"
    assert refused(pool, files[0][:-size] + a) == "chunk 1 of group 0"


def test_a_new_key_takes_the_place_of_the_old(tmp_path, pool):
    context, path = filled(pool), tmp_path / "s"
    plain = context.save(path)
    assert rekey(path, KEY).encryption.key == "2026"
    assert rekey(path, OTHER, keys=KEY).encryption.key == "2027"
    with pytest.raises(SnapshotError, match="under the key '2027'"):
        pool.restore(path, keys=KEY)
    same(context, pool.restore(path, keys=OTHER))
    with pytest.raises(SnapshotError, match="which was not given"):
        rekey(path, KEY, keys=KEY)
    assert rekey(path, None, keys=OTHER) == plain
    same(context, pool.restore(path))


def test_a_rekey_that_fails_leaves_the_old_file(pool):
    context = filled(pool)
    vfs = CrashVfs()
    context.save("s", key=KEY, vfs=vfs)
    for n in range(1, 200):
        vfs.steps, vfs.fail_at, vfs.failed = 0, n, ""
        with contextlib.suppress(OSError):
            rekey("s", Key("2026", b"n" * 32), keys=KEY, vfs=vfs)
        vfs.fail_at = 0
        if not vfs.failed or vfs.failed == "sync directory":
            break
        pool.restore("s", keys=KEY, vfs=vfs).close()
    else:
        pytest.fail("it never came to its end")
    same(context, pool.restore("s", keys=Key("2026", b"n" * 32), vfs=vfs))


def test_owner_and_marking_travel_and_are_asked_for(tmp_path, pool):
    context = filled(pool)
    context.owner, context.marking = "alice", "confidential"
    fork = context.fork()
    with fork.reserve(1) as lease:
        lease.commit([1])
    assert (fork.owner, fork.marking) == ("alice", "confidential")
    with pytest.raises(ValueError, match="is marked 'confidential', and a marking stays"):
        fork.marking = None
    fork.owner = "bob"
    manifest = fork.save(tmp_path / "s", key=KEY)
    assert (manifest.owner, manifest.marking) == ("bob", "confidential")
    for owner, markings, message in [
        ("alice", ["confidential"], "the snapshot has another owner"),
        (None, ["confidential"], "the snapshot has another owner"),
        ("bob", [], "is marked 'confidential', which the caller does not handle"),
    ]:
        with pytest.raises(NotAllowedError, match=message):
            pool.restore(tmp_path / "s", keys=KEY, owner=owner, markings=markings)
    same(fork, pool.restore(tmp_path / "s", keys=KEY, owner="bob", markings=["confidential"]))
    with pytest.raises(NotAllowedError, match="is marked 'confidential' and stays encrypted"):
        rekey(tmp_path / "s", None, keys=KEY)
    with pytest.raises(SnapshotError, match="snapshots without one are refused here"):
        pool.restore(
            tmp_path / "s", keys=KEY, owner="bob", markings=["confidential"], identity=Identity(weights="a")
        )


def test_an_older_file_put_back_is_refused_by_who_has_noted_the_digest(tmp_path, pool):
    context, path = filled(pool), tmp_path / "s"
    old = context.save(path, key=KEY)
    kept = path.read_bytes()
    new = context.save(path, key=KEY)  # of the very same context
    assert old.digest != new.digest
    same(context, pool.restore(path, keys=KEY, digest=new.digest))
    path.write_bytes(kept)
    used = pool.used_bytes
    with pytest.raises(SnapshotError, match="not the snapshot that was asked for"):
        pool.restore(path, keys=KEY, digest=new.digest)
    assert pool.used_bytes == used
    same(context, pool.restore(path, keys=KEY, digest=old.digest))


def test_a_frame_of_an_earlier_save_of_the_same_context_is_refused(tmp_path, pool):
    with filled(pool, 128) as context:
        files = []
        for _ in range(2):
            context.save(tmp_path / "s", key=KEY)
            files.append((tmp_path / "s").read_bytes())
    size = 64 * 12 + 16
    assert refused(pool, files[1][:-size] + files[0][-size:]) == "chunk 1 of group 0"
