"""`doctor`: reasons why llamay is slow or does not work on this machine."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Literal

import click

from ..console.tables import format_bytes
from ..errors import CliError, Exit, IntegrityError, printable
from . import COMMANDS

State = Literal["ok", "warn", "fail"]
PACKAGES = ("llamay-cli", "llamay-server", "llamay-models", "llamay-kernels", "llamay-kv", "llamay-grammar")
_LITTLE_SPACE = 1 << 30


@dataclass(frozen=True)
class Finding:
    """A finding of a check: `fail` keeps something from working, `warn` is worth knowing."""

    state: State
    about: str
    text: str
    hint: str | None = None


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--fast", is_flag=True, help="Leave out the measured limits, which take a second.")
def doctor(as_json: bool, fast: bool) -> None:
    """Check this machine and installation for what makes llamay slow or fail.

    Checks the packages, the processor and its kernels, memory, the model store, the files of settings, and
    the environment; reads no model and changes nothing. The exit code is 1 if something keeps llamay from
    working. Whether a model computes exactly here is what `llamay verify` proves.
    """
    findings = []
    for look in LOOKS if not fast else LOOKS[:-1]:
        for finding in _safely(look):
            findings.append(finding)
            if not as_json:
                _print(finding)
    failed = any(finding.state == "fail" for finding in findings)
    if as_json:
        click.echo(json.dumps({"ok": not failed, "findings": [asdict(each) for each in findings]}, indent=2))
    click.get_current_context().exit(Exit.ERROR if failed else Exit.OK)


def _safely(look: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """Run a check; one that fails must not hide the findings of the others."""
    try:
        yield from look()
    except CliError as error:
        yield Finding("fail", look.__name__, error.message, error.hint)
    except (OSError, ImportError) as error:
        yield Finding("fail", look.__name__, str(error))


_COLORS = {"ok": "green", "warn": "yellow", "fail": "red"}


def _print(finding: Finding) -> None:
    mark = click.style(f"{finding.state:4}", fg=_COLORS[finding.state])
    click.echo(f"{mark}  {finding.about:10}  {printable(finding.text)}")
    if finding.hint:
        click.echo(f"{'':18}{printable(finding.hint)}")


def packages() -> Iterator[Finding]:
    """The six packages are made together, and only their own versions fit each other."""
    versions, missing = {}, []
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    again = "pip install --upgrade llamay"
    if missing:
        yield Finding("fail", "packages", f"{', '.join(missing)} not installed", again)
    if len(set(versions.values())) > 1:
        listed = ", ".join(f"{name} {version}" for name, version in versions.items())
        yield Finding("fail", "packages", f"of different versions: {listed}", again)
    elif not missing:
        yield Finding(
            "ok", "packages", f"llamay {versions['llamay-cli']}, Python {platform.python_version()}"
        )


def processor() -> Iterator[Finding]:
    """The kernel set that runs, and the number of cores."""
    import llamay_kernels
    from llamay_models.machine import usable_processors

    isa, sets = llamay_kernels.isa(), llamay_kernels.runnable_isas()
    cores, seen = usable_processors(), os.cpu_count() or 1
    text = f"{platform.machine()}, kernels {isa}, {cores} of {seen} processors"
    if isa != (best := sets[0]):
        yield Finding("warn", "processor", text, f"LLAMAY_ISA keeps it from the faster {best}")
    elif isa == "portable":
        hint = "no kernel set for this processor: everything works, several times slower than it could"
        yield Finding("warn", "processor", text, hint)
    else:
        yield Finding("ok", "processor", text)


def memory() -> Iterator[Finding]:
    """The memory of the machine; a container's own limit counts."""
    from llamay_models.machine import usable_memory

    size = usable_memory()
    state: State = "ok" if size >= 2 << 30 else "warn"
    yield Finding(
        state, "memory", f"{format_bytes(size)}, a quarter of it for keys and values unless told otherwise"
    )


def store() -> Iterator[Finding]:
    """Models that are there, and room for more."""
    from ..store import BrokenManifestError, Store
    from ..store.foreign import models

    found, entries = Store(), []
    root = found.root
    there = next(path for path in (root, *root.parents) if path.exists())
    if not os.access(there, os.W_OK):
        yield Finding("fail", "store", f"{root} cannot be written", "set LLAMAY_HOME to a folder of yours")
        return
    for name in found.names():
        try:
            entry = found.get(name)
            for file in entry.manifest.files:
                found.blob(file)
        except (BrokenManifestError, IntegrityError) as error:
            yield Finding("fail", "store", error.message, error.hint)
        else:
            entries.append(entry)
    size, free = sum(entry.size for entry in entries), found.free_space()
    text = f"{root}: {len(entries)} models, {format_bytes(size)}; {format_bytes(free)} free"
    hint = (
        None if free >= _LITTLE_SPACE else "little room for another model: LLAMAY_HOME may name a larger disk"
    )
    yield Finding("ok" if hint is None else "warn", "store", text, hint)
    others = list(models())
    if others:
        named = ", ".join(sorted({each.source for each in others}))
        yield Finding("ok", "store", f"{len(others)} more, used where {named} keeps them")


def settings() -> Iterator[Finding]:
    """Both files of settings can be read."""
    from llamay_server import ConfigError, load_config

    from ..options.settings import UserSettings

    mine = UserSettings.read(frozenset(COMMANDS))
    yield Finding(
        "ok", "settings", str(mine.path) if mine else "no config.toml: every option has its default"
    )
    try:
        load_config()
    except ConfigError as error:
        yield Finding("fail", "settings", str(error))


# Variables that are read beside the options of verbs and the settings of the server.
_KNOWN = {
    "LLAMAY_API_KEY",
    "LLAMAY_CONFIG",
    "LLAMAY_DEBUG",
    "LLAMAY_HOME",
    "LLAMAY_ISA",
    "LLAMAY_NOHISTORY",
    "LLAMAY_OLLAMA_REGISTRY",
}


def environment() -> Iterator[Finding]:
    """Find misspelt variables: those that no option and no setting reads."""
    from .config import variables

    unknown = sorted(
        name
        for name in os.environ
        if name.startswith("LLAMAY_")
        and not name.startswith("LLAMAY_TEST_")
        and name not in _KNOWN | variables()
    )
    for name in unknown:
        yield Finding("warn", "variables", f"{name} is set, and nothing reads it", "is it misspelt?")


def server() -> Iterator[Finding]:
    """Whether a server answers; none is needed."""
    from .server import Server

    with Server() as running:
        try:
            version = running.ask("GET", "/api/version")
        except CliError as error:
            yield Finding("ok", "server", error.message)
        else:
            yield Finding(
                "ok",
                "server",
                f"a server answers at {running.url}: {version.get('server', version.get('version', ''))}",
            )


def limits() -> Iterator[Finding]:
    """The bandwidth and the arithmetic that this machine has right now, measured."""
    import llamay_kernels
    from llamay_models.machine import usable_processors

    found = llamay_kernels.limits(llamay_kernels.Threads(usable_processors()))
    bandwidth, products = found.read_bandwidth / 1e9, found.int8_ops / 1e12
    text = f"memory delivers {bandwidth:.1f} GB/s, the processor {products:.2f} Tint8-op/s"
    yield Finding("ok", "limits", f"{text}; `llamay bench` says how much of it a model gets")


LOOKS = (packages, processor, memory, store, settings, environment, server, limits)
