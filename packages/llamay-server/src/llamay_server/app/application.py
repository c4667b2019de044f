"""The application: the routes of all dialects behind one gate."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from litestar import Litestar, Request
from litestar.exceptions import HTTPException, MethodNotAllowedException, NotFoundException
from litestar.types import ASGIApp, Receive, Scope, Send

from llamay_server.app.routes import HANDLERS
from llamay_server.chat.kept import KeptAnswers
from llamay_server.chat.prompt_history import PromptHistory
from llamay_server.config import Config, read_keys
from llamay_server.contexts.markings import Markings
from llamay_server.contexts.registry import Contexts
from llamay_server.http.answers import WholeAnswer
from llamay_server.http.errors import ApiError, shape
from llamay_server.http.exchange import exchange_of
from llamay_server.http.gate import Gate
from llamay_server.http.keys import Keys
from llamay_server.http.refusals import from_engine
from llamay_server.models.registry import Models
from llamay_server.observability.metrics import Metrics
from llamay_server.pipeline.admission import AdmissionControl
from llamay_server.services import Services
from llamay_server.version import VERSION

if TYPE_CHECKING:
    from llamay_server.engine.protocol import Loader, Model
    from llamay_server.store import Store

log = logging.getLogger("llamay.server")
_SWEEP_SECONDS = 1.0
_MAX_THREADS = 256


class Application:
    """The ASGI application, with its parts for a program that embeds it."""

    def __init__(self, gate: Gate, litestar: Litestar, services: Services) -> None:
        self.gate, self.litestar, self.services = gate, litestar, services
        self.flush_traces: Callable[[], None] = lambda: None
        """Sends the remaining spans to the collector, where requests are traced."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI event."""
        await self.gate(scope, receive, send)

    async def drain(self) -> int:
        """Refuse new requests, and give the running ones the configured time; returns how many were cancelled then."""
        return await self.gate.drain(self.services.config.drain_timeout)


def create_app(
    models: Sequence[Model | str | Path] = (),
    *,
    config: Config | None = None,
    loader: Loader | None = None,
    store: Store | None = None,
) -> Application:
    """Return an ASGI application that serves models.

    Args:
        models: loaded ones, files, or NAME=FILE; the models of `config.models` come after them.
        config: the configuration; None for the defaults.
        loader: loads a model from a file; None for `llamay_models`.
        store: knows more models by name.

    Raises:
        ConfigError: where the configuration cannot be used.

    """
    config = config if config is not None else Config()
    if loader is None:
        from llamay_server.engine.loading import load

        loader = load(config)
    keys = Keys(read_keys(config))
    config.check_exposure(len(keys))
    metrics = Metrics()
    registry = Models(config, metrics, loader, store)
    for item in (*models, *config.models):
        registry.add(item)
    metrics.watch_engines(registry.stats, registry.durations)
    responses = KeptAnswers(config.max_responses, config.response_contexts)
    threads = KeptAnswers(config.max_responses, config.response_contexts)
    registry.before_unload += [responses.drop_contexts, threads.drop_contexts]
    services = Services(
        config=config,
        models=registry,
        metrics=metrics,
        admission=AdmissionControl(config.max_queue, config.max_streams, metrics),
        contexts=Contexts(config, registry, metrics),
        responses=responses,
        threads=threads,
        prompts=PromptHistory(),
        markings=Markings(config),
        keyed=bool(keys),
        version=VERSION,
        started=time.time(),
    )

    @contextlib.asynccontextmanager
    async def lifespan(_: Litestar) -> AsyncIterator[None]:
        # Most of these threads wait, for the engine or for the disk. The pool that asyncio makes has a few more threads
        # than there are cores: as many slow compilations or long prefills would keep every other request waiting.
        threads = ThreadPoolExecutor(_MAX_THREADS, "llamay server")
        asyncio.get_running_loop().set_default_executor(threads)
        housekeeping = asyncio.ensure_future(_sweep(services))
        try:
            yield
        finally:
            housekeeping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await housekeeping
            services.responses.close()
            services.threads.close()
            services.contexts.close()
            await services.models.close()
            threads.shutdown(wait=False)

    app = Litestar(
        route_handlers=list(HANDLERS),
        exception_handlers={Exception: _refuse},
        lifespan=[lifespan],
        openapi_config=None,
        request_max_body_size=None,
        logging_config=None,
    )
    app.state["services"] = services
    paths = frozenset(route.path for route in app.routes if "{" not in route.path_format)
    return Application(Gate(app, config, keys, metrics, paths), app, services)


async def _sweep(services: Services) -> None:
    """Drop contexts that nobody used for the configured time, from now on; the model pool does so with models."""
    while True:
        await asyncio.sleep(_SWEEP_SECONDS)
        try:
            services.contexts.sweep()
        except Exception:
            log.exception("housekeeping failed")


def _refuse(request: Request[Any, Any, Any], exc: Exception) -> Any:
    """Return the answer to any exception of a route: an error of the route's dialect."""
    exchange = exchange_of(request.scope)
    error = _as_error(exc, request)
    if error.kind == "internal":
        log.error("request %s failed", exchange.request_id, exc_info=exc)
    status, headers, body = shape(error, exchange.dialect, exchange.request_id)
    return _Refusal(WholeAnswer(body, status=status, headers=headers, media=headers["content-type"]))


def _as_error(exc: Exception, request: Request[Any, Any, Any]) -> ApiError:
    match exc:
        case NotFoundException():
            return ApiError(
                "not_found",
                f"There is no {request.method} {request.url.path[:200]} here.",
                code="unknown_path",
            )
        case MethodNotAllowedException():
            return ApiError(
                "method",
                f"{request.url.path[:200]} does not take {request.method}.",
                headers=dict(exc.headers or {}),
            )
        case HTTPException() if exc.status_code < 500:
            return ApiError("invalid", exc.detail)
        case _:
            return from_engine(exc)


class _Refusal:
    """The answer of an exception handler as Litestar expects it: an object that gives an ASGI application."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    def to_asgi_response(self, **_: Any) -> ASGIApp:
        """Return the ASGI application that sends the error."""
        return self.app
