"""The ik_llama.cpp side of a comparison: a process that measures on request.

It uses the C interface, with a batch for each step and the likeliest token of each row's logits, as greedy
sampling does.
"""

from __future__ import annotations

import ctypes
import os
import time
from typing import Any

import numpy as np
from process_memory import peak, resident
from worker import answers, arguments, requests, wait


def main() -> None:
    options = arguments(variants=True)
    say = answers()
    base = resident()
    worker = Worker(options.model, options.threads, options.context, options.variant, options.parallel)
    if options.once:
        worker.read([0], 0)
        say({"first": True, "base": base, "peak": peak()})
        wait()
        return
    worker.read([0] * 32, 0)
    say({"system": worker.system()})
    for what, details in requests():
        say(getattr(worker, what)(**details))


class Worker:
    """One method for each request; each returns its answer."""

    def __init__(self, model: str, threads: int, context: int, variant: str, parallel: int) -> None:
        from ik_llama_cpp import _ctypes_api as api  # type: ignore[import-not-found, unused-ignore]

        self.api = api
        api.llama_backend_init()
        params = api.llama_model_default_params()
        layout, _, rest = variant.partition("+")
        params.repack_tensors = layout == "repacked"
        params.use_mmap = layout != "repacked"
        self.model = api.llama_model_load_from_file(os.fsencode(model), params)
        if not self.model:
            raise SystemExit(f"ik_llama.cpp cannot load {model}")
        settings = api.llama_context_default_params()
        settings.n_ctx = context * parallel
        settings.n_batch, settings.n_ubatch = 2048, 512
        settings.n_seq_max = parallel
        settings.n_threads = settings.n_threads_batch = threads
        settings.flash_attn = not rest
        self.context = api.llama_init_from_model(self.model, settings)
        if not self.context:
            raise SystemExit("ik_llama.cpp cannot make a context")
        self.vocabulary = api.llama_vocab_n_tokens(api.llama_model_get_vocab(self.model))
        self.known: list[int] = []
        copy = api._lib.llama_kv_cache_seq_cp
        copy.argtypes, copy.restype = [ctypes.c_void_p] + 4 * [ctypes.c_int32], None
        remove = api._lib.llama_kv_cache_seq_rm
        remove.argtypes, remove.restype = [ctypes.c_void_p] + 3 * [ctypes.c_int32], ctypes.c_bool
        self.copy, self.remove = copy, remove

    def system(self) -> str:
        """Return the features that it was built with."""
        function = self.api._lib.llama_print_system_info
        function.restype = ctypes.c_char_p
        return str(function().decode())

    def step(self, rows: list[tuple[int, int, int, bool]]) -> None:
        """Compute rows of (token, position, sequence, wants logits)."""
        batch = self.api.llama_batch_init(len(rows), 0, 1)
        batch.n_tokens = len(rows)
        for i, (token, position, sequence, wanted) in enumerate(rows):
            batch.token[i], batch.pos[i] = token, position
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, sequence
            batch.logits[i] = wanted
        code = self.api.llama_decode(self.context, batch)
        self.api.llama_batch_free(batch)
        if code:
            raise SystemExit(f"ik_llama.cpp's decode returns {code}")

    def likeliest(self, row: int) -> int:
        """Return the token with the largest logit in a row of the last step."""
        logits = self.api.llama_get_logits_ith(self.context, row)
        return int(np.ctypeslib.as_array(logits, (self.vocabulary,)).argmax())

    def read(self, tokens: list[int], sequence: int) -> int:
        """Read a prompt into an empty sequence; return the likeliest token after it."""
        self.remove(self.context, sequence, -1, -1)
        for begin in range(0, len(tokens), 2048):
            piece = tokens[begin : begin + 2048]
            last = len(tokens) - 1 - begin
            self.step([(token, begin + i, sequence, i == last) for i, token in enumerate(piece)])
        return self.likeliest(len(piece) - 1)

    def prefill(self, tokens: list[int]) -> dict[str, Any]:
        """Read a prompt, to the logits after its last token."""
        self.known = []
        began = time.perf_counter()
        self.read(tokens, 0)
        return {"rate": len(tokens) / (time.perf_counter() - began)}

    def decode(self, tokens: list[int], count: int) -> dict[str, Any]:
        """Write after a prompt, which is read once for all requests with it."""
        if tokens != self.known:
            self.read(tokens, 0)
            self.known = tokens
        self.remove(self.context, 0, len(tokens) - 1, -1)
        self.step([(tokens[-1], len(tokens) - 1, 0, True)])
        began = time.perf_counter()
        for position in range(len(tokens), len(tokens) + count - 1):
            self.step([(self.likeliest(0), position, 0, True)])
        self.likeliest(0)
        return {"rate": (count - 1) / (time.perf_counter() - began)}

    def streams(self, prompts: list[list[int]], count: int) -> dict[str, Any]:
        """Write after several prompts at once; the rate is of all together."""
        self.known = []
        following = [self.read(tokens, i) for i, tokens in enumerate(prompts)]
        return self._together(following, [len(tokens) for tokens in prompts], count)

    def branches(self, tokens: list[int], number: int, count: int) -> dict[str, Any]:
        """Write several continuations of one prompt at once; the rate is of all together."""
        if tokens != self.known:
            self.read(tokens, 0)
            self.known = tokens
        for i in range(1, number):
            self.remove(self.context, i, -1, -1)
            self.copy(self.context, 0, i, -1, -1)
        answer = self._together(
            [(i * 977 + 5) % self.vocabulary for i in range(number)], [len(tokens)] * number, count
        )
        self.known = []
        return answer

    def _together(self, following: list[int], lengths: list[int], count: int) -> dict[str, Any]:
        began = time.perf_counter()
        for done in range(count - 1):
            self.step([(token, lengths[i] + done, i, True) for i, token in enumerate(following)])
            following = [self.likeliest(i) for i in range(len(following))]
        return {"rate": len(following) * (count - 1) / (time.perf_counter() - began)}


if __name__ == "__main__":
    main()
