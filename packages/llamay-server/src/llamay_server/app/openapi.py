"""The OpenAPI document: made from the routes themselves, and from the structs that they decode."""

from __future__ import annotations

import functools
from typing import Any, get_args, get_origin

import msgspec
from litestar import Litestar, Request, get
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from llamay_server.http.answers import WholeAnswer
from llamay_server.http.errors import Dialect
from llamay_server.http.exchange import dialect_of
from llamay_server.http.route_description import KEY, described
from llamay_server.services import services

_PLAIN = described()[KEY]
_PATH_PARAMETERS = ("context_id", "response_id", "model_id", "digest")
_LINKED = ("fork", "generate", "truncate", "extend", "snapshot")
"""Operations on a context that the answer of creating one links to."""


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
    """Return the reference to the schema of a body: of a struct, or of a list of structs."""
    if get_origin(body) is list:
        return {"type": "array", "items": _reference(get_args(body)[0])}
    return {"$ref": f"#/components/schemas/{body.__name__}"}


def _operation(handler: HTTPRouteHandler, verb: str, path: str) -> dict[str, Any]:
    """Return the operation object of a route."""
    about = handler.opt.get(KEY, _PLAIN)
    text = " ".join((handler.fn.__doc__ or "").split())
    media = about["media"]
    success: dict[str, Any] = {
        media: {"schema": {} if media != "application/json" else {"type": ["object", "array"]}}
    }
    if about["stream"] is not None:
        success[about["stream"]] = {"schema": {}}
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
        for name in _PATH_PARAMETERS
        if f"{{{name}}}" in path
    ]
    parameters += [{"in": "query", **query} for query in about["query"]]
    if parameters:
        operation["parameters"] = parameters
    if (body := about["body"]) is not None:
        operation["requestBody"] = {"required": about["body_required"], "content": _content(body)}
    if (verb, path) == ("POST", "/v1/contexts"):
        operation["responses"][status]["links"] = {
            name: {
                "operationId": f"{'get' if name == 'snapshot' else 'post'}_v1_contexts_context_id_{name}",
                "parameters": {"context_id": "$response.body#/id"},
            }
            for name in _LINKED
        }
    return operation


def _content(body: Any) -> dict[str, Any]:
    """Return the content of a request body: JSON of a struct, or a file of a media type."""
    if isinstance(body, str):
        return {body: {"schema": {"type": "string", "format": "binary"}}}
    return {"application/json": {"schema": _reference(body)}}


@functools.lru_cache(maxsize=8)
def document(app: Litestar, version: str) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of an application."""
    paths: dict[str, Any] = {}
    structs: dict[Any, None] = {}
    for route in app.routes:
        for handler in getattr(route, "route_handlers", ()):
            about = handler.opt.get(KEY, _PLAIN)
            if about["hidden"]:
                continue
            if about["body"] is not None and not isinstance(about["body"], str):
                structs[about["body"]] = None
            for raw in sorted(handler.paths):
                path = raw.split(":")[0] + "}" + raw.split("}", 1)[1] if ":" in raw else raw
                if raw != route.path:
                    continue
                for verb in sorted(handler.http_methods & {"GET", "POST", "DELETE", "PUT"}):
                    paths.setdefault(path, {})[verb.lower()] = _operation(handler, verb, path)
    # A list's items are among the components that it needs.
    _, components = msgspec.json.schema_components(list(structs), ref_template="#/components/schemas/{name}")
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


@get(["/openapi.json", "/v1/openapi.json"], opt=described(hidden=True))
async def openapi(request: Request[Any, Any, Any]) -> ASGIApp:
    """Describe this API."""
    return WholeAnswer(document(request.app, services(request).version))


HANDLERS = [openapi]
