"""`show`: a model's facts, from its file's header and its manifest."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import click

from ..console.progress import Report, reporting
from ..errors import CliError, IntegrityError, NotFoundError, printable
from ..models import Resolved
from ..options.completion import complete_model
from ..store import File, Store
from ..store.hashing import chunks_of, sha256_of

_LISTED = 8
"""Elements of an array that are shown."""


@click.command()
@click.argument("model", shell_complete=complete_model)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option("--license", "what", flag_value="license", help="Print the licence and notice texts.")
@click.option("--template", "what", flag_value="template", help="Print the chat template.")
@click.option("--system", "what", flag_value="system", help="Print the model's own system prompt.")
@click.option("--parameters", "what", flag_value="parameters", help="Print the model's own parameters.")
@click.option("--modelfile", "what", flag_value="modelfile", help="Print a Modelfile for `llamay create`.")
@click.option("--metadata", "what", flag_value="metadata", help="Print every key of the GGUF file.")
@click.option("--path", "what", flag_value="path", help="Print where the GGUF file is.")
@click.option("--check", is_flag=True, help="Read every byte and compare its SHA-256.")
def show(model: str, as_json: bool, what: str | None, check: bool) -> None:
    """Show what a model is: architecture, size, quantization, context, chat template, source and licence."""
    resolved = _find(model)
    if check:
        _check(resolved)
    match what:
        case "path":
            click.echo(str(resolved.path))
        case "license":
            _documents(resolved)
        case "system" | "parameters" | "modelfile":
            _print_defaults(resolved, what)
        case "template" if own := resolved.settings().get("template"):
            click.echo(own)
        case None if as_json:
            click.echo(json.dumps(_as_json(resolved), indent=2, ensure_ascii=False))
        case _:
            _header(resolved, what)


def _find(model: str) -> Resolved:
    """Resolve MODEL, without pulling: looking at a model should not fetch it."""
    from ..models import resolve
    from ..pull import Local, parse
    from ..store import foreign

    store = Store()
    source = parse(model) if store.find(model) is None else None
    here = source is None or isinstance(source, Local) or store.find_source(str(source)) is not None
    if not here and foreign.find(model) is None:
        raise NotFoundError(f"{source} is not in the store", f"`llamay pull {source}` fetches it")
    return resolve(model, store=store)


def _print_defaults(resolved: Resolved, what: str) -> None:
    """Print the model's own defaults beside its file."""
    from llamay_server import Profile, modelfile, parameter_lines

    own = resolved.settings()
    if what == "modelfile":
        known = {key: own[key] for key in ("template", "system", "parameters") if key in own}
        profile = Profile(
            **known, license=tuple(own.get("license", ())), messages=tuple(own.get("messages", ()))
        )
        # A name finds the file wherever the store is; a model without one is its file.
        parent = own.get("parent") or (resolved.name if resolved.entry is not None else str(resolved.path))
        click.echo(modelfile(parent, profile, list(map(str, resolved.adapters))), nl=False)
    elif what == "system":
        click.echo(own.get("system", ""))
    elif lines := parameter_lines(own.get("parameters", {})):
        click.echo(lines)


def _header(resolved: Resolved, what: str | None) -> None:
    from llamay_models import gguf

    with gguf.open(resolved.path) as file:
        if what == "metadata":
            for key, value in file.metadata.items():
                click.echo(f"{printable(key)} = {printable(_brief(value))}")
        elif what == "template":
            template = file.metadata.get("tokenizer.chat_template")
            if not isinstance(template, str):
                raise CliError(f"{resolved.name} has no chat template")
            click.echo(template)
        else:
            for line in _summary(resolved, file):
                click.echo(printable(line))


def _summary(resolved: Resolved, file: Any) -> Iterator[str]:
    facts = _facts(file)
    yield f"{'name':18}{resolved.name}"
    for key, value in facts.items():
        if value is not None:
            yield f"{key.replace('_', ' '):18}{value if not isinstance(value, dict) else _formats(value)}"
    yield f"{'file':18}{resolved.path}"
    if resolved.foreign is not None:
        yield f"{'source':18}{resolved.foreign.source}"
    if resolved.entry is not None:
        manifest = resolved.entry.manifest
        yield f"{'source':18}{manifest.source}"
        for key, value in sorted(manifest.details.items()):
            if key == "profile":
                continue
            yield f"{'stated ' + key if key == 'license' else key:18}{' '.join(value.split())[:200]}"
        for blob in manifest.files:
            yield f"{blob.role + ' file':18}{blob.name} ({blob.size:,} bytes)"
            if blob.role == "model":
                yield f"{'sha256':18}{blob.digest.removeprefix('sha256-')}"
        if any(f.role in ("license", "notice") for f in manifest.files):
            yield f"`llamay show --license {manifest.name}` prints the licence and notice texts."


