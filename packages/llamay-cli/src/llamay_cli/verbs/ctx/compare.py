"""`ctx diff`, `ctx explain-miss`: how stored state differs, and why it is not used."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from ...errors import Exit, printable
from .keys import cache_folder, json_option, keys_option, read_keys
from .paths import existing

if TYPE_CHECKING:
    from llamay_kv import Manifest


@click.command()
@click.argument("a")
@click.argument("b")
@keys_option
@json_option
def diff(a: str, b: str, keys: tuple[str, ...], as_json: bool) -> None:
    """Print how two context files differ, verifying every byte of both. The exit code is 1 if they do.

    K/V is compared as far as the tokens are the same.
    """
    import llamay_kv

    found = llamay_kv.diff(existing(a, file=True), existing(b, file=True), keys=read_keys(keys))
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


@click.command("explain-miss")
@click.argument("stored")
@click.argument("wanted")
@click.option("--tenant", default="", metavar="NAME", help="The tenant whose state is looked for in a cache.")
@keys_option
@json_option
def explain_miss(stored: str, wanted: str, tenant: str, keys: tuple[str, ...], as_json: bool) -> None:
    """Explain why STORED, a context file or a disk cache's folder, is not used for WANTED, a context file.

    The answer names the field of the identity that differs, or the first token.
    """
    import llamay_kv

    known = read_keys(keys)
    source, target = existing(stored), existing(wanted, file=True)
    manifest = llamay_kv.inspect(target)
    tokens = llamay_kv.stored_tokens(target, keys=known)
    document: dict[str, Any]
    if source.is_dir():
        miss = cache_folder(source, known).explain_miss(
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
        said.append(f"the identity differs in {field}")
    if layout:
        said.append(f"the layout differs: {layout}")
    if len(said) == 1:
        said.append("the stored state can be used")
    return document, "; ".join(said)
