"""The OpenAPI document: made from the routes themselves and the structs that they decode."""

from __future__ import annotations

import functools
from typing import Any, get_args, get_origin

import msgspec
from litestar import Litestar, Request, get
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from llamay_server.anthropic import schema as _anthropic_schema
from llamay_server.contexts import routes as _contexts_api
from llamay_server.contexts import snapshots as _snapshots_api
from llamay_server.http.answers import Whole
from llamay_server.http.call import dialect_of
from llamay_server.http.errors import Dialect
from llamay_server.llamacpp import completion as _llamacpp_completion
from llamay_server.llamacpp import infill as _infill
from llamay_server.llamacpp import server as _llamacpp
from llamay_server.models import lora as _lora
from llamay_server.ollama import create as _ollama_create
from llamay_server.ollama import generation as _ollama
from llamay_server.ollama import models as _ollama_models
from llamay_server.openai import decisions as _decisions
from llamay_server.openai import embeddings as _embeddings
from llamay_server.openai import schema as _openai_schema
from llamay_server.openai.responses import schema as _responses_schema
from llamay_server.retrieval import rerank as _rerank
from llamay_server.services import services

_BODIES: dict[str, Any] = {
    "/v1/chat/completions": _openai_schema.ChatCompletionRequest,
    "/chat/completions": _openai_schema.ChatCompletionRequest,
    "/v1/completions": _openai_schema.CompletionRequest,
    "/completion": _llamacpp_completion.NativeRequest,
    "/completions": _llamacpp_completion.NativeRequest,
    "/infill": _infill.InfillRequest,
    "/v1/embeddings": _openai_schema.EmbeddingRequest,
    "/embedding": _embeddings.NativeEmbeddingRequest,
    "/embeddings": _embeddings.NativeEmbeddingRequest,
    "/embed": _embeddings.TeiEmbedRequest,
    "/api/embed": _embeddings.OllamaEmbedRequest,
    "/api/embeddings": _embeddings.OllamaEmbeddingRequest,
    "/v1/rerank": _rerank.RerankRequest,
    "/v2/rerank": _rerank.RerankRequest,
    "/rerank": _rerank.RerankRequest,
    "/v1/reranking": _rerank.RerankRequest,
    "/reranking": _rerank.RerankRequest,
    "/v1/responses": _responses_schema.ResponsesRequest,
    "/responses": _responses_schema.ResponsesRequest,
    "/v1/responses/input_tokens": _responses_schema.ResponsesRequest,
    "/v1/messages": _anthropic_schema.MessagesRequest,
    "/v1/messages/count_tokens": _anthropic_schema.CountTokensRequest,
    "/lora-adapters": list[_lora.AdapterScale],
    "/score": _rerank.ScoreRequest,
    "/v1/score": _rerank.ScoreRequest,
    "/v1/decisions": _decisions.DecisionRequest,
    "/v1/systemone": _decisions.SystemOneRequest,
    "/tokenize": _llamacpp.TokenizeRequest,
    "/v1/tokenize": _llamacpp.TokenizeRequest,
    "/detokenize": _llamacpp.DetokenizeRequest,
    "/v1/detokenize": _llamacpp.DetokenizeRequest,
    "/apply-template": _llamacpp.TemplateRequest,
    "/chat/completions/input_tokens": _llamacpp.TemplateRequest,
    "/v1/chat/completions/input_tokens": _llamacpp.TemplateRequest,
    "/api/generate": _ollama.GenerateRequest,
    "/api/chat": _ollama.OllamaChatRequest,
    "/api/show": _ollama_models.Named,
    "/api/pull": _ollama_models.Named,
    "/api/create": _ollama_create.CreateRequest,
    "/api/delete": _ollama_models.Named,
    "/api/copy": _ollama_models.CopyRequest,
    "/v1/contexts": _contexts_api.CreateContext,
    "/v1/contexts/{context_id}/fork": _contexts_api.ForkContext,
    "/v1/contexts/{context_id}/generate": _contexts_api.GenerateFromContext,
    "/v1/contexts/{context_id}/truncate": _contexts_api.TruncateContext,
    "/v1/contexts/{context_id}/extend": _contexts_api.ExtendContext,
    "/v1/contexts/{context_id}/move": _snapshots_api.MoveContext,
    "/v1/contexts/{context_id}/explain-miss": _contexts_api.ExplainMiss,
}
_STREAMS = {
    "/v1/chat/completions": "text/event-stream",
    "/chat/completions": "text/event-stream",
    "/v1/completions": "text/event-stream",
    "/completion": "text/event-stream",
    "/completions": "text/event-stream",
    "/infill": "text/event-stream",
    "/v1/responses": "text/event-stream",
    "/responses": "text/event-stream",
    "/v1/messages": "text/event-stream",
    "/v1/contexts/{context_id}/generate": "text/event-stream",
    "/api/generate": "application/x-ndjson",
    "/api/chat": "application/x-ndjson",
    "/api/pull": "application/x-ndjson",
}
_QUERY: dict[str, list[dict[str, Any]]] = {
    "GET /v1/contexts": [
        {"name": "limit", "schema": {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}},
        {"name": "after", "schema": {"type": "string"}},
    ],
    "GET /v1/contexts/{context_id}": [{"name": "include", "schema": {"type": "string"}}],
    "POST /v1/contexts/{context_id}/fork": [{"name": "n", "schema": {"type": "integer", "minimum": 1}}],
    "POST /v1/contexts/restore": [
        {"name": name, "schema": {"type": "string"}} for name in ("model", "label", "marking")
    ],
}
_RESPONSES = {
    "/metrics": "text/plain",
    "/": "text/plain",
    "/v1/contexts/{context_id}/snapshot": "application/vnd.llamay.context",
    "/api/copy": "text/plain",
    "/api/delete": "text/plain",
}
# Static files, this document, and routes that only say that they are not there.
_HIDDEN = (
    "/ui",
    "/openapi.json",
    "/v1/openapi.json",
    "/api/push",
    "/api/blobs",
    "/v1/responses/compact",
)
_LINKED = ("fork", "generate", "truncate", "extend", "snapshot")


