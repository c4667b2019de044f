"""The costs of the state engine, beside the limits of the machine in the same run.

    python benchmarks/kv.py [--json] [--quick] [--peer-python PYTHON --model GGUF --shape LAYERSxHEADSxDIM]

With a Python that has xllamacpp and a model, llama-server's slot save and restore run beside ours on the same number of
tokens of the same shape; with llama-cpp-python installed, its cache classes do.

Every figure is the best of several repeats: a shared machine makes things slower, never faster.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from engines import state_peers

from llamay_kv import Context, DiskCache, Layout, Pool, PrefixTree, verify

QWEN = Layout.uniform(24, 2, 64)  # Qwen2.5-0.5B: 12,288 bytes a token in f16


def best(f: Callable[[], object], repeats: int = 7, number: int = 1) -> float:
    """Seconds of one call."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(number):
            f()
        times.append((time.perf_counter() - start) / number)
    return min(times)


def filled(pool: Pool, n: int) -> Context:
    context, rng = pool.context(), np.random.default_rng(0)
    layout = pool.layout
    with context.reserve(n) as lease:
        for group in layout.groups:
            for layer in group.layers:
                shape = n, layer.kv_heads, layer.k_dim
                k = rng.standard_normal(shape, np.float32).astype(np.float16)
                lease.write(layer.index, k, k)
        lease.commit(rng.integers(0, 150_000, n, dtype=np.int32))
    return context


def limits() -> dict[str, float]:
    """Bytes a second that memory and disk give, measured as plainly as possible."""
    a = np.ones(1 << 25, np.uint8)
    b = np.empty_like(a)
    copy = best(lambda: np.copyto(b, a), 9)
    data = a.data
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as directory:
        path = f"{directory}/probe"

        def write() -> None:
            fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
            done = 0
            while done < len(data):
                done += os.write(fd, data[done:])
            os.fsync(fd)
            os.close(fd)

        def read() -> None:
            fd = os.open(path, os.O_RDONLY)
            done = 0
            while done < len(b):
                done += os.preadv(fd, [b.data[done:]], done)
            os.close(fd)

        return {
            "memory_copy": len(a) / copy,
            "disk_write_synced": len(a) / best(write, 5),
            "disk_read_cached": len(a) / best(read, 9),
        }


def forks() -> list[dict[str, float]]:
    rows = []
    for pages in (1, 32, 512, 16_384):
        pool = Pool(Layout.uniform(1, 1, 1), 64, pages=pages + 8)
        context = pool.context()
        with context.reserve(64 * pages - 1) as lease:
            lease.commit(np.zeros(64 * pages - 1, np.int32))
        live = pool.live_pages
        fork = best(context.fork, 9, 20_000)
        kept = context.fork(64)
        assert pool.live_pages == live, "a fork took a page"
        del kept

        def step(context: Context = context) -> None:
            with context.fork() as branch, branch.reserve(1) as lease:
                lease.commit([1])

        with context.reserve(1) as lease:
            view = best(lease.__llamay_kv_view__, 9, 20_000)
        rows.append(
            {
                "tokens": len(context),
                "fork_ns": 1e9 * fork,
                "view_ns": 1e9 * view,
                "fork_and_first_token_us": 1e6 * best(step, 9, 200),
                "pages_taken": 0,
            }
        )
    return rows


def append_and_gather() -> dict[str, float]:
    pool = Pool(QWEN, budget_bytes=1 << 30)
    n = 2048
    context = filled(pool, n)
    size = n * QWEN.position_bytes
    k = np.zeros((n, 2, 64), np.float16)

    def append() -> None:
        with pool.context() as other, other.reserve(n) as lease:
            for layer in range(24):
                lease.write(layer, k, k)

    out = np.empty(64 * QWEN.position_bytes, np.uint8)

    def pack() -> None:
        for begin in range(0, n, 64):
            context.pack_into(0, begin, begin + 64, out)

    def gather() -> None:
        for layer in range(24):
            context.read(layer, raw=True)

    def step() -> None:
        with context.reserve(1) as lease:
            lease.commit([1])

    one = best(step, 9, 500)
    context.truncate(n)
    return {
        "append_bytes_s": size / best(append),
        "gather_bytes_s": size / best(gather),
        "pack_bytes_s": size / best(pack),
        "reserve_and_commit_one_ns": 1e9 * one,
        "overhead_bytes_per_page": pool.page_bytes[0] - 64 * QWEN.position_bytes,
    }


