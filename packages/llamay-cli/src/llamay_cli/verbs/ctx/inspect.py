"""`ctx inspect`, `ctx verify`: the content of stored state, and whether it is undamaged."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...console.progress import reporting
from ...errors import Exit, printable
from .keys import cache_folder, json_option, keys_option, read_keys
from .paths import existing
from .weights import known_as

if TYPE_CHECKING:
    from llamay_kv import Manifest


@click.command()
@click.argument("file")
@json_option
@click.option("--tokens", is_flag=True, help="Print the token ids instead, one line.")
@click.option("--no-check", is_flag=True, help="Read the header only, not every byte.")
@keys_option
def inspect(file: str, as_json: bool, tokens: bool, no_check: bool, keys: tuple[str, ...]) -> None:
    """Show what a context file holds, and check every byte of it; or count what a disk cache's folder holds.

    An encrypted file is checked if its key is given; what is shown can be read without the key.
    """
    import llamay_kv

    source = existing(file)
    if source.is_dir():
        _inspectcache_folder(source, as_json)
        return
    known = read_keys(keys)
    manifest = llamay_kv.inspect(source)
    locked = manifest.encryption is not None and manifest.encryption.find(known) is None
    if tokens:
        click.echo(" ".join(map(str, llamay_kv.stored_tokens(source, keys=known))))
        return
    checked = not no_check and not locked
    if checked:
        with reporting() as report:
            report("checking", 0, 0)
            llamay_kv.verify(source, keys=known)
    if as_json:
        document = {"file": str(source), "checked": checked, "model": known_as(manifest)}
        click.echo(json.dumps(document | manifest.to_json(), indent=2))
        return
    for line in _lines(source, manifest, checked=checked):
        click.echo(printable(line))


def _inspectcache_folder(folder: Path, as_json: bool) -> None:
    survey = cache_folder(folder, None).survey()
    if as_json:
        click.echo(json.dumps({"folder": str(folder), **survey.to_json()}, indent=2))
        return
    click.echo(f"{'folder':14}{printable(str(folder))}")
    click.echo(f"{'chunks':14}{survey.chunks} ({survey.chunk_bytes:,} bytes)")
    for name, when in (("oldest use", survey.oldest), ("newest use", survey.newest)):
        if when is not None:
            click.echo(f"{name:14}{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(when))}")
    click.echo(f"{'key':14}{'a secret of its own' if survey.own_secret else 'given by its users'}")
    if survey.unfinished:
        click.echo(f"{'unfinished':14}{len(survey.unfinished)} files")
    if survey.other:
        click.echo(f"{'other files':14}{printable(', '.join(survey.other[:10]))}")


def _lines(source: Path, manifest: Manifest, *, checked: bool) -> list[str]:
    lines = [
        f"{'file':14}{source} ({source.stat().st_size:,} bytes{', every byte checked' if checked else ''})",
        f"{'tokens':14}{manifest.n_tokens}",
        f"{'model':14}{known_as(manifest) or 'not in the store'}",
    ]
    if manifest.encryption is not None:
        lines.append(f"{'encrypted':14}under the key {manifest.encryption.key!r}")
    for name, value in (("owner", manifest.owner), ("marking", manifest.marking)):
        if value is not None:
            lines.append(f"{name:14}{value}")
    for i, group in enumerate(manifest.layout.groups):
        window = f" of {group.window}" if group.window else ""
        held = f", positions from {manifest.first[i]}" if manifest.first[i] else ""
        was = f", computed in {manifest.computed[i]}" if manifest.computed else ""
        lines.append(
            f"{f'group {i}':14}{group.kind}{window}, {len(group.layers)} layers, {group.precision}{was}{held}"
        )
    for name, version, length in manifest.side:
        lines.append(f"{'side state':14}{name} (version {version}, {length:,} bytes)")
    if manifest.identity is not None:
        for name, field in manifest.identity.fields.items():
            lines.append(f"{name:14}{field.hex() if isinstance(field, bytes) else field}")
    return lines


@click.command()
@click.argument("files", nargs=-1, required=True)
@keys_option
@json_option
def verify(files: tuple[str, ...], keys: tuple[str, ...], as_json: bool) -> None:
    """Read every byte of context FILES, or of every chunk in a disk cache's folder, and print what is damaged.

    The exit code is 1 if anything is.
    """
    import llamay_kv

    known, rows = read_keys(keys), []
    with reporting() as report:
        for i, file in enumerate(files):
            report("checking", i, len(files))
            source = existing(file)
            if source.is_dir():
                folder = cache_folder(source, known)
                wrong = folder.verify()
                rows += [
                    {"file": f"{source}/{name}", "ok": False, "error": why} for name, why in wrong.items()
                ]
                rows.append({"file": str(source), "ok": not wrong, "chunks": folder.survey().chunks})
                continue
            try:
                manifest = llamay_kv.verify(source, keys=known)
                rows.append({"file": str(source), "ok": True, "digest": manifest.digest.hex()})
            except llamay_kv.SnapshotError as error:
                row = {"file": str(source), "ok": False, "part": error.part, "error": error.reason}
                rows.append(row)
    good = all(row["ok"] for row in rows)
    if as_json:
        click.echo(json.dumps({"ok": good, "files": rows}, indent=2))
    else:
        for row in rows:
            part = f"{row['part']}: " if "part" in row else ""
            said = "ok" if row["ok"] else f"DAMAGED: {part}{row.get('error', 'see above')}"
            click.echo(printable(f"{row['file']}: {said}"))
    if not good:
        click.get_current_context().exit(Exit.ERROR)
