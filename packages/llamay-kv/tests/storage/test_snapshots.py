"""A snapshot comes back byte for byte or not at all."""

import hashlib
import json
import os
import struct
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kv_crash import CrashVfs, Inode, PowerLoss

from llamay_kv import (
    Group,
    Identity,
    IdentityMismatchError,
    Layer,
    Layout,
    LegacyWarning,
    LocalVfs,
    OutOfPagesError,
    Pool,
    SnapshotError,
    inspect,
    rekey,
    verify,
)
from llamay_kv._kv import crc64
from llamay_kv.snapshots.format import HEADER, MAGIC

IDENTITY = Identity(weights=b"\x01" * 32, rope_base=10000.0, precision="f16", tenant=None)


def fill(context, n, rng):
    with context.reserve(n) as lease:
        for group in context.pool.layout.groups:
            for layer in group.layers:
                k = rng.standard_normal((n, layer.kv_heads, layer.k_dim)).astype(np.float32)
                v = rng.standard_normal((n, layer.kv_heads, layer.v_dim)).astype(np.float32)
                lease.write(layer.index, k, v)
        lease.commit(rng.integers(0, 2**31, n, dtype=np.int32))


def same(a, b):
    assert a.tokens == b.tokens
    assert a.side == b.side
    first = np.maximum(a.first_positions(), b.first_positions())
    for g, group in enumerate(a.pool.layout.groups):
        for layer in group.layers:
            for x, y in zip(
                a.read(layer.index, int(first[g])),
                b.read(layer.index, int(first[g])),
                strict=True,
            ):
                np.testing.assert_array_equal(x, y)


LAYOUTS = [
    Layout.uniform(2, 2, 8, 4, "f16"),
    Layout.uniform(1, 1, 3, 5, "f32"),
    Layout(
        [
            Group.full([Layer(0, 1, 4, 4), Layer(2, 2, 3, 1)], "f32"),
            Group.sliding(40, [Layer(1, 1, 16, 16)], "f16"),
        ]
    ),
    Layout([Group.full([Layer(0, 2, 5, 4)], "q8"), Group.sliding(33, [Layer(1, 1, 4, 7)], "vq8")]),
]


