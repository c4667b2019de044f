"""llama-server's slot save and restore, timed, and its reaction to flipped bits. Run by a Python that has xllamacpp.

python benchmarks/engines/slot_files.py MODEL N_TOKENS FLIPS
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
import time
import urllib.error
import urllib.request
from typing import Any

import xllamacpp  # type: ignore[import-not-found]


class Server:
    """A server with one slot."""

    def __init__(self, model: str, n_ctx: int, folder: str) -> None:
        params = xllamacpp.CommonParams()
        params.model.path = model
        params.n_ctx, params.n_parallel, params.port = n_ctx, 1, 0
        params.slot_save_path = folder + "/"
        params.endpoint_slots, params.warmup = True, False
        params.cache_idle_slots, params.cache_ram_mib = False, 0  # a restored slot must come from the file
        self._server = xllamacpp.Server(params)

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Return the answer; {"error": …} if it is one."""
        request = urllib.request.Request(
            self._server.listening_address + path,
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=300) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except urllib.error.HTTPError as error:
            return {"error": error.read().decode(errors="replace")[:200]}


def main() -> None:
    """Print one JSON object."""
    model, n, flips = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    rng = random.Random(0)
    ids = [rng.randrange(100, 400) for _ in range(n)]
    with tempfile.TemporaryDirectory() as folder:
        server = Server(model, n + 256, folder)

        def next_tokens() -> tuple[dict[str, Any], float]:
            body = {
                "prompt": ids,
                "n_predict": 1,
                "n_probs": 20,
                "temperature": 0,
                "id_slot": 0,
                "cache_prompt": True,
            }
            start = time.perf_counter()
            answer = server.post("/completion", body)
            return answer, time.perf_counter() - start

        good, prefill = next_tokens()
        save, restore, size = [], [], 0
        for i in range(9):
            start = time.perf_counter()
            answer = server.post("/slots/0?action=save", {"filename": f"s{i % 2}"})
            save.append(time.perf_counter() - start)
            size = answer.get("n_written", 0)
            start = time.perf_counter()
            server.post("/slots/0?action=restore", {"filename": f"s{i % 2}"})
            restore.append(time.perf_counter() - start)
        outcome = {"refused": 0, "accepted": 0, "changed": 0}
        path = os.path.join(folder, "s0")  # noqa: PTH118
        with open(path, "rb") as file:  # noqa: PTH123
            data = bytearray(file.read())
        server.post("/slots/0?action=restore", {"filename": "s0"})
        reference = next_tokens()[0].get("completion_probabilities")
        for _ in range(flips):
            bit = rng.randrange(8 * len(data))
            data[bit // 8] ^= 1 << bit % 8
            with open(path, "wb") as file:  # noqa: PTH123
                file.write(data)
            data[bit // 8] ^= 1 << bit % 8
            server.post("/slots/0?action=erase", {})
            answer = server.post("/slots/0?action=restore", {"filename": "s0"})
            if "error" in answer:
                outcome["refused"] += 1
                continue
            outcome["accepted"] += 1
            outcome["changed"] += next_tokens()[0].get("completion_probabilities") != reference
        result = {"file_bytes": size, "save_ms": 1e3 * min(save), "restore_ms": 1e3 * min(restore)}
        result |= {"prefill_ms": 1e3 * prefill, "flips": outcome, "ok": "error" not in good}
        sys.stdout.write("\nRESULT " + json.dumps(result) + "\n")
        sys.stdout.flush()
        os._exit(0)  # the server's threads need not be waited for


main()
