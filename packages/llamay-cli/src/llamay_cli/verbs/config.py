"""`config`: the settings in effect, and where each came from."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import click
from click.core import ParameterSource

from ..errors import CliError, printable
from ..options.sampling import SAMPLING_DEFAULTS
from ..options.settings import UserSettings, configurable
from ..options.shared import config_error
from ..paths import settings_path
from . import ALIASES, COMMANDS


@click.group(short_help="Show the settings in effect, and where each came from.")
def config() -> None:
    """Show the settings in effect, and where each came from.

    Flags take precedence over the environment (LLAMAY_*, and OLLAMA_* or LLAMA_* of the same meaning), and the
    environment over the file, config.toml:

    \b
      threads = 2             # at the top: of every verb that has the option
      [run]                   # below a verb: of that verb
      temperature = 0.2
      stop = ["END"]
      [ctx.build]
      ctx-size = 8192

    The names are those of the flags. The server's settings are in a file of their own, server.toml.
    """  # noqa: D301


@config.command()
def path() -> None:
    """Print where the file of settings is looked for."""
    click.echo(_path())


@config.command()
@click.argument("verb", nargs=-1)
@click.option("--origin", is_flag=True, help="Print where each setting came from.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(verb: tuple[str, ...], origin: bool, as_json: bool) -> None:
    """Print the settings that are not defaults, or all of VERB: `run`, `ctx build`, `serve`.

    The file is checked as a whole; the output is TOML that the file could hold.
    """
    root = click.get_current_context().find_root()
    app = root.command
    assert isinstance(app, click.Group)
    settings = UserSettings.read(frozenset(COMMANDS))
    found = [
        setting
        for name in COMMANDS
        if name != "config" and (command := app.get_command(root, name))
        for setting in _settings(name, command, root, settings)
    ]
    if verb:
        wanted = ".".join((ALIASES.get(verb[0], verb[0]), *verb[1:]))
        if wanted == "serve":
            _show_server(as_json)
            return
        found = [setting for setting in found if f"{setting.verb}.".startswith(f"{wanted}.")]
        if not found:
            raise click.UsageError(f"`llamay {' '.join(verb)}` has no settings")
    else:
        found = [setting for setting in found if setting.origin != "default"]
    if as_json:
        click.echo(json.dumps([setting.to_json() for setting in found], indent=2))
        return
    if not found:
        click.echo(f"every setting has its default; {_path()} may set others", err=True)
    above = None
    for setting in found:
        if setting.verb != above:
            click.echo(f"{'' if above is None else chr(10)}[{setting.verb}]")
            above = setting.verb
        click.echo(printable(setting.line(origin)))


def variables() -> set[str]:
    """Return the environment variables that some option or the server reads."""
    from llamay_server import Config

    found = {f"LLAMAY_{field.name.upper()}" for field in dataclasses.fields(Config)}
    root = click.get_current_context().find_root()
    app = root.command
    assert isinstance(app, click.Group)
    waiting = [command for name in COMMANDS if (command := app.get_command(root, name))]
    for command in waiting:
        for option in command.params:
            found |= {option.envvar} if isinstance(option.envvar, str) else set(option.envvar or ())
        if isinstance(command, click.Group):
            names = command.list_commands(root)
            waiting += [child for name in names if (child := command.get_command(root, name))]
    return found


@dataclass(frozen=True)
class _Setting:
    """One option of a verb as it stands; its value is None where it is not set."""

    verb: str
    name: str
    value: Any
    origin: str

    def line(self, with_origin: bool) -> str:
        text = f"# {self.name} is not set" if self.value is None else f"{self.name} = {_toml(self.value)}"
        return f"{text:<40}  # {self.origin}" if with_origin and self.value is not None else text

    def to_json(self) -> dict[str, Any]:
        return {"verb": self.verb, "name": self.name, "value": self.value, "origin": self.origin}


def _settings(
    verb: str, command: click.Command, above: click.Context, settings: UserSettings | None
) -> Iterator[_Setting]:
    """Resolve every option of `verb` as click would with nothing typed, the verbs below it too."""
    context = click.Context(command, parent=above, info_name=verb)
    context.default_map = settings.defaults(verb, command) if settings else {}
    yield from _resolved(verb, command, context)


def _resolved(verb: str, command: click.Command, context: click.Context) -> Iterator[_Setting]:
    for option in configurable(command):
        value, source = option.consume_value(context, {})
        if source is ParameterSource.DEFAULT:
            value = None if option.required else option.get_default(context)
        else:
            try:
                read = option.process_value(context, value)
            except click.UsageError as error:
                where = f" ({settings_path()})" if source is ParameterSource.DEFAULT_MAP else ""
                raise click.UsageError(f"[{verb}] {error.format_message()}{where}") from None
            # A path or a mapping is shown as it was written.
            value = read if isinstance(read, bool | int | float) else value
        name = max(option.opts, key=len).removeprefix("--")
        if option.multiple:
            value = list(value) if isinstance(value, list | tuple) and value else None
        elif not isinstance(value, bool | int | float | str):
            # Newer versions of click have an object of their own for an option that is not set.
            value = SAMPLING_DEFAULTS.get(option.name or "")
        yield _Setting(verb, name, value, _origin(option, source))
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            if child := command.get_command(context, name):
                inner = click.Context(child, parent=context, info_name=name)
                yield from _resolved(f"{verb}.{name}", child, inner)


def _origin(option: click.Option, source: ParameterSource) -> str:
    if source is ParameterSource.DEFAULT_MAP:
        return f"file {settings_path()}"
    if source is ParameterSource.ENVIRONMENT:
        names = [option.envvar] if isinstance(option.envvar, str) else list(option.envvar or ())
        return f"environment {next((name for name in names if os.environ.get(name)), '')}".strip()
    return "default"


def _toml(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    # Of text, numbers and truth, JSON's spelling is TOML's.
    return json.dumps(value)


def _path() -> str:
    found = settings_path()
    if found is None:
        raise CliError("no folder for a file of settings is known", "set HOME or XDG_CONFIG_HOME")
    return str(found)


def _show_server(as_json: bool) -> None:
    """Print the server's settings, which it reads from server.toml and variables of its own."""
    from llamay_server import ConfigError, load_config, show_config

    try:
        found, origin = load_config()
    except ConfigError as error:
        raise config_error(error) from None
    if not as_json:
        click.echo(show_config(found, origin))
        return
    listed = [
        _Setting("serve", each.name, getattr(found, each.name), origin[each.name]).to_json()
        for each in dataclasses.fields(found)
        if not each.metadata["secret"]
    ]
    click.echo(json.dumps(listed, indent=2))
