"""llama.cpp's server, for `server.py`. Run by a Python that has xllamacpp; it ends when its stdin does.

python benchmarks/engines/llamacpp_server.py MODEL THREADS CONTEXT SLOTS
"""

from __future__ import annotations

import os
import sys
import tempfile

import xllamacpp  # type: ignore[import-not-found]


def main() -> None:
    """Say `PORT n` once it answers, then wait."""
    params = xllamacpp.CommonParams()
    params.model.path = sys.argv[1]
    threads, context, slots = map(int, sys.argv[2:5])
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.n_ctx, params.n_parallel, params.port = context, slots, 0
    params.endpoint_slots = True
    # Otherwise results of another slot would be found again where rates are measured.
    params.cache_idle_slots, params.cache_ram_mib = False, 0
    with tempfile.TemporaryDirectory() as folder:
        params.slot_save_path = folder + "/"
        server = xllamacpp.Server(params)
        sys.stdout.write(f"\nPORT {server.listening_address.rsplit(':', 1)[1].rstrip('/')}\n")
        sys.stdout.flush()
        sys.stdin.read()
    os._exit(0)  # the server's threads need not be waited for


main()