@settings(max_examples=60, deadline=None)
@given(
    layout=st.sampled_from(LAYOUTS),
    n=st.integers(0, 300),
    steps=st.integers(1, 4),
    sizes=st.tuples(*[st.sampled_from([16, 32, 64, 128, 512])] * 2),
)
def test_what_is_restored_equals_what_was_saved_in_pages_of_any_size(
    tmp_path_factory, layout, n, steps, sizes
):
    path = tmp_path_factory.mktemp("snapshot") / "s"
    rng = np.random.default_rng(n)
    context = Pool(layout, sizes[0], pages=64).context()
    for _ in range(steps):
        fill(context, n // steps, rng)
    context.side = {"sampler": (2, b"abc"), "logits": (1, b"")}
    manifest = context.save(path, identity=IDENTITY)
    assert path.stat().st_size == manifest.file_bytes
    assert inspect(path) == verify(path) == manifest
    pool = Pool(layout, sizes[1], pages=64)
    restored = pool.restore(path, identity=IDENTITY)
    same(context, restored)
    pool.audit()
    with restored.reserve(3) as lease:
        lease.commit([1, 2, 3])
    restored.save(path)
    restored.close()
    assert pool.used_bytes == 0


def test_the_same_context_gives_the_same_bytes_from_any_page_size(tmp_path):
    layout = LAYOUTS[2]
    context = Pool(layout, 16, pages=64).context()
    fill(context, 200, np.random.default_rng(0))
    context.save(tmp_path / "a")
    Pool(layout, 128, pages=64).restore(tmp_path / "a").save(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def small(tmp_path, layout=LAYOUTS[2], n=70):
    context = Pool(layout, 64, pages=8).context()
    fill(context, n, np.random.default_rng(1))
    path = tmp_path / "small"
    context.save(path, identity=IDENTITY, side={"matcher": (1, b"state")})
    return path


def refuse(path, data, pool, part=None):
    path.write_bytes(data)
    with pytest.raises(SnapshotError) as caught:
        pool.restore(path, identity=IDENTITY)
    assert pool.used_bytes == 0
    assert str(path) in str(caught.value)
    if part is not None:
        assert caught.value.part == part
    return caught.value


def test_every_single_byte_corruption_is_refused(tmp_path):
    path = small(tmp_path, Layout.uniform(1, 1, 2, 1, "f16"))
    good = path.read_bytes()
    pool = Pool(Layout.uniform(1, 1, 2, 1, "f16"), 64, pages=8)
    rng = np.random.default_rng(0)
    parts = set()
    for i in range(len(good)):
        bad = bytearray(good)
        bad[i] ^= int(rng.integers(1, 256))
        parts.add(refuse(path, bad, pool).part)
    assert parts == {
        "header",
        "manifest",
        "tokens",
        "side state 'matcher'",
        "chunk 0 of group 0",
        "chunk 1 of group 0",
    }


def test_every_truncation_and_any_addition_is_refused(tmp_path):
    path = small(tmp_path, Layout.uniform(1, 1, 2, 1, "f16"))
    good = path.read_bytes()
    pool = Pool(Layout.uniform(1, 1, 2, 1, "f16"), 64, pages=8)
    for n in range(len(good)):
        error = refuse(path, good[:n], pool)
        assert error.part == ("header" if n < 72 else "end")
    refuse(path, good + b"\0", pool, "end")
    refuse(path, good + good, pool, "end")


def test_chunks_cannot_change_places_or_files(tmp_path):
    layout = Layout.uniform(1, 1, 4, 4, "f32")
    pool = Pool(layout, 64, pages=8)
    path = small(tmp_path, layout, 128)
    good = path.read_bytes()
    size = 64 * 8 * 4 + 8
    a, b = good[-2 * size : -size], good[-size:]
    refuse(path, good[: -2 * size] + b + a, pool, "chunk 0 of group 0")
    other = pool.context()
    fill(other, 128, np.random.default_rng(2))
    other.save(tmp_path / "other", identity=IDENTITY, side={"matcher": (1, b"state")})
    other.close()
    foreign = (tmp_path / "other").read_bytes()
    refuse(path, good[:-size] + foreign[-size:], pool, "chunk 1 of group 0")


def test_another_layout_names_what_differs(tmp_path):
    path = small(tmp_path, Layout.uniform(2, 2, 8, 4, "f16"))
    for layout, message in [
        (Layout.uniform(2, 2, 8, 4, "f32"), "group 0: precision f16, not f32"),
        (Layout.uniform(3, 2, 8, 4, "f16"), "group 0: 2 layers, not 3"),
        (LAYOUTS[2], "1 groups, not 2"),
    ]:
        with pytest.raises(SnapshotError, match=message):
            Pool(layout, 64, pages=8).restore(path)


def test_another_identity_names_the_field(tmp_path):
    path = small(tmp_path)
    pool = Pool(LAYOUTS[2], 64, pages=8)
    for name, value in [("weights", b"\x02" * 32), ("rope_base", 10000), ("tenant", "a"), ("adapter", b"x")]:
        with pytest.raises(IdentityMismatchError, match=f"the state belongs to another {name}: ") as caught:
            pool.restore(path, identity=Identity({**IDENTITY.fields, name: value}))
        assert caught.value.field == name
    assert pool.used_bytes == 0
    pool.restore(path)


def test_a_snapshot_without_identity_is_restored_with_a_warning_or_not_at_all(tmp_path):
    pool = Pool(LAYOUTS[0], 64, pages=8)
    context = pool.context()
    fill(context, 5, np.random.default_rng(0))
    context.save(tmp_path / "legacy")
    with pytest.warns(LegacyWarning, match="has no identity"):
        same(context, pool.restore(tmp_path / "legacy", identity=IDENTITY))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        same(context, pool.restore(tmp_path / "legacy", identity=IDENTITY, legacy="allow"))
    with pytest.raises(SnapshotError, match="snapshots without one are refused here"):
        pool.restore(tmp_path / "legacy", identity=IDENTITY, legacy="refuse")


def test_a_restore_that_does_not_fit_changes_nothing(tmp_path):
    path = small(tmp_path, Layout.uniform(2, 2, 8, 4, "f16"), 200)
    pool = Pool(Layout.uniform(2, 2, 8, 4, "f16"), 64, pages=3)
    with pytest.raises(OutOfPagesError):
        pool.restore(path)
    assert pool.used_bytes == 0
    pool.audit()


def test_a_restore_takes_no_page_behind_the_window(tmp_path):
    layout = Layout([Group.sliding(64, [Layer(0, 1, 64, 64)])])
    context = Pool(layout, 64, pages=40).context()
    for _ in range(20):
        fill(context, 100, np.random.default_rng(0))
    context.save(tmp_path / "s")
    pool = Pool(layout, 64, pages=2)
    same(context, pool.restore(tmp_path / "s"))
    assert pool.peak_bytes <= pool.budget_bytes


def saved(vfs, context, path, crash=False):
    try:
        context.save(path, vfs=vfs)
    except OSError:
        assert not crash
        return False
    except PowerLoss:
        return False
    return True


@pytest.mark.parametrize("capacity", [1 << 40, 3000, 0])
def test_whatever_fails_while_saving_the_old_file_stays_and_nothing_is_left_over(capacity):
    pool = Pool(LAYOUTS[0], 64, pages=8)
    old, new = pool.context(), pool.context()
    fill(old, 10, np.random.default_rng(0))
    fill(new, 70, np.random.default_rng(1))
    for n in range(1, 100):
        vfs = CrashVfs()
        old.save("d/s", vfs=vfs)
        vfs.fail_at = vfs.steps + n
        vfs.capacity = sum(len(i.data) for i in vfs.inodes()) + capacity
        done = saved(vfs, new, "d/s")
        vfs.fail_at = 0
        restored = pool.restore("d/s", vfs=vfs)
        # The last operation syncs the directory: when it fails, the new file is there, perhaps not for good.
        assert restored.tokens in ([new.tokens] if done else [old.tokens, new.tokens])
        restored.close()
        if not vfs.failed:
            assert done == (capacity > 1 << 20)
            assert set(vfs.names) == {"d/s"}
            break
        assert len(vfs.names) == 1 + (vfs.failed == "remove")
    else:
        pytest.fail("saving never came to its end")


def test_a_loss_of_power_leaves_the_old_or_the_new_snapshot_and_the_new_one_once_save_returned():
    pool = Pool(LAYOUTS[0], 64, pages=8)
    old, new = pool.context(), pool.context()
    fill(old, 10, np.random.default_rng(0))
    fill(new, 70, np.random.default_rng(1))
    outcomes = set()
    for n in range(1, 60):
        for seed in range(12):
            vfs = CrashVfs()
            old.save("d/s", vfs=vfs)
            vfs.crash_at = vfs.steps + n
            done = saved(vfs, new, "d/s", crash=True)
            restored = pool.restore("d/s", vfs=vfs.after_crash(seed))
            assert restored.tokens in ([new.tokens] if done else [old.tokens, new.tokens])
            outcomes.add((done, restored.tokens == new.tokens))
            restored.close()
    assert outcomes == {(False, False), (False, True), (True, True)}


def test_a_failed_read_is_an_error_and_changes_nothing():
    pool = Pool(LAYOUTS[2], 32, pages=16)
    context = pool.context()
    fill(context, 150, np.random.default_rng(0))
    vfs = CrashVfs()
    context.save("s", vfs=vfs)
    used, reads = pool.used_bytes, 0
    for n in range(1, 100):
        vfs.steps, vfs.fail_at = 0, n
        try:
            pool.restore("s", vfs=vfs).close()
            break
        except OSError:
            reads += 1
            assert pool.used_bytes == used
    assert reads > 5
    pool.audit()


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_hostile_files_are_refused_in_bounded_memory(data):
    """Headers and manifests whose checksums are right and whose contents are not."""
    vfs = CrashVfs()
    pool = Pool(LAYOUTS[2], 64, pages=8)
    context = pool.context()
    fill(context, 70, np.random.default_rng(1))
    manifest = context.save("s", vfs=vfs, side={"matcher": (1, b"state")}, identity=IDENTITY)
    context.close()
    fields = json.loads(manifest.encode())
    scalars = st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**70), 2**70),
        st.floats(allow_nan=False),
        st.text(max_size=5),
    )
    hostile = st.recursive(
        scalars, lambda s: st.lists(s, max_size=3) | st.dictionaries(st.text(max_size=3), s)
    )
    where = data.draw(st.sampled_from(sorted(fields)))
    if isinstance(fields[where], list) and fields[where] and data.draw(st.booleans()):
        fields[where][data.draw(st.integers(0, len(fields[where]) - 1))] = data.draw(hostile)
    else:
        fields[where] = data.draw(hostile)
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode(
        "utf-8", "replace"
    )
    body = bytes(vfs.names["s"].data)[HEADER.size + len(manifest.encode()) :]
    size = HEADER.size + len(text) + len(body)
    head = HEADER.pack(MAGIC, 1, 0, len(text), size, hashlib.sha256(text).digest(), 0)[:-8]
    vfs.names["s"] = Inode(bytearray(head + crc64(head).to_bytes(8, "little") + text + body))
    changed = json.loads(text)
    if {**changed, "owner": None, "marking": None} == json.loads(manifest.encode()):
        return  # without encryption the owner in a file is not protected
    with pytest.raises((SnapshotError, IdentityMismatchError)):
        pool.restore("s", vfs=vfs, identity=IDENTITY, legacy="refuse")
    assert pool.used_bytes == 0


