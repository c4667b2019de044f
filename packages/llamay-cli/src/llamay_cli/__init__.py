"""The `llamay` command: verbs, the model store, pulling, progress, reports.

`main` is the console entry. `llamay_cli.store` and `llamay_cli.pull` are the model store and the pulls that fill it;
both are usable from Python. Every other module serves the command alone.
"""

from __future__ import annotations

from typing import NoReturn

__all__ = ["main"]


def main() -> NoReturn:
    """Run the command line in `sys.argv` and leave with its exit code (see `llamay_cli.errors.Exit`)."""
    import gc
    import os

    # The kernels have threads of their own; those of numpy would only spin beside them while a model is loaded.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Imports make no garbage, and the collector would spend a twentieth of a start on looking for some.
    gc.set_threshold(20_000, 10, 10)
    from .command import app

    try:
        app.main(prog_name="llamay")
    except SystemExit as done:
        _leave(done.code)
        raise


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])


def _leave(code: object) -> None:
    """End the process without destroying its objects one by one, which takes a tenth of a short answer.

    Returns, and so leaves the ending to the interpreter, where a tracer or a profiler is at work, another thread has
    to be waited for, or output cannot be written.
    """
    import atexit
    import os
    import sys
    import threading

    here = threading.current_thread()
    others = any(t is not here and not t.daemon for t in threading.enumerate())
    if others or sys.gettrace() or sys.getprofile() or not isinstance(code, int):
        return
    atexit._run_exitfuncs()
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except (OSError, ValueError):
        return
    os._exit(code)
