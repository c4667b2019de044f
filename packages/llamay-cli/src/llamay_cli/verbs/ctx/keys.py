"""Keys that stored state is encrypted under, and `rekey`."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...console.progress import reporting
from ...errors import CliError, NotFoundError, RefusedError, printable
from .paths import existing

if TYPE_CHECKING:
    from llamay_kv import CacheFolder, Key

keys_option = click.option(
    "--key",
    "keys",
    multiple=True,
    metavar="[NAME=]FILE",
    help="A key that the state may be encrypted under: a file of 32 bytes or more, or of as many hexadecimal digits.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.command()
@click.argument("files", nargs=-1, required=True)
@keys_option
@click.option("--new-key", metavar="[NAME=]FILE", help="The key to encrypt under from now on.")
@click.option("--generate", is_flag=True, help="Make the new key; its FILE must not exist.")
@click.option("--decrypt", is_flag=True, help="Leave the files in the clear; never a marked one.")
@json_option
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
    it depend on the key. Remove its folder, and it fills again.
    """
    import llamay_kv

    if decrypt == (new_key is not None):
        raise click.UsageError("give either --new-key or --decrypt")
    if generate and new_key is None:
        raise click.UsageError("--generate needs --new-key")
    sources = [existing(file) for file in files]
    for source in sources:
        if source.is_dir():
            raise CliError(
                f"{source} is a folder", "a disk cache keeps its key; remove it, and it fills again"
            )
    known = read_keys(keys)
    if generate:
        generate_key(str(new_key))
    key = read_key(new_key) if new_key is not None else None
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


def read_keys(given: tuple[str, ...]) -> list[Key]:
    """Return the keys that were given as [NAME=]FILE."""
    return [read_key(text) for text in given]


def read_key(text: str) -> Key:
    """Return the key in a file. Raises NotFoundError, and CliError for one that cannot be read or is too short."""
    from llamay_kv import Key

    name, path = _name_and_file(text)
    try:
        data = path.read_bytes()
    except OSError as error:
        missing = isinstance(error, FileNotFoundError | NotADirectoryError)
        fault = NotFoundError if missing else CliError
        raise fault(f"the key file {path} cannot be read: {error.strerror}") from None
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


def generate_key(text: str) -> None:
    """Write a new key to a file that must not exist."""
    path = _name_and_file(text)[1]
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise RefusedError(f"{path} exists already", "without --generate it is used as it is") from None
    with os.fdopen(fd, "wb") as file:
        file.write(os.urandom(32).hex().encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def cache_folder(folder: Path, keys: list[Key] | None) -> CacheFolder:
    """Return the folder of a disk cache, opened with its key."""
    from llamay_kv import CacheFolder

    if keys and len(keys) > 1:
        raise click.UsageError("a folder has one key")
    return CacheFolder(folder, key=keys[0] if keys else None)