def test_another_program_can_read_the_file_by_its_description(tmp_path):
    """docs/snapshot-format.md, followed to the letter with nothing of this package."""
    context = Pool(LAYOUTS[2], 32, pages=16).context()
    fill(context, 150, np.random.default_rng(5))
    context.save(tmp_path / "s", identity=IDENTITY, side={"a": (7, b"xyz"), "b": (1, b"")})
    data = (tmp_path / "s").read_bytes()

    def crc(chunk, value=0):
        value ^= 2**64 - 1
        for byte in chunk:
            value ^= byte
            for _ in range(8):
                value = value >> 1 ^ (0x9A6C9329AC4BC9B5 if value & 1 else 0)
        return value ^ 2**64 - 1

    magic, version, flags, size, total, digest, check = struct.unpack("<8sIIQQ32sQ", data[:72])
    assert (magic, version, flags, total, check) == (b"LLAMAYKV", 1, 0, len(data), crc(data[:64]))
    manifest = json.loads(data[72 : 72 + size])
    assert hashlib.sha256(data[72 : 72 + size]).digest() == digest
    at, index = 72 + size, 0

    def frame(size, kind, group=0):
        nonlocal at, index
        payload, (check,) = data[at : at + size], struct.unpack_from("<Q", data, at + size)
        assert check == crc(payload, crc(digest + struct.pack("<III", index, kind, group)))
        at, index = at + size + 8, index + 1
        return payload

    n = manifest["tokens"]
    tokens = frame(4 * n, 1)
    assert hashlib.sha256(tokens).hexdigest() == manifest["tokens_sha256"]
    assert np.frombuffer(tokens, "<i4").tolist() == context.tokens
    sides = {name: (version, frame(size, 2)) for name, version, size in manifest["side"]}
    assert sides == {"a": (7, b"xyz"), "b": (1, b"")}
    for chunk in range(0, n, 64):
        for g, group in enumerate(manifest["layout"]):
            begin, end = max(chunk, manifest["first"][g]), min(chunk + 64, n)
            if begin >= end:
                continue
            dtype = np.dtype({"f32": "<f4", "f16": "<f2"}[group["precision"]])
            width = sum(h * (k + v) for _, h, k, v in group["layers"])
            values, used = np.frombuffer(frame((end - begin) * width * dtype.itemsize, 3, g), dtype), 0
            for layer, heads, k_dim, v_dim in group["layers"]:
                k = values[used : (used := used + heads * k_dim * (end - begin))]
                v = values[used : (used := used + heads * v_dim * (end - begin))]
                want_k, want_v = context.read(layer, begin, end)
                np.testing.assert_array_equal(k.reshape(heads, k_dim, -1).transpose(2, 0, 1), want_k)
                np.testing.assert_array_equal(v.reshape(heads, -1, v_dim).transpose(1, 0, 2), want_v)
    assert at == len(data)


