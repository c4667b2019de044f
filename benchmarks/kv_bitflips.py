"""Flip bits in stored state and see which engine notices: llamay-kv beside the stores of other engines.

    python benchmarks/kv_bitflips.py [--flips 60] [--json] [--peer-python PYTHON --model GGUF]

A store takes part if its engine can be imported; see docs/adapters.md for unpacked wheels (LLAMAY_TEST_VLLM,
LLAMAY_TEST_SGLANG). llama-server takes part with a Python that has xllamacpp and a model. Each flip is one random bit
of the file, which is put right again. "damaged" is state that came back with other bytes than were stored.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import types
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from llamay_kv import BlockStore, DiskCache, Key, Layout, Pool

PAGE = 64 << 10
KEY = Key("k", b"k" * 32)
Store = tuple[Callable[[bytes], None], Callable[[], "bytes | None"]]
"""Store a page; load it, None or an exception if it is refused."""


def snapshot(folder: Path, key: Key | None) -> Store:
    layout = Layout.uniform(2, 2, 64)
    pool = Pool(layout, pages=64)

    def store(page: bytes) -> None:
        with pool.context() as context:
            n = len(page) // layout.position_bytes
            with context.reserve(n) as lease:
                for i in range(0, n, 64):
                    size = min(64, n - i) * layout.position_bytes
                    at = i * layout.position_bytes
                    lease.unpack_from(0, i, min(i + 64, n), np.frombuffer(page[at : at + size], np.uint8))
                lease.commit(range(n))
            context.save(folder / "s", key=key)

    def load() -> bytes | None:
        with pool.restore(folder / "s", keys=key) as context:
            parts = []
            for i in range(0, len(context), 64):
                out = np.empty(pool.packed_bytes(0, min(64, len(context) - i)), np.uint8)
                context.pack_into(0, i, min(i + 64, len(context)), out)
                parts.append(out.tobytes())
            return b"".join(parts)

    return store, load


def disk_cache(folder: Path) -> Store:
    layout = Layout.uniform(2, 2, 64)
    pool = Pool(layout, pages=64)
    n = PAGE // layout.position_bytes

    def store(page: bytes) -> None:
        with DiskCache(folder / "c", budget_bytes=1 << 30, min_free_bytes=0, key=KEY) as cache:
            with pool.context() as context:
                with context.reserve(n) as lease:
                    lease.unpack_from(0, 0, n, np.frombuffer(page, np.uint8))
                    lease.commit(range(n))
                cache.save(context)
            cache.flush()

    def load() -> bytes | None:
        cache = DiskCache(folder / "c", budget_bytes=1 << 30, min_free_bytes=0, key=KEY)
        with cache, cache.load(pool, range(n)) as context:
            if len(context) == 0:
                return None
            out = np.empty(PAGE, np.uint8)
            context.pack_into(0, 0, n, out)
            return out.tobytes()

    return store, load


def block_store(folder: Path) -> Store:
    def opened() -> BlockStore:
        return BlockStore(folder / "b", budget_bytes=1 << 30, min_free_bytes=0, key=KEY)

    def load() -> bytes | None:
        page = opened().get(b"page")
        return None if page is None else bytes(page)

    return lambda page: (opened().put({b"page": page}), None)[1], load


def vllm_files(folder: Path) -> Store:
    _unpacked("vllm")
    from vllm.v1.kv_offload.tiering.fs.io import batch_load_block, batch_store_block  # type: ignore[import-not-found]

    path = [str(folder / "block.bin")]

    def load() -> bytes:
        out = bytearray(PAGE)
        batch_load_block(path, memoryview(out), [0], PAGE, False)
        return bytes(out)

    return lambda page: batch_store_block(path, memoryview(bytearray(page)), [0], PAGE, False), load


def sglang_files(folder: Path) -> Store:
    _unpacked("sglang", "sglang", "sglang.srt", "sglang.srt.mem_cache")
    import torch  # type: ignore[import-not-found,unused-ignore]
    from sglang.srt.mem_cache.hicache_storage import HiCacheFile, HiCacheStorageConfig  # type: ignore[import-not-found]

    config = HiCacheStorageConfig(0, 1, 0, 1, 0, 1, False, False, True, "m")
    backend = HiCacheFile(config, str(folder / "h"))

    def load() -> bytes | None:
        found = backend.get("page", torch.empty(PAGE, dtype=torch.uint8))
        return None if found is None else found.numpy().tobytes()

    def store(page: bytes) -> None:
        backend.set("page", torch.frombuffer(bytearray(page), dtype=torch.uint8))

    return store, load


def llama_cpp_python(folder: Path) -> Store:
    from llama_cpp.llama import LlamaState  # type: ignore[import-not-found]
    from llama_cpp.llama_cache import LlamaDiskCache  # type: ignore[import-not-found]

    def store(page: bytes) -> None:
        scores = np.zeros((1, 1), np.float32)
        with contextlib.redirect_stderr(None):
            LlamaDiskCache(str(folder / "l"))[[1]] = LlamaState(
                np.ones(1, np.intc), scores, 1, page, len(page), 0
            )

    return store, lambda: bytes(LlamaDiskCache(str(folder / "l"))[[1]].llama_state)


STORES: dict[str, Callable[[Path], Store]] = {
    "llamay-kv snapshot": lambda folder: snapshot(folder, None),
    "llamay-kv snapshot, encrypted": lambda folder: snapshot(folder, KEY),
    "llamay-kv disk cache": disk_cache,
    "llamay-kv BlockStore (vLLM, SGLang, llama-cpp-python adapters)": block_store,
    "vLLM file tier": vllm_files,
    "SGLang file backend": sglang_files,
    "llama-cpp-python LlamaDiskCache": llama_cpp_python,
}


def _unpacked(name: str, *bare: str) -> None:
    folder = os.environ.get(f"LLAMAY_TEST_{name.upper()}")
    if folder:
        sys.path.append(folder)
        for package in bare:
            module = types.ModuleType(package)
            module.__path__ = [str(Path(folder, *package.split(".")))]
            sys.modules.setdefault(package, module)


def files_with(folder: Path, page: bytes) -> list[Path]:
    """Return the files that hold the page: the largest ones."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path for path in files if path.stat().st_size >= len(page)]


