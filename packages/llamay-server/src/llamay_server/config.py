"""The configuration of a server, and the API keys that it accepts."""

from __future__ import annotations

import ipaddress
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DEFAULT_PORT = 11435


class ConfigError(ValueError):
    """A setting that cannot be used; the message names it and its origin."""


def _setting(
    default: Any, text: str, *, env: tuple[str, ...] = (), secret: bool = False, unit: str = ""
) -> Any:
    """Return a field, with the metadata for its flag, its variable and `--show-config`."""
    meta = {"help": text, "env": env, "secret": secret, "unit": unit}
    return field(default=default, metadata=meta)


@dataclass(frozen=True, kw_only=True)
class Config:
    """The configuration of a server. Sizes are bytes and times seconds once read."""

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
        "draft models of the same vocabulary, for speculative decoding: PATH (the default model's) or NAME=PATH",
    )
    lora: tuple[str, ...] = _setting(
        (),
        "LoRA adapters: FILE or FILE:SCALE for the default model, NAME=FILE or NAME=FILE:SCALE for another",
    )
    max_stall: str = _setting(
        "2.5x",
        "how long a step with prefill may take while texts are decoded: 2.5x (times as long as without) or 50ms",
    )
    ctx_mem_budget: int = _setting(
        0, "bytes of memory for the K/V of contexts, per model; 0 lets the engine choose", unit="bytes"
    )
    ctx_spill_dir: str = _setting(
        "", "folder to which idle contexts are spilled, encrypted, when memory does not suffice"
    )
    ctx_spill: int = _setting(64 << 30, "bytes that spilled contexts may take there, per model", unit="bytes")
    prefix_cache: int = _setting(
        -1,
        "bytes of K/V pages that the prefix cache may keep per model; 0 keeps none, -1 takes what contexts leave",
        unit="bytes",
    )
    prefix_cache_dir: str = _setting("", "folder in which the prefix cache outlives the server")
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
        "constrain optional tool calls from the first character on: they are always whole, and stream while written",
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
    ctx_dir: str = _setting("", "folder for temporary files of snapshots; empty takes the system's")
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
        """Whether the server can be reached from this machine only."""
        return bool(self.uds) or is_loopback(self.host)

    def check_exposure(self, keys: int) -> None:
        """Refuse a network address without keys. `allow_unauthenticated` permits that, but not under enterprise."""
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
    """Return whether an address or name is a loopback one."""
    name = host.strip("[]").lower().rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def read_keys(config: Config) -> dict[str, str]:
    """Return the API keys, each with its owner. Raises `ConfigError` for a key file that other users may read."""
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
