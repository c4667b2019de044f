"""The overhead of the server over its engine, and the times of contexts over HTTP.

    python benchmarks/server.py MODEL [--json] [--streams 32] [--tokens 64] [--repeats 5]
    python benchmarks/server.py MODEL --peer-python PYTHON      # one that has xllamacpp, llama.cpp's server as a wheel

MODEL is a GGUF file.

- engine: N streams straight from the engine, in one process; server: the same N streams over HTTP from a client
  process. Pairs alternate, and the median of their ratios is reported, because machines drift. What serving takes is
  told as processor time too: of the thread that serves, and of the client, which has its part of the same cores. The
  overhead without the client is what is left when that part is taken off.
- first token: over HTTP, of a prompt of `--prompt` tokens that was read before, once as a plain request and once from a
  context, against reading it.
- fork, snapshot, restore: medians over HTTP.
- llama.cpp's server answers the same requests, in turn with ours. Its slots are saved to and restored from its disk
  where ours travel over the connection.

Nothing that repeats is taken from a cache where rates are measured.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import select
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

PROMPT = "Once upon a time, in a land far away, there lived"
# llama.cpp's own settings; drawing from the whole vocabulary, as OpenAI's routes do by default, costs it far more.
SAMPLING: dict[str, Any] = {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05}
UNCACHED = {"cache_prompt": False}


def request_of(i: int, tokens: int) -> bytes:
    """One streamed completion as it goes over the wire."""
    fields = {"prompt": f"{PROMPT} {i}", "max_tokens": tokens, "stream": True, "seed": i, "ignore_eos": True}
    body = json.dumps(fields | SAMPLING | UNCACHED).encode()
    head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    return f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def client(port: int, streams: int, tokens: int) -> None:
    """The client process: prints the seconds of one round, and of its own processor time in it. As light as it can be.

    It reads every part as it comes, and looks into none but the last.
    """
    ready = select.poll()
    requests = [request_of(i, tokens) for i in range(streams)]
    tails: dict[int, bytes] = {}
    connections: dict[int, socket.socket] = {}
    began, cpu = time.perf_counter(), time.process_time()
    for request in requests:
        connection = socket.create_connection(("127.0.0.1", port))
        connection.sendall(request)
        connection.setblocking(False)
        ready.register(connection.fileno(), select.POLLIN)
        connections[connection.fileno()] = connection
    while connections:
        for number, _ in ready.poll():
            if part := connections[number].recv(1 << 16):
                tails[number] = part if len(part) > 64 else tails.get(number, b"")[-64:] + part
                continue
            ready.unregister(number)
            connections.pop(number).detach()
    found = {"seconds": time.perf_counter() - began, "cpu": time.process_time() - cpu}
    if len(tails) < streams or any(b"[DONE]" not in tail for tail in tails.values()):
        raise SystemExit(f"a stream ended without its end: {next(iter(tails.values()), b'')!r}")
    print(json.dumps(found))


def over_http(port: int, streams: int, tokens: int) -> dict[str, float]:
    """The report of a client process for one round."""
    command = [sys.executable, "-S", __file__, "--client", str(port), str(streams), str(tokens)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"error: the client failed: {done.stderr.strip()[-400:]}")
    found: dict[str, float] = json.loads(done.stdout)
    return found | {"rate": streams * tokens / found["seconds"]}


def bare(model: Any, streams: int, tokens: int) -> float:
    """Tokens a second of the same streams straight from the engine."""
    import llamay_models

    began = time.perf_counter()
    running = [
        model.engine.submit(
            llamay_models.Request(
                model.encode(f"{PROMPT} {i}", parse_special=True),
                llamay_models.Sampling(seed=i, **SAMPLING),
                tokens,
                ignore_eos=True,
                random_stream=0,
                reuse=False,
            )
        )
        for i in range(streams)
    ]
    for generation in running:
        for _ in generation:
            pass
    return streams * tokens / (time.perf_counter() - began)


class Connection:
    """One kept-alive connection; times are milliseconds."""

    def __init__(self, port: int) -> None:
        self._http = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
        self._http.connect()

    def ask(self, method: str, path: str, body: Any = None) -> bytes:
        """Return the body of an answer; ends the program where it is a refusal."""
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        self._http.request(method, path, data, {"Content-Type": "application/json"})
        answer = self._http.getresponse()
        found = answer.read()
        if answer.status >= 400:
            raise SystemExit(f"error: {method} {path} gave {answer.status}: {found[:300].decode()}")
        return found

    def post(self, path: str, body: Any = None) -> Any:
        """Return the object of an answer."""
        return json.loads(self.ask("POST", path, body))

    def first(self, path: str, body: dict[str, Any]) -> float:
        """Milliseconds from sending a request to the first frame of its stream."""
        data = json.dumps(body)
        self._http.close()  # llama.cpp's server ends a connection with each stream; both get a new one
        self._http.connect()
        began = time.perf_counter()
        self._http.request("POST", path, data, {"Content-Type": "application/json"})
        answer = self._http.getresponse()
        line = answer.readline()
        ended = time.perf_counter()
        if answer.status >= 400:
            raise SystemExit(f"error: {path} gave {answer.status}: {line[:300].decode()}")
        answer.read()
        self._http.close()
        return 1e3 * (ended - began)


def median_ms(work: Callable[[], Any], repeats: int) -> float:
    """Median milliseconds of a call."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        times.append(1e3 * (time.perf_counter() - began))
    return statistics.median(times)


