"""Reading the settings: flags, before environment variables, before one TOML file, before defaults."""

from __future__ import annotations

import argparse
import dataclasses
import math
import os
import re
import tomllib
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llamay_server.config import Config, ConfigError

_BYTES = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?)i?b?", re.IGNORECASE)
_SECONDS = re.compile(r"(-?[0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)?")


def parse_bytes(text: str) -> int:
    """Return `512`, `64k`, `1.5GiB` as a number of bytes. Raises ValueError for a text that is no size."""
    if not (match := _BYTES.fullmatch(text.strip())):
        raise ValueError(f"{text!r} is not a size; write 512, 64k, 1.5GiB")
    power = "kmgt".index(match[2].lower()) + 1 if match[2] else 0
    size = float(match[1]) * 1024**power
    if not math.isfinite(size):
        raise ValueError(f"{text[:40]!r} is too large a size")
    return int(size)


def parse_seconds(text: str) -> float:
    """Return `30`, `500ms`, `5m`, `1h30m`, `-1` in seconds; Ollama and Go write durations so. Raises ValueError."""
    total, rest = 0.0, text.strip()
    factor = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, None: 1.0}
    if not rest:
        raise ValueError("a duration is empty; write 30, 500ms, 5m, 1h30m")
    sign = -1.0 if rest.startswith("-") else 1.0
    rest = rest.removeprefix("-")
    while rest:
        if not (match := _SECONDS.match(rest)) or match[1].startswith("-"):
            raise ValueError(f"{text!r} is not a duration; write 30, 500ms, 5m, 1h30m")
        total += float(match[1]) * factor[match[2]]
        rest = rest[match.end() :]
    return sign * total


def _parse(spec: dataclasses.Field[Any], hint: Any, value: Any) -> Any:
    """Return one raw value, text or TOML, as the type of its field. Raises ValueError."""
    if typing.get_origin(hint) is tuple:
        if isinstance(value, str):
            value = [part.strip() for part in value.split(",") if part.strip()]
        if not isinstance(value, list | tuple) or not all(isinstance(v, str) for v in value):
            raise ValueError("it must be a list of text")
        return tuple(value)
    if hint is bool:
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.lower() in ("1", "true", "yes", "on"):
            return True
        if isinstance(value, str) and value.lower() in ("0", "false", "no", "off", ""):
            return False
        raise ValueError("it must be true or false")
    if hint in (int, float):
        if isinstance(value, str):
            unit = spec.metadata["unit"]
            value = (
                parse_bytes(value)
                if unit == "bytes"
                else parse_seconds(value)
                if unit == "seconds"
                else hint(value)
            )
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or (hint is int and value != int(value))
        ):
            raise ValueError(f"it must be {'a whole number' if hint is int else 'a number'}")
        return hint(value)
    if not isinstance(value, str):
        raise ValueError("it must be text")
    return value


def _split_host(value: str) -> dict[str, str]:
    """Return the host and the port of OLLAMA_HOST, which is a host, host:port, :port or a URL."""
    rest = value.split("://", 1)[-1].rstrip("/")
    match = re.fullmatch(r"(\[[^\]]*\]|[^:]*)(?::(\d+))?", rest)
    if not match:
        return {"host": rest}
    return {k: v for k, v in (("host", match[1].strip("[]")), ("port", match[2])) if v}


