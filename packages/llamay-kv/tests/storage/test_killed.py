"""A process that is killed while it saves leaves the last snapshot that it acknowledged, or the one after it, whole."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from kv_filled import FULL, check

from llamay_kv import BlockStore, Key, Pool, sweep, verify

KEY = Key("k", b"k" * 32)
SAVES = """
import sys
from llamay_kv import Key, Pool
from kv_filled import FULL, fill
pool, key = Pool(FULL, 64, pages=64), Key("k", b"k" * 32) if sys.argv[2] == "encrypted" else None
context = pool.context()
for i in range(1, 3000):
    fill(context, [i])
    context.save(sys.argv[1], key=key)
    print(i, flush=True)
"""
PUTS = """
import sys
from llamay_kv import BlockStore, Key
with BlockStore(sys.argv[1], budget_bytes=1 << 30, min_free_bytes=0, key=Key("k", b"k" * 32)) as store:
    for i in range(3000):
        store.put({b"%d.%d" % (i, j): bytes([j]) * 700 for j in range(3)})
        print(i, flush=True)
"""


def killed(code, *arguments, seed=0):
    """Run the code, kill it after a while, and return the last number that it has printed."""
    rng = np.random.default_rng(seed)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as victim:
        lines = [victim.stdout.readline() for _ in range(int(rng.integers(2, 7)))]
        time.sleep(float(rng.uniform(0, 0.01)))
        victim.kill()
        lines += victim.stdout.read().splitlines()
    return int([line for line in lines if line.strip()][-1])


@pytest.mark.parametrize("kind", ["plain", "encrypted"])
def test_a_snapshot_is_the_last_acknowledged_or_the_next(tmp_path, kind):
    path = tmp_path / "s"
    for seed in range(2):
        last = killed(SAVES, path, kind, seed=seed)
        manifest = verify(path, keys=KEY)
        assert manifest.n_tokens in (last, last + 1)
        with Pool(FULL, 64, pages=64).restore(path, keys=KEY) as context:
            check(context, range(1, manifest.n_tokens + 1))
        sweep(tmp_path, older_than=-1)
        assert [p.name for p in tmp_path.iterdir()] == ["s"]


def test_blocks_that_were_acknowledged_are_there_and_all_are_whole(tmp_path):
    for seed in range(2):
        last = killed(PUTS, tmp_path / "b", seed=seed)
        with BlockStore(tmp_path / "b", budget_bytes=1 << 30, min_free_bytes=0, key=KEY) as store:
            for i in range(last + 3):
                for j in range(3):
                    found = store.get(b"%d.%d" % (i, j))
                    assert found is not None or i > last
                    assert found is None or bytes(found) == bytes([j]) * 700
            assert "damaged" not in store.counters()