def contexts(port: int, ids: list[int], repeats: int) -> dict[str, float]:
    """Times of contexts over HTTP, and of a plain prompt that was read before."""
    c = Connection(port)
    asked: dict[str, Any] = {"max_tokens": 1, "stream": True, "seed": 1, "ignore_eos": True}
    cold = c.first("/v1/completions", asked | UNCACHED | {"prompt": ids})
    c.first("/v1/completions", asked | {"prompt": ids})
    cached = statistics.median(c.first("/v1/completions", asked | {"prompt": ids}) for _ in range(repeats))
    cid = c.post("/v1/contexts", {"tokens": ids[:-1]})["id"]
    made: list[str] = []
    fork = median_ms(lambda: made.extend(c.post(f"/v1/contexts/{cid}/fork")["ids"]), repeats)
    branches = c.post(f"/v1/contexts/{cid}/fork?n={repeats}")["ids"]
    asked["tokens"] = ids[-1:]
    branched = statistics.median(c.first(f"/v1/contexts/{each}/generate", asked) for each in branches)
    data = c.ask("GET", f"/v1/contexts/{cid}/snapshot")
    snapshot = median_ms(lambda: c.ask("GET", f"/v1/contexts/{cid}/snapshot"), repeats)
    restore = median_ms(lambda: made.append(c.post("/v1/contexts/restore", data)["id"]), repeats)
    for each in (cid, *made, *branches):
        c.ask("DELETE", f"/v1/contexts/{each}")
    return {
        "prompt_tokens": len(ids),
        "first_token_cold_ms": cold,
        "first_token_cached_ms": cached,
        "first_token_from_context_ms": branched,
        "fork_ms": fork,
        "snapshot_ms": snapshot,
        "restore_ms": restore,
        "snapshot_mib": len(data) / 2**20,
    }


