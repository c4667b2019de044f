"""`ctx gc`: removing unfinished files, and chunks of a disk cache."""

from __future__ import annotations

import json
import re

import click

from ...errors import CliError
from ...options.shared import read_size
from .keys import cache_folder, json_option, keys_option, read_keys
from .paths import existing

_AGES = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


@click.command()
@click.argument("folder")
@click.option(
    "--budget",
    callback=read_size,
    metavar="SIZE",
    help="The most that a cache's chunks may take, such as 10G.",
)
@click.option(
    "--older-than", metavar="AGE", help="Remove chunks that were not used for so long: 90s, 30m, 12h, 30d."
)
@click.option("--damaged", is_flag=True, help="Read every chunk, and remove those that are damaged.")
@keys_option
@json_option
def gc(
    folder: str,
    budget: int | None,
    older_than: str | None,
    damaged: bool,
    keys: tuple[str, ...],
    as_json: bool,
) -> None:
    """Remove unfinished files from FOLDER, and from a disk cache the chunks that the options name.

    Complete context files are never touched.
    """
    import llamay_kv

    source = existing(folder)
    if not source.is_dir():
        raise CliError(f"{folder} is not a folder")
    age = _age(older_than)
    removed = dict.fromkeys(llamay_kv.sweep(source), 0)
    if budget is not None or age is not None or damaged or list(source.glob("*.kvc")):
        cache = cache_folder(source, read_keys(keys))
        removed |= cache.collect(budget_bytes=budget, older_than=age, damaged=damaged)
    if as_json:
        click.echo(
            json.dumps({"folder": str(source), "removed": removed, "bytes": sum(removed.values())}, indent=2)
        )
    else:
        click.echo(f"removed {len(removed)} files, {sum(removed.values()):,} bytes")


def _age(text: str | None) -> float | None:
    if text is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text.strip().lower())
    if match is None:
        raise click.BadParameter(f"{text!r} is not an age such as 30m, 12h or 30d", param_hint="--older-than")
    return float(match[1]) * _AGES[match[2]]
