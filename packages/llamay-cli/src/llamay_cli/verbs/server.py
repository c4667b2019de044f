"""`ps`, `stop`: the models that a running server has loaded."""

from __future__ import annotations

import datetime
import json
import os
import time
from collections.abc import Mapping
from typing import Any, Self

import click
import httpx

from ..console.tables import format_bytes, print_table
from ..errors import (
    CliError,
    Exit,
    NotFoundError,
    RefusedError,
    UnreachableError,
    WrongUsageError,
    printable,
)
from ..options.shared import config_error

_FOR_EVER = 10 * 365 * 86400


def server_option(command: Any) -> Any:
    """Add the option for the server's address."""
    text = "The server's address.  [default: where `llamay serve` would listen]"
    return click.option("--server", metavar="URL", envvar="LLAMAY_SERVER", help=text)(command)


@click.command()
@server_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def ps(server: str | None, as_json: bool) -> None:
    """List the models that a running server has loaded.

    The server's address is the one where `llamay serve` would listen: LLAMAY_HOST and LLAMAY_PORT, OLLAMA_HOST, or
    its file of settings. LLAMAY_API_KEY is sent as the API key.
    """
    with Server(server) as running:
        found = running.ask("GET", "/api/ps")["models"]
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    rows = [("NAME", "ID", "SIZE", "PROCESSOR", "CONTEXT", "UNTIL")]
    rows += [
        (
            each["name"],
            each["digest"][:12],
            format_bytes(each["size"]),
            _processor(each),
            str(each.get("context_length", "")),
            until(each["expires_at"]),
        )
        for each in found
    ]
    print_table([tuple(printable(cell) for cell in row) for row in rows])


@click.command()
@click.argument("models", nargs=-1, required=True)
@server_option
def stop(models: tuple[str, ...], server: str | None) -> None:
    """Have a running server unload MODELS. A model that is at work is unloaded when it has finished."""
    missing = False
    with Server(server) as running:
        for model in models:
            try:
                running.ask("POST", "/api/generate", {"model": model, "keep_alive": 0, "stream": False})
            except NotFoundError as error:
                missing = True
                click.echo(f"error: {printable(error.message)}", err=True)
                continue
            names = {each["name"] for each in running.ask("GET", "/api/ps")["models"]}
            if names & {model, f"{model}:latest", model.removesuffix(":latest")}:
                click.echo(f"{printable(model)} is in use; the server unloads it when it is idle", err=True)
            else:
                click.echo(f"stopped {printable(model)}", err=True)
    if missing:
        click.get_current_context().exit(Exit.NOT_FOUND)


class Server:
    """A client of a running server."""

    def __init__(self, url: str | None = None) -> None:
        from llamay_server import ConfigError, load_config

        headers = {"User-Agent": "llamay"}
        if key := os.environ.get("LLAMAY_API_KEY", "").strip():
            headers["Authorization"] = f"Bearer {key}"
        socket = None
        if url is None:
            try:
                config, _ = load_config()
            except ConfigError as error:
                raise config_error(error) from None
            host = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(config.host, config.host)
            host = f"[{host}]" if ":" in host else host
            socket = config.uds or None
            url = f"http{'s' if config.tls_cert else ''}://{host}:{config.port}"
        elif "://" not in url:
            url = f"http://{url}"
        try:
            parsed = httpx.URL(url)
        except httpx.InvalidURL as error:
            raise WrongUsageError(f"{url!r} is no address: {error}") from None
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise WrongUsageError(f"{url!r} is no address of a server; write http://HOST:PORT")
        self.url = f"unix:{socket}" if socket else url
        transport = httpx.HTTPTransport(uds=socket) if socket else None
        self._http = httpx.Client(
            base_url="http://localhost" if socket else url, headers=headers, timeout=60, transport=transport
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._http.close()

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Return the server's answer. Raises UnreachableError, NotFoundError, RefusedError, CliError."""
        try:
            answer = self._http.request(method, path, json=body)
        except httpx.HTTPError as error:
            raise UnreachableError(
                f"no server answers at {self.url} ({error})", "`llamay serve` starts one"
            ) from None
        if answer.is_success:
            try:
                return answer.json()
            except ValueError:
                raise CliError(f"{self.url} is no llamay server: it answers without JSON") from None
        text = _reason(answer)
        if answer.status_code == 404:
            raise NotFoundError(text)
        if answer.status_code in (401, 403):
            raise RefusedError(f"{self.url}: {text}", "LLAMAY_API_KEY is sent as the API key")
        raise CliError(f"{self.url}: {text}")


def _reason(answer: httpx.Response) -> str:
    try:
        said = answer.json()["error"]
        return str(said["message"] if isinstance(said, dict) else said)[:500]
    except (ValueError, KeyError, TypeError):
        return f"it answers {answer.status_code}"


def _processor(model: Mapping[str, Any]) -> str:
    """Return the processor that computes a model, as Ollama words it."""
    size, device = model["size"], model.get("size_vram", 0)
    if not device or not size:
        return "100% CPU"
    on_device = min(100, round(100 * device / size))
    return "100% GPU" if on_device == 100 else f"{100 - on_device}%/{on_device}% CPU/GPU"


def until(expires: str, now: float | None = None) -> str:
    """Return how long a model stays loaded, from the time that the server tells."""
    try:
        left = datetime.datetime.fromisoformat(expires).timestamp() - (time.time() if now is None else now)
    except ValueError:
        return expires
    if left > _FOR_EVER:
        return "Forever"
    if left <= 0:
        return "Stopping..."
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60), ("second", 1)):
        if left >= length:
            count = round(left / length)
            return f"{count} {unit}{'s' if count > 1 else ''} from now"
    return "1 second from now"
