"""The application: routes of all dialects behind one gate."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from litestar import Litestar, Request
from litestar.exceptions import HTTPException, MethodNotAllowedException, NotFoundException
from litestar.types import ASGIApp, Receive, Scope, Send

from llamay_server.anthropic import messages as _anthropic
from llamay_server.app import openapi as _openapi
from llamay_server.chat.kept import Responses
from llamay_server.chat.prompt_history import SeenPrompts
from llamay_server.config import Config, read_keys
from llamay_server.contexts import generate as _contexts_generate
from llamay_server.contexts import routes as _contexts_api
from llamay_server.contexts import snapshots as _snapshots_api
from llamay_server.contexts.markings import Markings
from llamay_server.contexts.registry import Contexts
from llamay_server.engine.protocol import Loader, Model
from llamay_server.http.answers import Whole
from llamay_server.http.call import call_of
from llamay_server.http.errors import ApiError, from_engine, shape
from llamay_server.http.gate import Gate
from llamay_server.http.keys import Keys
from llamay_server.llamacpp import completion as _llamacpp_completion
from llamay_server.llamacpp import infill as _infill
from llamay_server.llamacpp import server as _llamacpp
from llamay_server.models.registry import Models
from llamay_server.observability.metrics import Metrics
from llamay_server.ollama import create as _ollama_create
from llamay_server.ollama import generation as _ollama
from llamay_server.ollama import models as _ollama_models
from llamay_server.openai import chat as _openai_chat
from llamay_server.openai import completions as _openai_completions
from llamay_server.openai import decisions as _decisions
from llamay_server.openai import embeddings as _embeddings
from llamay_server.openai import models as _openai_models
from llamay_server.openai.responses import routes as _responses
from llamay_server.pipeline.run import Admission
from llamay_server.retrieval import rerank as _rerank
from llamay_server.services import Services
from llamay_server.store import Store
from llamay_server.version import VERSION
from llamay_server.web import routes as _web

log = logging.getLogger("llamay.server")
_SWEEP_SECONDS = 1.0


class Application:
    """The ASGI application, and what an embedding program may want of it."""

    def __init__(self, gate: Gate, litestar: Litestar, services: Services) -> None:
        self.gate, self.litestar, self.services = gate, litestar, services
        self.flush_traces: Callable[[], None] = lambda: None
        """Sends what is still to be sent; set where requests are traced."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI event."""
        await self.gate(scope, receive, send)

    async def drain(self) -> int:
        """Refuse new requests and end the running ones within the configured time; gives how many were cut off."""
        return await self.gate.drain(self.services.config.drain_timeout)


def create_app(
    models: Sequence[Model | str | Path] = (),
    *,
    config: Config | None = None,
    loader: Loader | None = None,
    store: Store | None = None,
) -> Application:
    """An ASGI application that serves `models` (loaded ones, files, or NAME=FILE; `config.models` come after).

    `loader` turns a file into a model; without one, files are loaded by llamay_models. `store` knows more models by
    name. Raises `ConfigError` where the configuration cannot be used.
    """
    config = config if config is not None else Config()
    if loader is None:
        from llamay_server.engine.model import load

        loader = load(config)
    keys = Keys(read_keys(config))
    config.check_exposure(len(keys))
    metrics = Metrics()
    registry = Models(config, metrics, loader, store)
    for item in (*models, *config.models):
        registry.add(item)
    metrics.watch_engines(registry.stats, registry.times)
    responses = Responses(config.max_responses, config.response_contexts)
    threads = Responses(config.max_responses, config.response_contexts)
    registry.before_unload += [responses.drop_contexts, threads.drop_contexts]
    services = Services(
        config=config,
        models=registry,
        metrics=metrics,
        admission=Admission(config.max_queue, config.max_streams, metrics),
        contexts=Contexts(config, registry, metrics),
        responses=responses,
        threads=threads,
        prompts=SeenPrompts(),
        markings=Markings(config),
        keyed=bool(keys),
        version=VERSION,
        started=time.time(),
    )

    @contextlib.asynccontextmanager
    async def lifespan(_: Litestar) -> AsyncIterator[None]:
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

    app = Litestar(
        route_handlers=list(_handlers()),
        exception_handlers={Exception: _refuse},
        lifespan=[lifespan],
        openapi_config=None,
        request_max_body_size=None,
        logging_config=None,
    )
    app.state["services"] = services
    return Application(Gate(app, config, keys, metrics), app, services)


_ROUTES = (
    _llamacpp,
    _llamacpp_completion,
    _openai_models,
    _openai_chat,
    _openai_completions,
    _responses,
    _anthropic,
    _ollama,
    _ollama_models,
    _ollama_create,
    _contexts_api,
    _contexts_generate,
    _snapshots_api,
    _embeddings,
    _rerank,
    _decisions,
    _infill,
    _web,
    _openapi,
)


def _handlers() -> Iterable[Any]:
    for module in _ROUTES:
        yield from module.HANDLERS


async def _sweep(services: Services) -> None:
    """Let contexts go that nobody used for their time; the pool does so with models."""
    while True:
        await asyncio.sleep(_SWEEP_SECONDS)
        try:
            services.contexts.sweep()
        except Exception:
            log.exception("housekeeping failed")


def _refuse(request: Request[Any, Any, Any], exc: Exception) -> Any:
    """Any exception of a route as this dialect's error."""
    call = call_of(request.scope)
    error = _as_error(exc, request)
    if error.kind == "internal":
        log.error("request %s failed", call.request_id, exc_info=exc)
    status, headers, body = shape(error, call.dialect, call.request_id)
    return _Refusal(Whole(body, status=status, headers=headers, media=headers["content-type"]))


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
    """What Litestar wants of an exception handler: an object that turns itself into an ASGI application."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    def to_asgi_response(self, **_: Any) -> ASGIApp:
        """The application."""
        return self.app