def _facts(file: Any) -> dict[str, Any]:
    """Return the facts in a GGUF header, under the usual names."""
    meta = file.metadata
    architecture = file.architecture
    formats: dict[str, int] = {}
    parameters = 0
    for tensor in file.tensors.values():
        formats[tensor.format] = formats.get(tensor.format, 0) + tensor.nbytes
        count = 1
        for length in tensor.shape:
            count *= length
        parameters += count
    template = meta.get("tokenizer.chat_template")
    tokens = meta.get("tokenizer.ggml.tokens")
    return {
        "title": meta.get("general.name"),
        "architecture": architecture,
        "parameters": parameters,
        "bytes": file.nbytes,
        "formats": dict(sorted(formats.items(), key=lambda item: -item[1])),
        "context_length": meta.get(f"{architecture}.context_length"),
        "embedding_length": meta.get(f"{architecture}.embedding_length"),
        "blocks": meta.get(f"{architecture}.block_count"),
        "vocabulary": len(tokens) if tokens is not None else None,
        "chat_template": "yes" if isinstance(template, str) else "no",
        "general_license": meta.get("general.license"),
    }


def _as_json(resolved: Resolved) -> dict[str, Any]:
    from llamay_models import gguf

    with gguf.open(resolved.path) as file:
        result = {"path": str(resolved.path), **_facts(file), "sha256": file.sha256()}
        result["metadata"] = {key: _jsonable(value) for key, value in file.metadata.items()}
    result["store"] = resolved.entry.to_json() if resolved.entry else None
    return {"name": resolved.name, **result}


def _documents(resolved: Resolved) -> None:
    texts = (
        [f for f in resolved.entry.manifest.files if f.role in ("license", "notice")]
        if resolved.entry
        else []
    )
    if own := resolved.settings().get("license"):
        click.echo("\n".join([own] if isinstance(own, str) else own))
        return
    if not texts:
        stated = resolved.entry.manifest.details.get("license") if resolved.entry else None
        raise CliError(
            f"no licence text came with {resolved.name}", f"its package states: {stated}" if stated else None
        )
    store = Store()
    for file in texts:
        click.echo(f"----- {printable(file.name)}")
        text = store.blob(file).read_text("utf-8", "replace")
        click.echo(_without_tags(text) if file.name.lower().endswith((".html", ".htm")) else text)


class _Text(HTMLParser):
    """The words of a page, a line for each block of it."""

    def __init__(self) -> None:
        super().__init__()
        self.lines = [""]
        self.hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.hidden += tag in _HIDDEN
        if tag in _BLOCKS:
            self.lines.append("")

    def handle_endtag(self, tag: str) -> None:
        self.hidden = max(0, self.hidden - (tag in _HIDDEN))

    def handle_data(self, data: str) -> None:
        if not self.hidden:
            self.lines[-1] += data


_HIDDEN = ("script", "style", "head", "nav", "template", "svg")
_BLOCKS = ("p", "div", "br", "li", "tr", "h1", "h2", "h3", "h4", "h5", "h6", "section", "table", "ul", "ol")


def _without_tags(page: str) -> str:
    parser = _Text()
    parser.feed(page)
    return "\n".join(line for raw in parser.lines if (line := " ".join(raw.split())))


def _check(resolved: Resolved) -> None:
    """Compare every byte in the store with the digest that names it."""
    if resolved.entry is None:
        raise CliError(f"{resolved.name} is not in the store, so there is no digest to compare it with")
    store = Store()
    with reporting(unit="bytes") as report:
        for file in resolved.entry.manifest.files:
            sha256 = _sha256(store.blob(file), file, report)
            if f"sha256-{sha256}" != file.digest:
                raise IntegrityError(
                    f"{file.name} is damaged: its SHA-256 is {sha256}, not {file.digest[7:]}",
                    f"`llamay rm {resolved.name}`, then pull it again",
                )
    click.echo(f"{resolved.name}: every byte is as it was pulled", err=True)


def _sha256(path: Path, file: File, report: Report) -> str:
    with path.open("rb") as data:
        return sha256_of(chunks_of(data), lambda done: report(f"checking {file.name}", done, file.size))


def _formats(formats: dict[str, int]) -> str:
    total = sum(formats.values()) or 1
    return ", ".join(f"{name} {100 * size / total:.0f} %" for name, size in formats.items())


def _brief(value: Any) -> str:
    if isinstance(value, str):
        return repr(value if len(value) <= 200 else value[:200] + "…")
    if hasattr(value, "__len__"):
        first = ", ".join(repr(item) for item in value[:_LISTED])
        return f"[{first}{', …' if len(value) > _LISTED else ''}] ({len(value)} elements)"
    return str(value)


def _jsonable(value: Any) -> Any:
    """Return scalars as they are, and of an array its type and length: a summary holds no vocabulary."""
    if isinstance(value, str | int | float | bool):
        return value
    return {"elements": len(value), "first": [_plain(item) for item in value[:_LISTED]]}


def _plain(item: Any) -> Any:
    """Return a numpy scalar as Python's own."""
    return item.item() if hasattr(item, "item") else item
