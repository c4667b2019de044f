"""`bench`: the rates of a model on this machine, each beside the machine's limit."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, cast

import click

from ..console.progress import Mode, reporting
from ..models import resolve
from ..options.completion import complete_model
from ..options.shared import kv_option, offline_option, progress_option, threads_option

if TYPE_CHECKING:
    from ..verification import Precision
    from ..verification.measurement import Measurement


@click.command()
@click.argument("model", shell_complete=complete_model)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "-r",
    "--repeat",
    type=click.IntRange(1, 100),
    default=3,
    help="Repetitions; the best counts.  [default: 3]",
)
@threads_option()
@kv_option()
@offline_option()
@progress_option()
def bench(
    model: str, as_json: bool, repeat: int, threads: int | None, kv: Precision, offline: bool, progress: str
) -> None:
    """Measure MODEL on this machine: prefill, decode, fork, snapshot, restore.

    Each rate comes with the limit that was measured beside it, and the fraction of it that was reached:

    \b
      prefill   512 tokens     integer operations of the CPU's dot product
      decode    128 tokens     bytes that memory delivers
      fork      at 32 and 512 pages, with the pages it allocated (none)
      snapshot, restore        plain writing (with fsync) and reading of the same bytes
    """  # noqa: D301
    import llamay_kernels
    import llamay_models

    from ..verification.measurement import PREFILL, measure
    from ..verification.text import text_tokens

    resolved = resolve(model, mode=cast(Mode, progress), offline=offline)
    with reporting(cast(Mode, progress)) as report:
        began = time.perf_counter()
        loaded = llamay_models.load(
            resolved.path,
            threads=threads,
            kv=kv,
            sha256=resolved.sha256,
            prefix_cache=0,  # a cached prompt would not be prefilled
            speculation=False,  # nor a confirmed draft decoded by itself
            progress=report,
        )
        loaded.engine.check_writes()
        load = time.perf_counter() - began
        found = []
        with loaded:
            head = {
                "model": resolved.name,
                "threads": loaded.threads,
                "kernels": llamay_kernels.isa(),
                "kv": kv,
            }
            tokens = text_tokens(loaded, min(PREFILL, loaded.context_size - 64))
            if not as_json:
                click.echo(", ".join(f"{key} {value}" for key, value in head.items()))
                click.echo(f"{'load':18}{load * 1e3:12,.0f} ms")
            for measurement in measure(loaded, tokens, repeat, report):
                found.append(measurement)
                if not as_json:
                    click.echo(_line(measurement))
    if as_json:
        document = {**head, "load_seconds": load, "measurements": [m.to_json() for m in found]}
        click.echo(json.dumps(document, indent=2))


_LIMITS = {
    "int8_ops": "of the {:.2f} Tint8-op/s that this CPU shows",
    "read_bandwidth": "of the {:.1f} GB/s that memory delivers",
    "file_write": "of the {:.2f} GB/s of a plain write with fsync",
    "file_read": "of the {:.2f} GB/s of a plain read",
}


def _line(m: Measurement) -> str:
    if m.limit is None:
        nanoseconds, pages = m.more["nanoseconds_per_branch"], m.more["pages_allocated"]
        return f"{m.name:18}{nanoseconds:12,.0f} ns a branch, {pages} pages allocated"
    scale = 1e12 if m.limit == "int8_ops" else 1e9
    limit = _LIMITS[m.limit].format((m.limit_rate or 0.0) / scale)
    rate = f"{m.rate:12,.1f} tokens/s" if m.unit == "tokens/s" else f"{m.rate / 1e9:12.2f} GB/s    "
    return f"{m.name:18}{rate}  {100 * (m.fraction or 0.0):5.1f} % {limit}"
