"""The state engine beside llama-server's slot files and llama-cpp-python's cache classes, in the same run."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from llamay_kv import Layout, Pool


def best(f: Callable[[], object], repeats: int = 5) -> float:
    """Seconds of one call."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        f()
        times.append(time.perf_counter() - start)
    return min(times)


def llama_server(peer: str, model: str, shape: str, n: int, directory: str) -> dict[str, Any]:
    """Save and restore n tokens of the model's shape, given as LAYERSxHEADSxDIM, by both."""
    script = Path(__file__).with_name("slot_files.py")
    run = subprocess.run([peer, script, model, str(n), "0"], capture_output=True, text=True, check=True)
    theirs = json.loads(next(line for line in run.stdout.splitlines() if line.startswith("RESULT "))[7:])
    layout = Layout.uniform(*map(int, shape.split("x")))
    pool = Pool(layout, budget_bytes=2 * n * layout.position_bytes + (64 << 20))
    context, rng = pool.context(), np.random.default_rng(0)
    with context.reserve(n) as lease:
        for layer in layout.groups[0].layers:
            k, v = (
                rng.standard_normal((n, layer.kv_heads, d)).astype(np.float16)
                for d in (layer.k_dim, layer.v_dim)
            )
            lease.write(layer.index, k, v)
        lease.commit(range(n))
    path, turn = Path(directory), iter(range(1000))
    size = context.save(path / "p").file_bytes
    return {
        "tokens": n,
        "their_file_bytes": theirs["file_bytes"],
        "our_file_bytes": size,
        "their_save_ms": theirs["save_ms"],
        "our_save_ms": 1e3 * best(lambda: context.save(path / f"n{next(turn)}", durable=False)),
        "our_durable_save_ms": 1e3 * best(lambda: context.save(path / f"n{next(turn)}")),
        "their_restore_ms": theirs["restore_ms"],
        "our_verified_restore_ms": 1e3 * best(lambda: pool.restore(path / "p").close()),
        "their_prefill_ms": theirs["prefill_ms"],
    }


def llama_cpp_python(
    directory: str, states: int = 200, tokens: int = 2048, size: int = 25 << 20
) -> dict[str, Any]:
    """The longest prefix among many states, and one state of 25 MB to disk and back, by their classes and by ours."""
    try:
        from llama_cpp.llama import LlamaState  # type: ignore[import-not-found]
        from llama_cpp.llama_cache import LlamaDiskCache, LlamaRAMCache  # type: ignore[import-not-found]
    except ImportError as error:
        return {"absent": str(error)}
    from llamay_kv.adapters import llama_cpp as ours

    rng = np.random.default_rng(0)
    raw = rng.integers(0, 256, size, dtype=np.uint8).tobytes()
    base = rng.integers(0, 1000, tokens)

    def state(ids: np.ndarray, data: bytes) -> Any:
        scores = np.zeros((1, 1), np.float32)
        return LlamaState(ids.astype(np.intc), scores, len(ids), data, len(data), 0)

    result: dict[str, Any] = {"states": states, "tokens": tokens, "state_bytes": size}
    memory = {"their": LlamaRAMCache(1 << 40), "our": ours.LlamaRAMCache(1 << 40)}
    for i in range(states):
        ids = base.copy()
        ids[tokens // 2 + i % 100 :] = i
        for cache in memory.values():
            cache[ids.tolist()] = state(ids, b"x")
    wanted = base.tolist()
    for who, cache in memory.items():
        result[f"{who}_find_ms"] = 1e3 * best(lambda cache=cache: cache[wanted])  # type: ignore[misc]
    disk = {
        "their": LlamaDiskCache(f"{directory}/theirs", 1 << 40),
        "our": ours.LlamaDiskCache(f"{directory}/ours", 1 << 40, min_free_bytes=0),
        "our_not_durable": ours.LlamaDiskCache(
            f"{directory}/quick", 1 << 40, min_free_bytes=0, durable=False
        ),
    }
    for who, cache in disk.items():
        with contextlib.redirect_stderr(io.StringIO()):

            def put(cache: Any = cache) -> None:
                cache[wanted] = state(base, raw)

            result[f"{who}_disk_put_ms"] = 1e3 * best(put)
            times = []
            for _ in range(5):
                put()  # theirs is gone after a hit
                times.append(best(lambda cache=cache: cache[wanted], 1))  # type: ignore[misc]
            result[f"{who}_disk_get_ms"] = 1e3 * min(times)
    return result
