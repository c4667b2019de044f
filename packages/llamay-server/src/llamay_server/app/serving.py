"""Listening: sockets, TLS, signals and the drain that they begin."""

from __future__ import annotations

import argparse
import asyncio
import errno
import gc
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn

from llamay_server.app.application import Application, create_app
from llamay_server.config import Config, ConfigError
from llamay_server.engine.protocol import Loader, Model
from llamay_server.http.connection import protocol
from llamay_server.observability.logs import configure
from llamay_server.settings import add_flags, from_namespace, show_config
from llamay_server.store import Store

log = logging.getLogger("llamay.server")
_SWITCH_SECONDS = 0.0005
"""Seconds for which the serving thread may hold the interpreter while an engine waits to begin a step.

A step is prepared in less than a millisecond, and writing the tokens of 32 streams takes two. With Python's 5 ms, both
happen in turn, at the cost of a twentieth of all tokens; with this interval, tokens are written during the next step's
computation.
"""


class Server(uvicorn.Server):
    """A uvicorn server that drains at the first signal, and stops at once at the second."""

    def __init__(self, config: uvicorn.Config, application: Application) -> None:
        super().__init__(config)
        self.application = application
        self._loop: asyncio.AbstractEventLoop | None = None
        self._drain: asyncio.Task[None] | None = None
        self._interval = sys.getswitchinterval()

    async def startup(self, sockets: list[Any] | None = None) -> None:
        """Listen, and then load the default model: /health tells meanwhile that it is loading."""
        self._loop = asyncio.get_running_loop()
        sys.setswitchinterval(min(self._interval, _SWITCH_SECONDS))
        models = self.application.services.models
        models.starting = bool(models.entries)
        await super().startup(sockets)
        if self.started:
            self._announce()
            self._preload = asyncio.ensure_future(self._load())

    async def shutdown(self, sockets: list[Any] | None = None) -> None:
        """Stop listening, and restore the interpreter's switch interval."""
        await super().shutdown(sockets)
        sys.setswitchinterval(self._interval)

    async def _load(self) -> None:
        try:
            await self.application.services.models.preload()
        except Exception as e:
            log.error("the default model could not be loaded: %s", e)
        finally:
            self.application.services.models.starting = False
        # Vocabularies and merges are never freed from here on: collecting garbage among them would stop every stream.
        gc.collect()
        gc.freeze()

    def _announce(self) -> None:
        config = self.application.services.config
        where = f"unix:{config.uds}" if config.uds else self.url()
        names = ", ".join(self.application.services.models.entries) or "no model"
        log.info("serving %s on %s", names, where)

    def url(self) -> str:
        """Return the URL at which the server listens, with the port that the system gave it."""
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        scheme = "https" if self.config.is_ssl else "http"
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Drain at the first signal, stop at once at the second."""
        if self._loop is None or self._drain is not None or self.should_exit:
            self.should_exit = self.force_exit = True
            return
        self._loop.call_soon_threadsafe(self.begin_drain)

    def begin_drain(self) -> None:
        """Let running requests end, and then stop."""
        if self._drain is None:
            self._drain = asyncio.ensure_future(self._drain_and_stop())

    async def _drain_and_stop(self) -> None:
        log.info("draining; a second signal stops at once")
        cut = await self.application.drain()
        if cut:
            log.warning("%d requests were cut off", cut)
        self.should_exit = True


def make_server(application: Application) -> Server:
    """Return a server for an application, set up as its configuration says; it does not listen yet."""
    config = application.services.config
    if config.uds:
        _clear_socket(Path(config.uds))
    for name in ("tls_cert", "tls_key"):
        _readable(name, getattr(config, name))
    asgi: Any = application
    if config.otel_endpoint:
        from llamay_server.observability.tracing import traced

        asgi, application.flush_traces = traced(application, config.otel_endpoint)
    return Server(
        uvicorn.Config(
            asgi,
            host=config.host,
            port=config.port,
            uds=config.uds or None,
            ssl_certfile=config.tls_cert or None,
            ssl_keyfile=config.tls_key or None,
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=True,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=5,
            http=protocol(config.head_timeout),  # other installed protocols do not limit heads
            h11_max_incomplete_event_size=64 << 10,
            lifespan="on",
            ws="none",
        ),
        application,
    )


def _readable(name: str, path: str) -> None:
    try:
        if path:
            Path(path).read_bytes()
    except OSError as e:
        raise ConfigError(f"{name} {path}: {e.strerror}") from None


def _clear_socket(path: Path) -> None:
    """Remove the socket of a server that has ended. Raises OSError where a server still listens on it."""
    if path.is_socket():
        import socket

        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(str(path))
            except OSError:
                path.unlink()
                return
        raise OSError(errno.EADDRINUSE, f"another server listens on {path}")


def serve(
    models: Sequence[Model | str | Path] = (),
    *,
    config: Config | None = None,
    loader: Loader | None = None,
    store: Store | None = None,
    **settings: Any,
) -> None:
    """Serve until a signal comes.

    `settings` are fields of `Config`, such as host and port; `loader` and `store` are as in `create_app`.

    Raises `ConfigError` where the configuration cannot be used, and `OSError` where the address cannot be bound.
    """
    if config is not None and settings:
        raise ConfigError("give either config or single settings")
    settled = config if config is not None else Config(**settings)
    application = create_app(models, config=settled, loader=loader, store=store)
    configure(application.services.config)
    try:
        make_server(application).run()
    finally:
        application.flush_traces()


def main(argv: Sequence[str] | None = None) -> int:
    """`python -m llamay_server`: flags for every setting. Exit codes: 0 ended well, 1 failed, 2 wrong usage."""
    parser = argparse.ArgumentParser(prog="llamay-server", description="Serve GGUF models over HTTP.")
    parser.add_argument("model", nargs="*", help="model file, as PATH or NAME=PATH")
    add_flags(parser)
    args = parser.parse_args(argv)
    try:
        config, origin = from_namespace(args)
        if args.show_config:
            print(show_config(config, origin))
            return 0
        if not (args.model or config.models):
            parser.error("no model given; name a GGUF file")
        serve([*args.model], config=config)
    except (ConfigError, ValueError) as e:
        print(f"error: {e}", file=sys.stderr)
        return 1
    except OSError as e:
        print(f"error: {e.strerror or e}", file=sys.stderr)
        return 1
    except SystemExit as e:
        return e.code if isinstance(e.code, int) else 1
    return 0
