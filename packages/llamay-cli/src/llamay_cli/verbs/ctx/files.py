"""`ctx inspect`, `verify`, `rekey`, `diff`, `gc`, `explain-miss`: looking after stored state, without a model."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...console.progress import reporting
from ...errors import CliError, Exit, NotFoundError, printable
from ...options.shared import read_size

if TYPE_CHECKING:
    from llamay_kv import CacheFolder, Key, Manifest

_AGES = {"s": 1, "m": 60, "h": 3600, "d": 86_400}

_keys = click.option(
    "--key",
    "keys",
    multiple=True,
    metavar="[NAME=]FILE",
    help="A key that it may be encrypted under: a file of 32 bytes or more, or of as many hexadecimal digits.",
)
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def verbs() -> list[click.Command]:
    """Return the commands."""
    return [inspect, verify, rekey, diff, gc, explain_miss]


@click.command()
@click.argument("file")
@_json
@click.option("--tokens", is_flag=True, help="Print the token ids instead, one line.")
@click.option("--no-check", is_flag=True, help="Read the header only, not every byte.")
@_keys
def inspect(file: str, as_json: bool, tokens: bool, no_check: bool, keys: tuple[str, ...]) -> None:
    """Show what a context file holds, and check every byte of it; or count what a disk cache's folder holds.

    A file that is encrypted is checked if its key is given; what is shown can be read without it.
    """
    import llamay_kv

    source = _source(file)
    if source.is_dir():
        _inspect_folder(source, as_json)
        return
    known = _read_keys(keys)
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


def _inspect_folder(folder: Path, as_json: bool) -> None:
    survey = _folder(folder, None).survey()
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
@_keys
@_json
def verify(files: tuple[str, ...], keys: tuple[str, ...], as_json: bool) -> None:
    """Read every byte of context FILES, or of every chunk in a disk cache's folder, and say what is damaged.

    The exit code is 1 if anything is.
    """
    import llamay_kv

    known, rows = _read_keys(keys), []
    with reporting() as report:
        for i, file in enumerate(files):
            report("checking", i, len(files))
            source = _source(file)
            if source.is_dir():
                folder = _folder(source, known)
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


@click.command()
@click.argument("files", nargs=-1, required=True)
@_keys
@click.option("--new-key", metavar="[NAME=]FILE", help="The key to encrypt under from now on.")
@click.option("--generate", is_flag=True, help="Make the new key; its FILE must not exist.")
@click.option("--decrypt", is_flag=True, help="Leave the files in the clear; never a marked one.")
@_json
def rekey(
    files: tuple[str, ...],
    keys: tuple[str, ...],
    new_key: str | None,
    generate: bool,
    decrypt: bool,
    as_json: bool,
) -> None:
    """Encrypt context FILES under another key, each in place of the old one, verifying every byte on the way.

    A file that fails stays as it was, and so do those after it. A disk cache cannot be given another key: the names in
    it depend on it. Remove its folder, and it fills again.
    """
    import llamay_kv

    if decrypt == (new_key is not None):
        raise click.UsageError("give either --new-key or --decrypt")
    if generate and new_key is None:
        raise click.UsageError("--generate needs --new-key")
    sources = [_source(file) for file in files]
    for source in sources:
        if source.is_dir():
            raise CliError(
                f"{source} is a folder", "a disk cache keeps its key; remove it, and it fills again"
            )
    known = _read_keys(keys)
    if generate:
        _generate(str(new_key))
    key = _read_key(new_key) if new_key is not None else None
    rows = []
    with reporting() as report:
        for i, source in enumerate(sources):
            report("rewriting", i, len(sources))
            manifest = llamay_kv.rekey(source, key, keys=known)
            name = manifest.encryption.key if manifest.encryption else None
            rows.append({"file": str(source), "key": name, "digest": manifest.digest.hex()})
    if as_json:
        click.echo(json.dumps({"files": rows}, indent=2))
        return
    for row in rows:
        said = f"encrypted under {row['key']!r}" if row["key"] else "in the clear"
        click.echo(printable(f"{row['file']}: {said}"))


@click.command()
@click.argument("a")
@click.argument("b")
@_keys
@_json
def diff(a: str, b: str, keys: tuple[str, ...], as_json: bool) -> None:
    """Say in what two context files differ, verifying every byte of both. The exit code is 1 if they do.

    K/V is compared as far as the tokens are the same.
    """
    import llamay_kv

    found = llamay_kv.diff(_source(a, file=True), _source(b, file=True), keys=_read_keys(keys))
    if as_json:
        click.echo(json.dumps({"a": a, "b": b, **found.to_json()}, indent=2))
    else:
        first, second, common = found.tokens
        if not found:
            click.echo(f"no difference in {common} tokens")
        elif not first == second == common:
            click.echo(f"tokens        {first} and {second}, the first {common} are the same")
        for name, value in (("layout", found.layout), ("identity", found.identity)):
            if value is not None:
                click.echo(printable(f"{name:14}{value}"))
        for group, begin, end in found.values:
            click.echo(f"{'K/V':14}group {group}, positions {begin} to {end - 1}")
        for name, values in (("side state", found.side), ("label", found.labels)):
            for value in values:
                click.echo(printable(f"{name:14}{value}"))
    if found:
        click.get_current_context().exit(Exit.ERROR)


@click.command()
@click.argument("folder")
@click.option(
    "--budget", callback=read_size, metavar="SIZE", help="What a cache's chunks may take, such as 10G."
)
@click.option("--older-than", metavar="AGE", help="Chunks unused for so long go too: 90s, 30m, 12h, 30d.")
@click.option("--damaged", is_flag=True, help="Read every chunk, and remove those that are damaged.")
@_keys
@_json
def gc(
    folder: str,
    budget: int | None,
    older_than: str | None,
    damaged: bool,
    keys: tuple[str, ...],
    as_json: bool,
) -> None:
    """Remove what is of no use in a FOLDER: files that somebody began and left, and in a disk cache what you say.

    Context files that are complete are never touched.
    """
    import llamay_kv

    source = _source(folder)
    if not source.is_dir():
        raise CliError(f"{folder} is not a folder")
    age = _age(older_than)
    removed = dict.fromkeys(llamay_kv.sweep(source), 0)
    if budget is not None or age is not None or damaged or list(source.glob("*.kvc")):
        cache = _folder(source, _read_keys(keys))
        removed |= cache.collect(budget_bytes=budget, older_than=age, damaged=damaged)
    if as_json:
        click.echo(
            json.dumps({"folder": str(source), "removed": removed, "bytes": sum(removed.values())}, indent=2)
        )
    else:
        click.echo(f"removed {len(removed)} files, {sum(removed.values()):,} bytes")


@click.command("explain-miss")
@click.argument("stored")
@click.argument("wanted")
@click.option("--tenant", default="", metavar="NAME", help="Whose state in a cache.")
@_keys
@_json
def explain_miss(stored: str, wanted: str, tenant: str, keys: tuple[str, ...], as_json: bool) -> None:
    """Say why what is STORED, a context file or a disk cache's folder, does not serve for WANTED, a context file.

    It names the field of the identity that differs, or the first token.
    """
    import llamay_kv

    known = _read_keys(keys)
    source, target = _source(stored), _source(wanted, file=True)
    manifest = llamay_kv.inspect(target)
    tokens = llamay_kv.stored_tokens(target, keys=known)
    document: dict[str, Any]
    if source.is_dir():
        miss = _folder(source, known).explain_miss(
            manifest.layout, tokens, identity=manifest.identity, tenant=tenant
        )
        document, said = miss.to_json(), str(miss)
    else:
        document, said = _explain(
            llamay_kv.inspect(source), llamay_kv.stored_tokens(source, keys=known), manifest, tokens
        )
    if as_json:
        click.echo(json.dumps({"stored": stored, "wanted": wanted, **document}, indent=2))
    else:
        click.echo(printable(said))


def _explain(
    manifest: Manifest, tokens: list[int], wanted: Manifest, ids: list[int]
) -> tuple[dict[str, Any], str]:
    field = None
    if manifest.identity != wanted.identity:
        both = manifest.identity is not None and wanted.identity is not None
        field = manifest.identity.difference(wanted.identity) if both else "identity"  # type: ignore[union-attr,arg-type]
    layout = manifest.layout.difference(wanted.layout)
    pairs = enumerate(zip(tokens, ids, strict=False))
    equal = next((i for i, (a, b) in pairs if a != b), min(len(tokens), len(ids)))
    first = (
        {"position": equal, "stored": tokens[equal], "wanted": ids[equal]}
        if equal < min(len(tokens), len(ids))
        else None
    )
    document = {"length": len(ids), "equal": equal, "identity": field, "layout": layout, "token": first}
    said = [f"{equal} of {len(ids)} tokens are the same"]
    if first:
        said.append(f"token {equal} is {first['stored']}, {first['wanted']} was wanted")
    if field:
        said.append(f"it belongs to another {field}")
    if layout:
        said.append(f"its layout is another: {layout}")
    if len(said) == 1:
        said.append("it can be used")
    return document, "; ".join(said)


def known_as(manifest: Manifest) -> str | None:
    """Return the name in the store of the model that computed a snapshot."""
    from ...store import Store

    digest = weights(manifest)
    entry = Store().find_digest(digest) if digest else None
    return entry.manifest.name if entry else None


def weights(manifest: Manifest) -> str | None:
    """Return the SHA-256 of the weights that a context is bound to, hex."""
    value = manifest.identity.fields.get("weights") if manifest.identity is not None else None
    return value.hex() if isinstance(value, bytes) else value if isinstance(value, str) else None


def _folder(folder: Path, keys: list[Key] | None) -> CacheFolder:
    from llamay_kv import CacheFolder

    if keys and len(keys) > 1:
        raise click.UsageError("a folder has one key")
    return CacheFolder(folder, key=keys[0] if keys else None)


def _read_keys(given: tuple[str, ...]) -> list[Key]:
    return [_read_key(text) for text in given]


def _read_key(text: str) -> Key:
    from llamay_kv import Key

    name, path = _name_and_file(text)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise NotFoundError(f"the key file {path} cannot be read: {error.strerror}") from None
    stripped = data.strip()
    if re.fullmatch(rb"[0-9a-fA-F]{64,}", stripped) and len(stripped) % 2 == 0:
        data = bytes.fromhex(stripped.decode())
    if len(data) < 32:
        raise CliError(f"the key file {path} has {len(data)} bytes", "a key has 32 at least")
    return Key(name, data)


def _name_and_file(text: str) -> tuple[str, Path]:
    name, equals, file = text.partition("=")
    path = Path(file if equals else text)
    return (name if equals else path.stem), path


def _generate(text: str) -> None:
    import os

    path = _name_and_file(text)[1]
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise CliError(f"{path} exists already", "without --generate it is used as it is") from None
    with os.fdopen(fd, "wb") as file:
        file.write(os.urandom(32).hex().encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def _age(text: str | None) -> float | None:
    if text is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text.strip().lower())
    if match is None:
        raise click.BadParameter(f"{text!r} is not an age such as 30m, 12h or 30d", param_hint="--older-than")
    return float(match[1]) * _AGES[match[2]]


def _source(name: str, *, file: bool = False) -> Path:
    path = Path(name)
    if not path.exists():
        raise NotFoundError(f"{name} does not exist")
    if file and not path.is_file():
        raise NotFoundError(f"{name} is not a file")
    return path
