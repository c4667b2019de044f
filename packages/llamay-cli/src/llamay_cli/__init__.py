"""The `llamay` command: verbs, the model store, pulling, progress, reports.

`main` is the console entry. `llamay_cli.store` and `llamay_cli.pull` are the model store and what fills it;
both are usable from Python. Everything else here is how the command presents what the packages below
compute.
"""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Run the command line in `sys.argv` and leave with its exit code (see `llamay_cli.errors.Exit`)."""
    import os

    # numpy's own threads have nothing to do here: kernels multiply. They would only spin beside those while a model is
    # loaded.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from ._app import app

    app.main(prog_name="llamay")
