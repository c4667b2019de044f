"""A snapshot in less precision than was computed says so, and is never taken for the original."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kv_crash import CrashVfs, Inode
from kv_precision import ROUND_TRIP

from llamay_kv import (
    ConvertedWarning,
    Group,
    Identity,
    IdentityMismatchError,
    Key,
    Layer,
    Layout,
    Pool,
    SnapshotError,
    diff,
    inspect,
    rekey,
    verify,
)

LAYERS = {0: (2, 3, 5), 1: (1, 4, 2)}
US = Identity(weights=b"us")
KEY = Key("k", b"k" * 32)


def layout(precision):
    a, b = (Layer(i, *dims) for i, dims in LAYERS.items())
    return Layout([Group.full([a], precision), Group.sliding(70, [b], precision)])


def filled(pool, n, seed=0):
    context, rng = pool.context(), np.random.default_rng(seed)
    with context.reserve(n) as lease:
        for index, (heads, k_dim, v_dim) in LAYERS.items():
            lease.write(index, *(rng.standard_normal((n, heads, d), np.float32) for d in (k_dim, v_dim)))
        lease.commit(rng.integers(0, 9, n, dtype=np.int32))
    context.side = {"sampler": (1, b"x")}
    return context


@settings(max_examples=60, deadline=None)
@given(
    data=st.data(),
    held=st.sampled_from(["f32", "f16"]),
    stored=st.sampled_from(["f16", "vq8", "q8"]),
    n=st.integers(0, 200),
    pages=st.tuples(*[st.sampled_from([16, 64, 256])] * 2),
    key=st.sampled_from([None, KEY]),
)
def test_every_element_is_what_the_precision_makes_of_it(data, held, stored, n, pages, key):
    vfs = CrashVfs()
    context = filled(Pool(layout(held), pages[0], pages=32), n)
    manifest = context.save("s", identity=US, precision=stored, key=key, vfs=vfs)
    assert verify("s", keys=key, vfs=vfs) == inspect("s", vfs=vfs) == manifest
    assert len(vfs.names["s"].data) == manifest.file_bytes
    if held == stored:
        assert manifest.computed is None
        assert manifest.identity == US
        return
    assert manifest.computed == (held, held)
    assert [group.precision for group in manifest.layout.groups] == [stored, stored]
    into = data.draw(st.sampled_from([held, stored]))
    pool = Pool(layout(into), pages[1], pages=32)
    restored = pool.restore("s", identity=US.stored_as(stored), keys=key, vfs=vfs)
    assert (restored.tokens, restored.side) == (context.tokens, context.side)
    for g, index in enumerate(LAYERS):
        begin = max(restored.first_positions()[g], context.first_positions()[g], manifest.first[g])
        for k_or_v in (0, 1):
            was = context.read(index, begin)[k_or_v]
            through = ROUND_TRIP[into][k_or_v](ROUND_TRIP[stored][k_or_v](was))
            if into == stored:
                through = ROUND_TRIP[stored][k_or_v](was)
            np.testing.assert_array_equal(restored.read(index, begin)[k_or_v], through)


def test_it_is_smaller(tmp_path):
    pool = Pool(Layout.uniform(2, 1, 64, precision="f32"), pages=8)
    with pool.context() as context, context.reserve(256) as lease:
        lease.commit([0] * 256)
        sizes = [context.save(tmp_path / p, precision=p).file_bytes for p in ("f32", "f16", "vq8", "q8")]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > 1.9 * sizes[1] > 3.5 * sizes[3]


def test_it_never_counts_as_the_original_and_the_error_says_what_it_is(tmp_path):
    pool = Pool(layout("f16"), pages=32)
    filled(pool, 100).save(tmp_path / "s", identity=US, precision="q8")
    used = pool.used_bytes
    with pytest.raises(IdentityMismatchError, match="another payload: 'q8', not none"):
        pool.restore(tmp_path / "s", identity=US)
    with pytest.raises(IdentityMismatchError, match="another payload: 'q8', not 'vq8'"):
        pool.restore(tmp_path / "s", identity=US.stored_as("vq8"))
    assert pool.used_bytes == used
    with pytest.warns(ConvertedWarning, match="computed in f16/f16 and holds q8/q8"):
        pool.restore(tmp_path / "s")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pool.restore(tmp_path / "s", identity=US.stored_as("q8"))
    with pytest.raises(SnapshotError, match="the layout is not the pool's: group 0: precision q8, not f32"):
        Pool(layout("f32"), pages=32).restore(tmp_path / "s")


def test_the_identity_is_reported_before_the_layout(tmp_path):
    filled(Pool(layout("f16"), pages=32), 10).save(tmp_path / "s", identity=US)
    with pytest.raises(IdentityMismatchError, match="another weights"):
        Pool(layout("f32"), pages=32).restore(tmp_path / "s", identity=Identity(weights=b"them"))


def test_only_what_was_computed_wide_is_narrowed(tmp_path):
    context = filled(Pool(layout("vq8"), pages=32), 10)
    with pytest.raises(ValueError, match="group 0 holds vq8, which is not saved as q8"):
        context.save(tmp_path / "s", precision="q8")
    with pytest.raises(ValueError, match="precision must be 'f32' or 'f16' or 'vq8' or 'q8', not 'int4'"):
        context.save(tmp_path / "s", precision="int4")
    assert not list(tmp_path.iterdir())
    assert context.save(tmp_path / "s", precision="f16").computed is None, "a wider one changes nothing"


def test_a_new_key_keeps_what_it_is(tmp_path):
    pool = Pool(layout("f16"), pages=32)
    filled(pool, 100).save(tmp_path / "a", identity=US, precision="q8")
    filled(pool, 100).save(tmp_path / "b", identity=US)
    assert rekey(tmp_path / "a", KEY).computed == ("f16", "f16")
    assert diff(tmp_path / "a", tmp_path / "b", keys=KEY).layout == "group 0: precision q8, not f16"
    pool.restore(tmp_path / "a", identity=US.stored_as("q8"), keys=KEY)


def test_every_single_byte_corruption_and_every_truncation_is_refused():
    pool = Pool(layout("f16"), pages=32)
    for key in (None, KEY):
        vfs = CrashVfs()
        with filled(pool, 20) as context:
            context.save("s", identity=US, precision="q8", key=key, vfs=vfs)
        good = bytes(vfs.names["s"].data)
        rng = np.random.default_rng(0)
        for i in range(len(good)):
            bad = bytearray(good)
            bad[i] ^= int(rng.integers(1, 256))
            for broken in (bad, good[:i]):
                vfs.names["s"] = Inode(bytearray(broken))
                with pytest.raises(SnapshotError):
                    pool.restore("s", identity=US.stored_as("q8"), keys=key, vfs=vfs)
        assert pool.used_bytes == 0