def new_context():
    context = Pool(LAYOUTS[0], 16, pages=9).context()
    fill(context, 20, np.random.default_rng(1))
    return context


NO_FILES = {"a FIFO": os.mkfifo, "a directory": os.mkdir}


@pytest.mark.parametrize("kind", NO_FILES)
def test_what_is_no_regular_file_is_not_replaced(tmp_path, kind):
    path, context = tmp_path / "target", new_context()
    NO_FILES[kind](path)
    link = tmp_path / "link"
    link.symlink_to(path)
    made = path.lstat()
    for target in (path, link):
        for vfs in (None, LocalVfs(), Creating()):
            with pytest.raises(OSError, match=f"not a regular file but {kind}.*{target.name}"):
                context.save(target, vfs=vfs)
        with pytest.raises(OSError, match=f"not a regular file but {kind}"):
            rekey(target, None)
        with pytest.raises(OSError, match=f"not a regular file but {kind}"):
            context.pool.restore(target)
    assert (path.lstat().st_mode, path.lstat().st_ino) == (made.st_mode, made.st_ino)
    assert {p.name for p in tmp_path.iterdir()} == {"target", "link"}


class Creating(LocalVfs):
    def create(self, path):
        raise AssertionError("a file was begun")


def test_a_file_system_around_the_local_one_replaces_only_files_too(tmp_path):
    class Around:
        def __getattr__(self, name):
            return getattr(LocalVfs(), name)

    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(OSError, match="not a regular file but a FIFO"):
        new_context().save(tmp_path / "fifo", vfs=Around())
    assert [p.name for p in tmp_path.iterdir()] == ["fifo"]


def test_a_link_to_a_file_and_a_link_to_nothing_are_replaced(tmp_path):
    context = new_context()
    for there in (True, False):
        link, file = tmp_path / "link", tmp_path / "file"
        file.write_bytes(b"old") if there else file.unlink()
        link.unlink(missing_ok=True)
        link.symlink_to(file)
        context.save(link)
        assert not link.is_symlink()
        same(context, context.pool.restore(link))