def snapshots(directory: str) -> dict[str, float]:
    """Save and restore 2,048 tokens of Qwen2.5-0.5B's shape; every byte is verified on the way in."""
    pool = Pool(QWEN, budget_bytes=1 << 29)
    context = filled(pool, 2048)
    path = f"{directory}/s.kv"
    size = context.save(path).file_bytes

    def restore() -> None:
        pool.restore(path).close()

    restored = pool.restore(path)
    assert restored.tokens == context.tokens
    for layer in range(24):
        for a, b in zip(restored.read(layer, raw=True), context.read(layer, raw=True), strict=True):
            assert np.array_equal(a, b), "a restore that differs"
    restored.close()
    turn = iter(range(1000))
    q8 = f"{path}.q8"
    return {
        "file_bytes": size,
        "save_ms": 1e3 * best(lambda: context.save(f"{path}{next(turn)}")),
        "save_over_a_file_ms": 1e3 * best(lambda: context.save(path)),
        "save_not_durable_ms": 1e3 * best(lambda: context.save(f"{path}{next(turn)}", durable=False)),
        "save_q8_ms": 1e3 * best(lambda: context.save(q8, precision="q8")),
        "q8_file_bytes": Path(q8).stat().st_size,
        "restore_ms": 1e3 * best(restore, 15),
        "verify_ms": 1e3 * best(lambda: verify(path), 15),
    }


# The high-water mark of its own memory: getrusage's would begin with that of the process that started it.
RESTORE_PEAK = """
import re, sys
from llamay_kv import Layout, Pool
peak = lambda: 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
pool = Pool(Layout.uniform(24, 2, 64), budget_bytes=1 << 30)
pool.context().save(sys.argv[1] + ".empty")
pool.restore(sys.argv[1] + ".empty")
before = peak()
context = pool.restore(sys.argv[1])
print(peak() - before, pool.used_bytes)
"""


def restore_memory(directory: str) -> dict[str, float]:
    pool = Pool(QWEN, budget_bytes=1 << 30)
    filled(pool, 16_384).save(f"{directory}/big.kv")
    out = subprocess.check_output([sys.executable, "-c", RESTORE_PEAK, f"{directory}/big.kv"], text=True)
    grown, final = map(int, out.split())
    return {"grown_bytes": grown, "final_bytes": final, "frame_bytes": pool.page_bytes[0]}


def tree(entries: int) -> dict[str, float]:
    """Look up 4,096 tokens among so many pages of other prefixes."""
    pool = Pool(Layout.uniform(1, 1, 1), 16, pages=entries + 1024)
    prefixes = PrefixTree(pool, pool.budget_bytes)
    rng = np.random.default_rng(0)
    target = np.arange(4096, dtype=np.int32)

    def insert(tokens: np.ndarray) -> None:
        with pool.context() as context, context.reserve(len(tokens)) as lease:
            lease.commit(tokens)
            prefixes.insert(context)

    insert(target)
    alone = best(lambda: prefixes.match(target).close(), 9, 5)
    started, inserted = time.perf_counter(), 0
    while prefixes.counters()["nodes"] < entries:
        cut = int(rng.integers(0, 4096))
        insert(np.concatenate([target[:cut], rng.integers(0, 2**31 - 1, 2048, dtype=np.int32)]))
        inserted += cut + 2048
    seconds = time.perf_counter() - started
    return {
        "entries": prefixes.counters()["nodes"],
        "match_4096_us_alone": 1e6 * alone,
        "match_4096_us": 1e6 * best(lambda: prefixes.match(target).close(), 9, 5),
        "insert_tokens_s": inserted / seconds,
    }


