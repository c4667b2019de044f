"""What the server costs over the engine that it serves, and what contexts cost over HTTP.

    python benchmarks/server.py MODEL.gguf [--json] [--streams 32] [--tokens 64] [--repeats 3]

- engine: N streams straight from the engine, in one process; server: the same N streams over HTTP from a client
  process. Pairs alternate and the median of their ratios is reported, because machines drift.
- first token: of a request that goes on from a context of `--prompt` tokens, against reading the prompt.
- fork, snapshot, restore: medians over HTTP.
- Where `llama-server` is on the PATH (or named by LLAMA_SERVER), the same streams against it, in the same run.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import httpx

import llamay_models
from llamay_server import Config, create_app
from llamay_server._adapter import Engine, load
from llamay_server._serve import make_server

PROMPT = "Once upon a time, in a land far away, there lived"


async def one_stream(host: str, port: int, body: bytes) -> int:
    """One streamed completion over a socket; gives the bytes read. As light as a client can be."""
    reader, writer = await asyncio.open_connection(host, port)
    head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    head += f"Content-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    total = 0
    tail = b""
    while part := await reader.read(65536):
        total += len(part)
        tail = (tail + part)[-64:]
    writer.close()
    if b"[DONE]" not in tail:
        raise RuntimeError(f"a stream ended without its end: {tail!r}")
    return total


async def all_streams(host: str, port: int, streams: int, tokens: int) -> None:
    """N streams at once, each with a seed of its own."""
    bodies = [
        json.dumps(
            {"prompt": f"{PROMPT} {i}", "max_tokens": tokens, "stream": True, "seed": i, "ignore_eos": True}
        ).encode()
        for i in range(streams)
    ]
    await asyncio.gather(*(one_stream(host, port, body) for body in bodies))


def client(args: list[str]) -> None:
    """The client process: prints the seconds of one round."""
    host, port, streams, tokens = args[0], int(args[1]), int(args[2]), int(args[3])
    began = time.perf_counter()
    asyncio.run(all_streams(host, port, streams, tokens))
    print(time.perf_counter() - began)


def over_http(host: str, port: int, streams: int, tokens: int) -> float:
    """Tokens a second of N streams over HTTP."""
    command = [sys.executable, __file__, "--client", host, str(port), str(streams), str(tokens)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return streams * tokens / float(done.stdout)


def bare(model: llamay_models.Model, streams: int, tokens: int) -> float:
    """Tokens a second of the same streams straight from the engine."""
    sampling = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0}
    began = time.perf_counter()
    running = [
        model.engine.submit(
            llamay_models.Request(
                model.encode(f"{PROMPT} {i}", parse_special=True),
                llamay_models.Sampling(seed=i, **sampling),
                tokens,
                ignore_eos=True,
                stream=0,
            )
        )
        for i in range(streams)
    ]
    for generation in running:
        for _ in generation:
            pass
    return streams * tokens / (time.perf_counter() - began)


def median_ms(work: Any, repeats: int) -> float:
    """Median milliseconds of a call."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        times.append(1e3 * (time.perf_counter() - began))
    return statistics.median(times)


def contexts(url: str, prompt_tokens: int, repeats: int) -> dict[str, float]:
    """What contexts cost over HTTP; milliseconds."""
    with httpx.Client(base_url=url, timeout=600) as c:

        def post(path: str, body: Any = None) -> Any:
            r = c.post(path, json=body)
            r.raise_for_status()
            return r.json()

        ids = post("/tokenize", {"content": f"{PROMPT}. " * prompt_tokens})["tokens"][: prompt_tokens - 8]
        began = time.perf_counter()
        cid = post("/v1/contexts", {"tokens": ids})["id"]
        read = 1e3 * (time.perf_counter() - began)
        made: list[str] = []
        fork = median_ms(lambda: made.extend(post(f"/v1/contexts/{cid}/fork")["ids"]), repeats)

        branches = iter(post(f"/v1/contexts/{cid}/fork?n={repeats}")["ids"])

        def first() -> None:
            body = {"max_tokens": 16, "stream": True, "seed": 1, "ignore_eos": True, "prompt": " and"}
            with c.stream("POST", f"/v1/contexts/{next(branches)}/generate", json=body) as r:
                r.raise_for_status()
                next(r.iter_raw())

        cached = median_ms(first, repeats)
        data = b""

        def save() -> None:
            nonlocal data
            data = c.get(f"/v1/contexts/{cid}/snapshot").content

        snapshot = median_ms(save, repeats)
        restore = median_ms(
            lambda: made.append(c.post("/v1/contexts/restore", content=data).json()["id"]), repeats
        )
        for each in (cid, *made):
            c.delete(f"/v1/contexts/{each}")
    return {
        "prompt_tokens": len(ids),
        "read_ms": read,
        "first_token_cached_ms": cached,
        "fork_ms": fork,
        "snapshot_ms": snapshot,
        "restore_ms": restore,
        "snapshot_mib": len(data) / 2**20,
    }


@contextlib.contextmanager
def llama_server(model: Path, streams: int, tokens: int, threads: int) -> Any:
    """llama.cpp's server on a free port, or None where it is not installed."""
    binary = os.environ.get("LLAMA_SERVER") or shutil.which("llama-server")
    if not binary:
        yield None
        return
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    size = streams * (tokens + 64)
    command = [
        binary,
        "-m",
        str(model),
        "--port",
        str(port),
        "-np",
        str(streams),
        "-c",
        str(size),
        "-t",
        str(threads),
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200:
                    break
            time.sleep(0.1)
        yield port
    finally:
        process.terminate()
        process.wait()


def main() -> None:
    if sys.argv[1:2] == ["--client"]:
        client(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--prompt", type=int, default=4096)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    args = parser.parse_args()

    config = Config(port=0, threads=args.threads)
    model = load(config)(args.model)
    assert isinstance(model, Engine)
    server = make_server(create_app([model], config=config))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    port = int(server.url().rsplit(":", 1)[1])
    out: dict[str, Any] = {
        "model": args.model.name,
        "streams": args.streams,
        "tokens": args.tokens,
        "threads": args.threads,
    }
    engine_rates, server_rates, ratios, peer = [], [], [], []
    with llama_server(args.model, args.streams, args.tokens, args.threads) as other:
        for _ in range(args.repeats):
            engine_rates.append(bare(model.model, args.streams, args.tokens))
            server_rates.append(over_http("127.0.0.1", port, args.streams, args.tokens))
            ratios.append(engine_rates[-1] / server_rates[-1])
            if other:
                peer.append(over_http("127.0.0.1", other, args.streams, args.tokens))
    out["engine_tokens_per_s"] = statistics.median(engine_rates)
    out["server_tokens_per_s"] = statistics.median(server_rates)
    out["overhead_percent"] = 100 * (statistics.median(ratios) - 1)
    out["llama_server_tokens_per_s"] = statistics.median(peer) if peer else None
    length = min(args.prompt, model.info.context_length - 64)
    out |= contexts(f"http://127.0.0.1:{port}", length, max(5, args.repeats))
    server.should_exit = True
    thread.join(10)
    if args.json:
        print(json.dumps(out, indent=1))
        return
    for name, value in out.items():
        print(f"{name:28} {value if not isinstance(value, float) else f'{value:.2f}'}")


if __name__ == "__main__":
    main()