class Peer:
    """llama.cpp's server in a process of its own, with arguments for its capacity."""

    def __init__(self, python: str, model: Path, threads: int, context: int, slots: int) -> None:
        script = Path(__file__).parent / "engines" / "llamacpp_server.py"
        self.process = subprocess.Popen(
            [python, str(script), str(model), str(threads), str(context), str(slots)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self.process.stdout is not None
        line = next((line for line in self.process.stdout if line.startswith("PORT ")), None)
        if line is None:
            raise SystemExit(f"error: llama.cpp's server did not start under {python}; it needs xllamacpp")
        self.port = int(line.split()[1])

    def close(self) -> None:
        """End it; the file of its slot goes with it."""
        with contextlib.suppress(OSError):
            assert self.process.stdin is not None
            self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def peer_contexts(port: int, ids: list[int], repeats: int) -> dict[str, float]:
    """The same of llama.cpp's server, as far as it has it."""
    c = Connection(port)
    asked = {"n_predict": 1, "stream": True, "seed": 1, "id_slot": 0, "prompt": ids}
    cold = c.first("/completion", asked | UNCACHED)
    c.first("/completion", asked | {"cache_prompt": True})
    cached = statistics.median(c.first("/completion", asked | {"cache_prompt": True}) for _ in range(repeats))
    save = median_ms(lambda: c.post("/slots/0?action=save", {"filename": "slot"}), repeats)
    restore = median_ms(lambda: c.post("/slots/0?action=restore", {"filename": "slot"}), repeats)
    return {
        "peer_first_token_cold_ms": cold,
        "peer_first_token_cached_ms": cached,
        "peer_slot_save_ms": save,
        "peer_slot_restore_ms": restore,
    }


@contextlib.contextmanager
def served(engine: Any, config: Any) -> Iterator[tuple[int, Callable[[], float]]]:
    """Serve an engine in this process; gives the port, and the processor time of the thread that serves."""
    from llamay_server import create_app
    from llamay_server.app.serving import make_server

    server = make_server(create_app([engine], config=config))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    assert thread.ident is not None
    clock = time.pthread_getcpuclockid(thread.ident)
    try:
        yield int(server.url().rsplit(":", 1)[1]), lambda: time.clock_gettime(clock)
    finally:
        server.should_exit = True
        thread.join(10)


def measure(args: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    """All figures of one model."""
    from llamay_server import Config
    from llamay_server.engine.loading import load
    from llamay_server.engine.model import ServedModel

    config = Config(port=0, threads=args.threads, ctx_size=args.prompt + 64)
    engine = load(config)(args.model)
    assert isinstance(engine, ServedModel)
    length = min(args.prompt, engine.info.context_length - 64)
    many = args.streams * args.tokens
    rounds: list[dict[str, float]] = []
    peer_rates: list[float] = []
    words = engine.encode(f"{PROMPT}. " * (length // 4), add_special=True, parse_special=True)
    ids = (words * (length // len(words) + 1))[:length]
    with contextlib.ExitStack() as stack:
        port, clock = stack.enter_context(served(engine, config))
        bare(engine.model, args.streams, 4)
        for number in range(args.repeats):

            def ours() -> dict[str, float]:
                cpu = clock()
                found = over_http(port, args.streams, args.tokens)
                return found | {"server_cpu": clock() - cpu}

            if number % 2:
                found, engine_rate = ours(), bare(engine.model, args.streams, args.tokens)
            else:
                engine_rate, found = bare(engine.model, args.streams, args.tokens), ours()
            # The client's part of the cores, in seconds.
            apart = many / (found["seconds"] - found["cpu"] / len(os.sched_getaffinity(0)))
            ratios = {"ratio": engine_rate / found["rate"], "ratio_apart": engine_rate / apart}
            rounds.append(found | {"engine_rate": engine_rate} | ratios)
            say(f"round {number + 1}: engine {engine_rate:.1f}, server {found['rate']:.1f} tokens/s")
        own = contexts(port, ids, max(5, args.repeats))
        if args.peer_python:
            peer = Peer(
                args.peer_python, args.model, args.threads, args.streams * (args.tokens + 64), args.streams
            )
            stack.callback(peer.close)
            over_http(peer.port, args.streams, 4)
            paired = []
            for number in range(args.repeats):
                peer_rates.append(over_http(peer.port, args.streams, args.tokens)["rate"])
                mine = over_http(port, args.streams, args.tokens)["rate"]
                paired.append(mine / peer_rates[-1])
                say(f"round {number + 1}: llama.cpp's server {peer_rates[-1]:.1f}, ours {mine:.1f} tokens/s")
            peer.close()
            alone = Peer(args.peer_python, args.model, args.threads, length + 64, 1)
            stack.callback(alone.close)
            own |= {"peer_ratio": statistics.median(paired)} | peer_contexts(
                alone.port, ids, max(5, args.repeats)
            )

    def middle(key: str) -> float:
        return statistics.median(each[key] for each in rounds)

    return {
        "model": args.model.name,
        "streams": args.streams,
        "tokens": args.tokens,
        "threads": args.threads,
        "engine_tokens_per_s": middle("engine_rate"),
        "server_tokens_per_s": middle("rate"),
        "overhead_percent": 100 * (middle("ratio") - 1),
        "overhead_without_client_percent": 100 * (middle("ratio_apart") - 1),
        "server_cpu_us_per_token": 1e6 * middle("server_cpu") / many,
        "client_cpu_us_per_token": 1e6 * middle("cpu") / many,
        "peer_tokens_per_s": statistics.median(peer_rates) if peer_rates else None,
        **own,
    }


def main() -> None:
    if sys.argv[1:2] == ["--client"]:
        client(*map(int, sys.argv[2:5]))
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=64, help="of each stream")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--prompt", type=int, default=4096, help="tokens of the prompt that is read before")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--peer-python", metavar="PYTHON", help="a Python that has xllamacpp")
    args = parser.parse_args()
    if not args.model.is_file():
        raise SystemExit(f"error: {args.model} is no file")
    out = measure(args, lambda text: print(text, file=sys.stderr))
    if args.json:
        print(json.dumps(out, indent=1))
        return
    for name, value in out.items():
        print(f"{name:28} {value if not isinstance(value, float) else f'{value:.2f}'}")


if __name__ == "__main__":
    main()