def disk(directory: str) -> dict[str, float]:
    pool = Pool(QWEN, budget_bytes=1 << 30)
    context = filled(pool, 8192)
    with DiskCache(f"{directory}/cache", budget_bytes=1 << 30, min_free_bytes=0) as cache:
        handed = best(lambda: cache.save(context), 1)
        start = time.perf_counter()
        cache.flush()
        written = time.perf_counter() - start
        one = cache.used_bytes
        load = best(lambda: cache.load(pool, context.tokens).close(), 5)
    with DiskCache(f"{directory}/quick", budget_bytes=1 << 30, min_free_bytes=0, durable=False) as cache:
        start = time.perf_counter()
        cache.save(context)
        cache.flush()
        quick = time.perf_counter() - start
    return {
        "bytes": one,
        "written_not_durable_ms": 1e3 * quick,
        "save_call_us": 1e6 * handed,
        "written_ms": 1e3 * written,
        "load_ms": 1e3 * load,
        "twelve_forks_over_one": forks_on_disk(directory),
    }


def forks_on_disk(directory: str) -> float:
    """Bytes of twelve forks of a context of 32,768 tokens, each with 100 of its own, relative to the context's."""
    pool = Pool(Layout.uniform(1, 1, 8), budget_bytes=1 << 28)
    parent = filled(pool, 32_768)
    with DiskCache(f"{directory}/forks", budget_bytes=1 << 30, min_free_bytes=0) as cache:
        cache.save(parent)
        cache.flush()
        one = cache.used_bytes
        for i in range(12):
            with parent.fork() as fork:
                with fork.reserve(100) as lease:
                    lease.commit([i] * 100)
                cache.save(fork)
                cache.flush()
        return cache.used_bytes / one


def imports() -> dict[str, float]:
    """Milliseconds of `import llamay_kv` in a new process, less the time of an empty process."""

    def run(code: str) -> float:
        return best(lambda: subprocess.run([sys.executable, "-c", code], check=True))

    empty = run("pass")
    return {"import_ms": 1e3 * (run("import llamay_kv") - empty), "python_ms": 1e3 * empty}


def main() -> None:
    parser = argparse.ArgumentParser(description="The costs of the state engine.")
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    parser.add_argument("--quick", action="store_true", help="a hundredth of the entries in the tree")
    parser.add_argument("--peer-python", help="a Python that has xllamacpp, to run llama-server beside")
    parser.add_argument("--model", help="a GGUF file for it")
    parser.add_argument(
        "--shape", default="30x3x64", help="that model's layers, K/V heads and head dimension"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        result: dict[str, Any] = {
            "limits": limits(),
            "fork": forks(),
            "pages": append_and_gather(),
            "snapshot": snapshots(directory),
            "restore_memory": restore_memory(directory),
            "tree": tree(10_000 if options.quick else 1_000_000),
            "disk_cache": disk(directory),
            "import": imports(),
            "llama_cpp_python": state_peers.llama_cpp_python(directory),
            "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        }
        if options.peer_python and options.model:
            result["llama_server"] = state_peers.llama_server(
                options.peer_python, options.model, options.shape, 2048, directory
            )
    lim, snap, mem = result["limits"], result["snapshot"], result["restore_memory"]
    result["fractions"] = {
        "restore_of_cached_read": snap["file_bytes"] / snap["restore_ms"] * 1e3 / lim["disk_read_cached"],
        "verify_of_cached_read": snap["file_bytes"] / snap["verify_ms"] * 1e3 / lim["disk_read_cached"],
        "save_of_synced_write": snap["file_bytes"] / snap["save_ms"] * 1e3 / lim["disk_write_synced"],
        "pack_of_memory_copy": result["pages"]["pack_bytes_s"] / lim["memory_copy"],
        "restore_peak_over_final_and_frame": mem["grown_bytes"] / (mem["final_bytes"] + mem["frame_bytes"]),
    }
    if options.json:
        print(json.dumps(result))
        return
    for name, part in result.items():
        for row in part if isinstance(part, list) else [part]:
            values = row.items() if isinstance(row, dict) else [("", row)]
            print(f"{name:16}", "  ".join(f"{k} {v:,.4g}" for k, v in values))


if __name__ == "__main__":
    main()