def _errors(dialect: Dialect) -> dict[str, Any]:
    text = {"type": "string"}
    nullable = {"type": ["string", "null"]}
    match dialect:
        case Dialect.OWN:
            properties: dict[str, Any] = {
                "type": text,
                "title": text,
                "status": {"type": "integer"},
                "detail": text,
            }
            return {"application/problem+json": {"schema": _object(properties)}}
        case Dialect.OLLAMA:
            return {"application/json": {"schema": _object({"error": text})}}
        case Dialect.ANTHROPIC:
            inner = _object({"type": text, "message": text})
            return {"application/json": {"schema": _object({"type": {"const": "error"}, "error": inner})}}
        case _:
            inner = _object({"message": text, "type": text, "param": nullable, "code": nullable})
            return {"application/json": {"schema": _object({"error": inner})}}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _reference(body: Any) -> dict[str, Any]:
    """Where the schema of a body is: of a struct, or a list of them."""
    if get_origin(body) is list:
        return {"type": "array", "items": _reference(get_args(body)[0])}
    return {"$ref": f"#/components/schemas/{body.__name__}"}


def _operation(handler: HTTPRouteHandler, verb: str, path: str) -> dict[str, Any]:
    text = " ".join((handler.fn.__doc__ or "").split())
    media = _RESPONSES.get(path, "application/json")
    success: dict[str, Any] = {
        media: {"schema": {} if media != "application/json" else {"type": ["object", "array"]}}
    }
    if stream := _STREAMS.get(path):
        success[stream] = {"schema": {}}
    status = str(handler.status_code)
    operation: dict[str, Any] = {
        "summary": text.split(". ")[0].rstrip(".") + ".",
        "description": text,
        "operationId": f"{verb.lower()}{path.replace('/', '_').replace('{', '').replace('}', '').replace('-', '_')}",
        "responses": {
            status: {"description": "Done.", "content": success},
            "default": {"description": "Refused.", "content": _errors(dialect_of(path, {}))},
        },
    }
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in ("context_id", "response_id", "model_id", "digest")
        if f"{{{name}}}" in path
    ]
    parameters += [{"in": "query", **query} for query in _QUERY.get(f"{verb} {path}", [])]
    if parameters:
        operation["parameters"] = parameters
    if (
        verb != "GET"
        and (body := _BODIES.get(path)) is not None
        and not (verb == "DELETE" and path != "/api/delete")
    ):
        schema = _reference(body)
        optional = path.endswith("/fork")
        operation["requestBody"] = {
            "required": not optional,
            "content": {"application/json": {"schema": schema}},
        }
    if path == "/v1/contexts/restore":
        raw = {"schema": {"type": "string", "format": "binary"}}
        operation["requestBody"] = {"required": True, "content": {"application/octet-stream": raw}}
    if (verb, path) == ("POST", "/v1/contexts"):
        operation["responses"][status]["links"] = {
            name: {
                "operationId": f"{'get' if name == 'snapshot' else 'post'}_v1_contexts_context_id_{name}",
                "parameters": {"context_id": "$response.body#/id"},
            }
            for name in _LINKED
        }
    return operation


@functools.lru_cache(maxsize=8)
def document(app: Litestar, version: str) -> dict[str, Any]:
    """The OpenAPI 3.1 document of an application."""
    paths: dict[str, Any] = {}
    missing = {id(handler.fn) for handler in (_llamacpp.set_props, _llamacpp.slot_action)}
    for route in app.routes:
        for handler in getattr(route, "route_handlers", ()):
            if id(handler.fn) in missing:
                continue
            for raw in sorted(handler.paths):
                path = raw.split(":")[0] + "}" + raw.split("}", 1)[1] if ":" in raw else raw
                if path.startswith(_HIDDEN) or raw != route.path:
                    continue
                for verb in sorted(handler.http_methods & {"GET", "POST", "DELETE", "PUT"}):
                    paths.setdefault(path, {})[verb.lower()] = _operation(handler, verb, path)
    structs = list(dict.fromkeys(_BODIES.values()))
    # A list's items are among the components that it needs.
    _, components = msgspec.json.schema_components(structs, ref_template="#/components/schemas/{name}")
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "llamay",
            "version": version,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
        "security": [{}, {"bearer": []}, {"key": []}],
    }


@get(["/openapi.json", "/v1/openapi.json"])
async def openapi(request: Request[Any, Any, Any]) -> ASGIApp:
    """Describe this API."""
    return Whole(document(request.app, services(request).version))


HANDLERS = [openapi]
