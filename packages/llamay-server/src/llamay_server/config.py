"""Configuration: flags over environment over one TOML file over defaults, and where each value came from."""

from __future__ import annotations

import argparse
import dataclasses
import ipaddress
import os
import re
import stat
import tomllib
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DEFAULT_PORT = 11435


class ConfigError(ValueError):
    """A setting that cannot be used; the message names it and its origin."""


def _setting(
    default: Any, text: str, *, env: tuple[str, ...] = (), secret: bool = False, unit: str = ""
) -> Any:
    """A field with what its flag, its variable and `--show-config` need."""
    meta = {"help": text, "env": env, "secret": secret, "unit": unit}
    return field(default=default, metadata=meta)


@dataclass(frozen=True, kw_only=True)
class Config:
    """Everything that can be set about a server. Sizes are bytes and times seconds once read."""

    models: tuple[str, ...] = _setting(
        (), "model files to serve, as PATH or NAME=PATH; the first is the default"
    )
    chat_template_file: str = _setting(
        "", "Jinja template that the model files of `models` use instead of their own"
    )
    host: str = _setting("127.0.0.1", "address to listen on", env=("OLLAMA_HOST",))
    port: int = _setting(DEFAULT_PORT, "port to listen on; 0 takes a free one")
    uds: str = _setting("", "Unix socket to listen on instead of an address")
    tls_cert: str = _setting("", "certificate chain (PEM) for HTTPS")
    tls_key: str = _setting("", "private key (PEM) for HTTPS")
    api_keys: tuple[str, ...] = _setting((), "keys, as KEY or OWNER:KEY", secret=True)
    api_key_file: str = _setting("", "file of keys, one KEY or OWNER:KEY a line, readable by its owner only")
    allowed_hosts: tuple[str, ...] = _setting((), "Host names to answer beside loopback ones")
    origins: tuple[str, ...] = _setting((), "web origins that may call this server", env=("OLLAMA_ORIGINS",))
    allow_unauthenticated: bool = _setting(False, "listen beyond loopback without a key")
    profile: str = _setting(
        "default", "default or enterprise; enterprise refuses what would be unsafe among strangers"
    )
    ctx_size: int = _setting(
        0, "tokens of context per model; 0 takes the model's own", env=("OLLAMA_CONTEXT_LENGTH",)
    )
    threads: int = _setting(0, "threads per model; 0 takes the number of cores")
    kv: str = _setting("f16", "precision of K/V: f32, f16, vq8 or q8")
    drafts: tuple[str, ...] = _setting(
        (),
        "smaller models of the same vocabulary that guess ahead: PATH for the default model, NAME=PATH for another",
    )
    lora: tuple[str, ...] = _setting(
        (),
        "LoRA adapters: FILE or FILE:SCALE for the default model, NAME=FILE or NAME=FILE:SCALE for another",
    )
    max_stall: str = _setting(
        "2.5x",
        "how long a step may take that reads a prompt while texts are written: 2.5x (times as long as without) or 50ms",
    )
    ctx_mem_budget: int = _setting(
        0, "bytes of memory for the K/V of contexts, per model; 0 lets the engine choose", unit="bytes"
    )
    ctx_spill_dir: str = _setting(
        "", "folder where contexts that nobody is at work on go, encrypted, when memory does not suffice"
    )
    ctx_spill: int = _setting(64 << 30, "bytes that they may take there, per model", unit="bytes")
    prefix_cache: int = _setting(
        -1,
        "bytes of K/V pages that computed prefixes may keep per model; 0 keeps none, -1 takes what contexts leave",
        unit="bytes",
    )
    prefix_cache_dir: str = _setting("", "folder in which computed prefixes outlive the server")
    prefix_cache_disk: int = _setting(
        16 << 30, "bytes that this folder may take, all models together", unit="bytes"
    )
    prefix_cache_free: int = _setting(
        1 << 30, "bytes of its file system that this folder leaves free", unit="bytes"
    )
    prefix_cache_ram: int = _setting(
        0, "bytes of memory that hold decrypted parts of this folder", unit="bytes"
    )
    packed_cache: str = _setting(
        "", "folder that keeps weights as the kernels read them, so that models load faster the next time"
    )
    ctx_key: str = _setting(
        "", "file with the key (32 bytes, or 64 hex digits) that encrypts snapshots and kept prefixes"
    )
    keep_alive: float = _setting(
        -1.0,
        "idle time after which a model is unloaded; negative keeps it",
        env=("OLLAMA_KEEP_ALIVE",),
        unit="seconds",
    )
    max_loaded_models: int = _setting(
        0, "models held at once; 0 is no limit", env=("OLLAMA_MAX_LOADED_MODELS",)
    )
    model_mem_budget: int = _setting(
        0, "bytes that the files of all loaded models may have together; 0 is no limit", unit="bytes"
    )
    max_queue: int = _setting(512, "requests that may wait for their first token", env=("OLLAMA_MAX_QUEUE",))
    max_streams: int = _setting(0, "generations that may run at once; 0 is no limit")
    bind_calls: bool = _setting(
        False,
        "bind an optional tool call from its first character on, so that it is always whole and streams while written",
    )
    max_n: int = _setting(128, "choices, forks or prompts that one request may ask for")
    max_body: int = _setting(128 << 20, "bytes of a request body, unpacked", unit="bytes")
    max_snapshot: int = _setting(64 << 30, "bytes of an uploaded snapshot", unit="bytes")
    max_blob: int = _setting(256 << 30, "bytes of an uploaded model file", unit="bytes")
    head_timeout: float = _setting(
        30.0, "time in which the head of a request must arrive whole", unit="seconds"
    )
    body_timeout: float = _setting(60.0, "time in which the next part of a body must arrive", unit="seconds")
    request_timeout: float = _setting(0.0, "longest time of one request; 0 is no limit", unit="seconds")
    ping_interval: float = _setting(
        15.0, "silence in a stream after which a keep-alive is sent", unit="seconds"
    )
    drain_timeout: float = _setting(
        30.0, "time that running requests get when the server stops", unit="seconds"
    )
    max_contexts: int = _setting(1024, "contexts that one owner may hold")
    max_context_tokens: int = _setting(0, "tokens that one owner's contexts may hold; 0 is no limit")
    context_ttl: float = _setting(
        0.0, "idle time after which a context is dropped; 0 keeps it", unit="seconds"
    )
    move_targets: tuple[str, ...] = _setting((), "base URLs of servers that contexts may be moved to")
    markings: tuple[str, ...] = _setting(
        (),
        "markings that contexts may have, as MARKING (for everybody) or OWNER:MARKING; "
        "without any, all (none under enterprise)",
    )
    max_responses: int = _setting(1000, "responses kept for previous_response_id and reading again")
    response_contexts: int = _setting(32, "kept responses whose computed context is kept too")
    ctx_dir: str = _setting("", "folder for snapshots in passing; empty takes the system's temporary one")
    metrics: bool = _setting(True, "serve /metrics")
    metrics_open: bool = _setting(False, "serve /metrics without a key")
    otel_endpoint: str = _setting(
        "",
        "where an OTLP/HTTP collector takes traces, such as http://127.0.0.1:4318/v1/traces; empty sends nothing",
    )
    slots: bool = _setting(True, "serve /slots")
    manage_models: bool = _setting(
        True, "let clients pull, create, copy and delete models in the store; never under enterprise"
    )
    web: bool = _setting(True, "serve the web chat at /ui/")
    expose_paths: bool = _setting(False, "name model files in /props and listings")
    single_model: bool = _setting(False, "answer any model name with the default model")
    log_level: str = _setting("info", "debug, info, warning or error", env=())
    log_json: bool = _setting(False, "log one JSON object a line")

    def __post_init__(self) -> None:
        if self.profile not in ("default", "enterprise"):
            raise ConfigError(f"profile is {self.profile!r}; it must be default or enterprise")
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"port is {self.port}; it must be from 0 to 65535")
        if bool(self.tls_cert) != bool(self.tls_key):
            raise ConfigError("tls_cert and tls_key belong together; give both or neither")
        if self.profile == "enterprise" and self.prefix_cache_dir and not self.ctx_key:
            raise ConfigError(
                "prefix_cache_dir keeps on the disk what was computed, which the enterprise profile wants encrypted: "
                "set ctx_key"
            )
        if self.log_level not in ("debug", "info", "warning", "error"):
            raise ConfigError(f"log_level is {self.log_level!r}; it must be debug, info, warning or error")
        for name in ("head_timeout", "body_timeout", "ping_interval"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be more than 0 seconds")
        for name in ("max_queue", "max_n", "max_body", "max_snapshot", "max_blob", "max_contexts"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be at least 1")

    @property
    def manages_models(self) -> bool:
        """Whether clients may change the store."""
        return self.manage_models and self.profile != "enterprise"

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        return bool(self.uds) or is_loopback(self.host)

    def check_exposure(self, keys: int) -> None:
        """Refuse to face a network without keys, unless the operator says so (and never under enterprise)."""
        if self.loopback or keys:
            return
        if self.profile == "enterprise":
            raise ConfigError(
                f"host {self.host} is reachable from a network and no key is set; the enterprise profile needs api_keys"
            )
        if not self.allow_unauthenticated:
            raise ConfigError(
                f"host {self.host} is reachable from a network and no key is set; set --api-keys or --api-key-file, "
                f"or --allow-unauthenticated to serve anybody"
            )


def is_loopback(host: str) -> bool:
    """Whether an address or name stands for this machine alone."""
    name = host.strip("[]").lower().rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def read_keys(config: Config) -> dict[str, str]:
    """Keys with their owners. A key file that others may read is refused: a key they know is no key."""
    lines = list(config.api_keys)
    if config.api_key_file:
        path = Path(config.api_key_file)
        try:
            mode = path.stat().st_mode
            text = path.read_text("utf-8")
        except OSError as e:
            raise ConfigError(f"api_key_file {path}: {e.strerror}") from None
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise ConfigError(f"api_key_file {path} is open to other users; run: chmod 600 {path}")
        lines += [line for raw in text.splitlines() if (line := raw.strip()) and not line.startswith("#")]
    keys: dict[str, str] = {}
    for n, line in enumerate(lines):
        owner, _, key = line.rpartition(":")
        if not key:
            raise ConfigError(f"api key number {n + 1} is empty")
        keys[key] = owner or f"key-{n + 1}"
    return keys


_BYTES = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?)i?b?", re.IGNORECASE)
_SECONDS = re.compile(r"(-?[0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)?")


def parse_bytes(text: str) -> int:
    """`512`, `64k`, `1.5GiB` as a number of bytes."""
    if not (match := _BYTES.fullmatch(text.strip())):
        raise ValueError(f"{text!r} is not a size; write 512, 64k, 1.5GiB")
    power = "kmgt".index(match[2].lower()) + 1 if match[2] else 0
    return int(float(match[1]) * 1024**power)


def parse_seconds(text: str) -> float:
    """`30`, `500ms`, `5m`, `1h30m`, `-1` as seconds, as Ollama and Go write durations."""
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
    """One raw value, text or TOML, as its field wants it."""
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
    """OLLAMA_HOST holds host, host:port, :port or a URL."""
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
    """The configuration and, for each setting, its origin.

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
    """The settings in force as TOML, each with its origin; secrets are counted, not shown."""
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
    """One flag for each setting; a flag that is not given leaves no trace in the namespace."""
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
    """The configuration that flags read by `add_flags` stand for."""
    names = {spec.name for spec in dataclasses.fields(Config)}
    flags = {name: value for name, value in vars(args).items() if name in names}
    return load_config(flags, file=args.config)