def flip(make: Callable[[Path], Store], flips: int) -> Counter[str]:
    rng = np.random.default_rng(0)
    page = rng.integers(0, 256, PAGE, dtype=np.uint8).tobytes()
    outcome: Counter[str] = Counter()
    for i in range(flips + 1):
        with tempfile.TemporaryDirectory() as name:
            save, load = make(Path(name))
            save(page)
            if i == 0:
                if load() != page:
                    raise RuntimeError("it does not even return the stored state")
                continue
            path = files_with(Path(name), page)[0]
            data = bytearray(path.read_bytes())
            bit = int(rng.integers(8 * len(data)))
            data[bit // 8] ^= 1 << bit % 8
            path.write_bytes(data)
            try:
                found = load()
            except Exception:
                found = None
            outcome["refused" if found is None else "same" if found == page else "damaged"] += 1
    return outcome


def rows(flips: int, peer: str | None, model: str | None) -> Iterator[dict[str, Any]]:
    for name, make in STORES.items():
        try:
            outcome = flip(make, flips)
        except ImportError as error:
            yield {"store": name, "absent": str(error)}
            continue
        yield {"store": name, "flips": flips, **{k: outcome[k] for k in ("refused", "same", "damaged")}}
    if peer and model:
        script = Path(__file__).parent / "engines" / "slot_files.py"
        out = subprocess.run(
            [peer, script, model, "256", str(flips)], capture_output=True, text=True, check=True
        ).stdout
        found = json.loads(next(line for line in out.splitlines() if line.startswith("RESULT "))[7:])["flips"]
        yield {
            "store": "llama-server slot file",
            "flips": flips,
            "refused": found["refused"],
            "same": found["accepted"] - found["changed"],
            "damaged": found["changed"],
            "note": "same: the top 20 probabilities are; damaged: they are not",
        }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Which engine notices a flipped bit?")
    parser.add_argument("--flips", type=int, default=60)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--peer-python", help="a Python that has xllamacpp")
    parser.add_argument("--model", help="a GGUF file for it")
    options = parser.parse_args()
    found = list(rows(options.flips, options.peer_python, options.model))
    if options.json:
        print(json.dumps(found))
        return
    print(
        "| store | bits flipped | refused | came back unchanged | came back damaged |\n|---|---|---|---|---|"
    )
    for row in found:
        if "absent" in row:
            print(f"| {row['store']} | not here: {row['absent']} | | | |")
        else:
            print("|", " | ".join(str(row[k]) for k in ("store", "flips", "refused", "same", "damaged")), "|")


if __name__ == "__main__":
    main()