def load_config(
    flags: Mapping[str, Any] | None = None,
    *,
    env: Mapping[str, str] | None = None,
    file: str | Path | None = None,
) -> tuple[Config, dict[str, str]]:
    """Return the configuration and, for each setting, its origin.

    `flags` holds only what was given; the file is `file`, else `$LLAMAY_CONFIG`, else
    `$XDG_CONFIG_HOME/llamay/server.toml` where it exists. Raises `ConfigError` naming the setting and the origin.
    """
    env = os.environ if env is None else env
    hints = typing.get_type_hints(Config)
    specs = {spec.name: spec for spec in dataclasses.fields(Config)}
    values: dict[str, Any] = {}
    origin = dict.fromkeys(specs, "default")

    def take(name: str, raw: Any, where: str) -> None:
        try:
            values[name] = _parse(specs[name], hints[name], raw)
        except ValueError as e:
            raise ConfigError(f"{name} ({where}): {e}") from None
        origin[name] = where

    explicit = file or env.get("LLAMAY_CONFIG")
    base = env.get("XDG_CONFIG_HOME") or (str(Path(env["HOME"]) / ".config") if "HOME" in env else "")
    path = Path(explicit) if explicit else Path(base) / "llamay" / "server.toml" if base else None
    if path is not None and (explicit or path.is_file()):
        try:
            table = tomllib.loads(path.read_text("utf-8"))
        except OSError as e:
            raise ConfigError(f"configuration file {path}: {e.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
            raise ConfigError(f"configuration file {path}: {e}") from None
        for key, raw in table.items():
            name = key.replace("-", "_")
            if name not in specs:
                raise ConfigError(f"configuration file {path}: {key} is not a setting; see --show-config")
            take(name, raw, f"file {path}")
    for name, spec in specs.items():
        for variable in spec.metadata["env"]:
            if raw := env.get(variable):
                parts = _split_host(raw) if variable == "OLLAMA_HOST" else {name: raw}
                for part, text in parts.items():
                    take(part, text, f"environment {variable}")
    for name in specs:
        if (raw := env.get(f"LLAMAY_{name.upper()}")) is not None:
            take(name, raw, f"environment LLAMAY_{name.upper()}")
    for name, raw in (flags or {}).items():
        if name not in specs:
            raise ConfigError(f"{name} is not a setting of the server")
        take(name, raw, "flag")
    return Config(**values), origin


def show_config(config: Config, origin: Mapping[str, str]) -> str:
    """Return the settings in force as TOML, each with its origin; of secrets only the number is shown."""
    lines = []
    for spec in dataclasses.fields(config):
        value = getattr(config, spec.name)
        if spec.metadata["secret"]:
            shown = f"[]  # {len(value)} set, not shown; " if value else "[]  # "
        else:
            shown = f"{_toml(value)}  # "
        lines.append(f"{spec.name} = {shown}{origin.get(spec.name, 'default')}")
    return "\n".join(lines)


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "[" + ", ".join(_toml(v) for v in value) + "]"
    if isinstance(value, str):
        escaped = "".join(c if c.isprintable() and c not in '"\\' else f"\\u{ord(c):04x}" for c in value)
        return f'"{escaped}"'
    return str(value)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add one flag for each setting. A flag that is not given is not in the namespace."""
    hints = typing.get_type_hints(Config)
    parser.add_argument("--config", metavar="FILE", default=None, help="TOML file of these settings")
    parser.add_argument(
        "--show-config", action="store_true", help="print the settings in force and their origins"
    )
    for spec in dataclasses.fields(Config):
        flag = "--" + spec.name.replace("_", "-")
        hint = hints[spec.name]
        options: dict[str, Any] = {
            "default": argparse.SUPPRESS,
            "help": spec.metadata["help"],
            "dest": spec.name,
        }
        if hint is bool:
            parser.add_argument(flag, action=argparse.BooleanOptionalAction, **options)
        elif typing.get_origin(hint) is tuple:
            parser.add_argument(flag, action="append", metavar=spec.name.upper(), **options)
        else:
            parser.add_argument(flag, metavar=spec.name.upper(), **options)


def from_namespace(args: argparse.Namespace) -> tuple[Config, dict[str, str]]:
    """Return the configuration for the parsed flags of `add_flags`, and each setting's origin; see `load_config`."""
    names = {spec.name for spec in dataclasses.fields(Config)}
    flags = {name: value for name, value in vars(args).items() if name in names}
    return load_config(flags, file=args.config)
