"""The same chunks and snapshots in an object store; in memory, and over a real S3 API on this machine."""

import numpy as np
import pytest
from kv_filled import FULL, check, fill

from llamay_kv import DiskCache, Key, ObjectVfs, Pool, SnapshotError, inspect, verify

obstore = pytest.importorskip("obstore", reason="needs the extra object-store")
KEY = Key("k", b"k" * 32)


@pytest.fixture(scope="module")
def s3():
    server = pytest.importorskip("moto.server", reason="needs moto's server")
    from obstore.store import S3Store

    running = server.ThreadedMotoServer(port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    import urllib.request

    urllib.request.urlopen(urllib.request.Request(f"{endpoint}/bucket", method="PUT")).close()
    yield S3Store(
        "bucket",
        endpoint=endpoint,
        access_key_id="test",
        secret_access_key="test",
        region="us-east-1",
        virtual_hosted_style_request=False,
        client_options={"allow_http": True},
    )
    running.stop()


@pytest.fixture(params=["memory", "s3"])
def store(request):
    if request.param == "s3":
        return request.getfixturevalue("s3")
    from obstore.store import MemoryStore

    return MemoryStore()


@pytest.mark.parametrize("buffer_bytes", [1 << 20, 100], ids=["one request", "in parts"])
def test_a_snapshot_comes_back_from_an_object_store(store, buffer_bytes):
    vfs = ObjectVfs(store, buffer_bytes=buffer_bytes)
    pool = Pool(FULL, 64, pages=64)
    context = fill(pool.context(), range(200))
    for key in (None, KEY):
        manifest = context.save("snapshots/a", key=key, vfs=vfs)
        assert inspect("snapshots/a", vfs=vfs) == verify("snapshots/a", keys=KEY, vfs=vfs) == manifest
        check(pool.restore("snapshots/a", keys=KEY, vfs=vfs), range(200))
        assert [f.name for f in vfs.list("snapshots")] == ["a"]


def test_damage_in_the_store_is_found(store):
    vfs = ObjectVfs(store)
    pool = Pool(FULL, 64, pages=64)
    fill(pool.context(), range(70)).save("b", vfs=vfs)
    good = bytes(obstore.get(store, "b").bytes())
    rng = np.random.default_rng(0)
    for i in rng.integers(0, len(good), 20):
        bad = bytearray(good)
        bad[i] ^= 1
        obstore.put(store, "b", bytes(bad))
        with pytest.raises(SnapshotError):
            pool.restore("b", vfs=vfs)
    with pytest.raises(FileNotFoundError):
        pool.restore("nothing", vfs=vfs)


def test_replicas_share_what_one_of_them_has_computed(store):
    tokens = list(range(300))
    with DiskCache("prefixes", budget_bytes=1 << 20, key=KEY, vfs=ObjectVfs(store)) as one:
        one.save(fill(Pool(FULL, 64, pages=64).context(), tokens))
        one.flush()
        assert one.counters()["written_chunks"] == 4
    with DiskCache("prefixes", budget_bytes=1 << 20, key=KEY, vfs=ObjectVfs(store)) as other:
        check(other.load(Pool(FULL, 16, pages=64), tokens), tokens[:256])
        assert other.used_bytes == one.used_bytes > 0


def test_an_upload_that_fails_is_never_seen(store, monkeypatch):
    vfs = ObjectVfs(store, buffer_bytes=100)
    pool = Pool(FULL, 64, pages=64)
    context = fill(pool.context(), range(200))
    context.save("c", vfs=vfs)
    before = bytes(obstore.get(store, "c").bytes())
    monkeypatch.setattr(
        ObjectVfs, "replace", lambda *args: (_ for _ in ()).throw(OSError("the network has gone"))
    )
    fill(context, [1])
    with pytest.raises(OSError, match="the network has gone"):
        context.save("c", vfs=vfs)
    assert bytes(obstore.get(store, "c").bytes()) == before
    assert not vfs._unfinished


def test_a_store_that_cannot_be_reached_is_an_os_error():
    from obstore.store import S3Store

    vfs = ObjectVfs(
        S3Store(
            "bucket",
            endpoint="http://127.0.0.1:1",
            access_key_id="a",
            secret_access_key="b",
            region="us-east-1",
            client_options={"allow_http": True},
            retry_config={"max_retries": 0},
        )
    )
    with pytest.raises(OSError, match="bucket"):
        inspect("s", vfs=vfs)
