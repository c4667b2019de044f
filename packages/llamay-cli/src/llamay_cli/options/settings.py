"""`config.toml`: the user's own defaults for the options of every verb.

    threads = 2                 # of every verb that has the option
    kv = "vq8"

    [run]                       # of one verb
    temperature = 0.2

    [ctx.build]
    ctx-size = 8192

Flags take precedence over the environment, and the environment over this file. The server's settings have a file of
their own, because the operator of a server and the user of the command are often different people.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import click

from ..errors import CliError, WrongUsageError
from ..paths import settings_path


class UserSettings:
    """The file, read once. Raises CliError, naming the file and the key, for an unknown key and a wrong value."""

    def __init__(self, path: Path, table: Mapping[str, Any], verbs: frozenset[str]) -> None:
        self.path = path
        self._shared: dict[str, Any] = {}
        self._verbs: dict[str, Mapping[str, Any]] = {}
        for key, value in table.items():
            if not isinstance(value, dict):
                self._shared[key] = value
            elif key == "serve":
                raise self._error("[serve]: the server's settings are in server.toml beside this file")
            elif key not in verbs:
                raise self._error(f"[{key}] is not a verb of llamay")
            else:
                self._verbs[key] = value
        for key in self._shared:
            if _name(key) not in shared_options():
                raise self._error(
                    f"{key} is not an option that verbs share; one of a single verb goes under its name, as [run]"
                )

    @classmethod
    def read(cls, verbs: frozenset[str], path: Path | None = None) -> UserSettings | None:
        """Read the file; None where there is none."""
        path = path or settings_path()
        if path is None:
            return None
        try:
            text = path.read_bytes().decode()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise CliError(f"{path}: {error.strerror}") from None
        except UnicodeDecodeError as error:
            raise WrongUsageError(f"{path} is not UTF-8 text (byte {error.start})") from None
        import tomllib  # most people have no such file

        try:
            table = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise WrongUsageError(f"{path}: {error}") from None
        return cls(path, table, verbs)

    def defaults(self, verb: str, command: click.Command) -> dict[str, Any]:
        """Return the file's settings for `verb`, as its `default_map` of click."""
        return self._defaults(verb, command, self._verbs.get(verb, {}))

    def _defaults(self, where: str, command: click.Command, table: Mapping[str, Any]) -> dict[str, Any]:
        options = dict(_options_of(command))
        found: dict[str, Any] = {}
        for key, value in self._shared.items():
            if option := options.get(_name(key)):
                found[option.name or ""] = self._value(key, option, value)
        below: dict[str, Any] = {}
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                if child := command.get_command(context, name):
                    inner = table.get(name, {})
                    if not isinstance(inner, dict):
                        raise self._error(
                            f"{where}.{name} is a verb; write [{where}.{name}] and its options below"
                        )
                    below[name] = self._defaults(f"{where}.{name}", child, inner)
        for key, value in table.items():
            if key in below:
                continue
            option = options.get(_name(key))
            if option is None:
                raise self._error(f"[{where}] {key} is not an option of `llamay {where.replace('.', ' ')}`")
            found[option.name or ""] = self._value(f"[{where}] {key}", option, value)
        return found | below

    def _value(self, key: str, option: click.Option, value: Any) -> Any:
        """Check the kind of a value; click checks its range. Lists are for options that may be repeated."""
        if option.is_flag != isinstance(value, bool):
            raise self._error(f"{key} {'is true or false' if option.is_flag else 'is not true or false'}")
        values = value if isinstance(value, list) else [value]
        if any(isinstance(each, bool) and not option.is_flag for each in values) or not all(
            isinstance(each, str | int | float) for each in values
        ):
            raise self._error(f"{key} must be a number, a text, true or false")
        if isinstance(value, list) and not option.multiple:
            raise self._error(f"{key} takes one value, not a list")
        return values if option.multiple else value

    def _error(self, text: str) -> WrongUsageError:
        return WrongUsageError(f"{self.path}: {text}", "`llamay config show` prints the settings in effect")


@cache
def shared_options() -> frozenset[str]:
    """Return the names of the options that several verbs take, which may stand at the top of the file."""
    from .generation import generation_options
    from .loading import engine_options, model_options
    from .sampling import sampling_options

    def verb(**options: Any) -> None:
        pass

    command = click.command()(engine_options(model_options(sampling_options(generation_options(verb)))))
    return frozenset(name for name, _ in _options_of(command))


def configurable(command: click.Command) -> Iterator[click.Option]:
    """Yield the options that a file may set."""
    for option in command.params:
        if not isinstance(option, click.Option) or getattr(option, "has_own_file", False):
            continue
        # Neither options that end the command (--help, --version), nor those that choose one of several outputs.
        if option.expose_value and not option.count and (option.is_bool_flag or not option.is_flag):
            yield option


def _options_of(command: click.Command) -> Iterator[tuple[str, click.Option]]:
    """Yield every long flag that a file may set, as `_name` writes it."""
    for option in configurable(command):
        for flag in option.opts:
            if flag.startswith("--"):
                yield _name(flag.removeprefix("--")), option


def _name(key: str) -> str:
    return key.replace("_", "-")
