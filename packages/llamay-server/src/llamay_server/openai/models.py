"""GET /v1/models: objects with the members that OpenAI's clients read, and those that Anthropic's read."""

from __future__ import annotations

import datetime
from typing import Any
from urllib.parse import unquote

from litestar import Request, get
from litestar.types import ASGIApp

from llamay_server.http.answers import WholeAnswer
from llamay_server.models.entry import Entry
from llamay_server.services import services


def _model(entry: Entry, started: float) -> dict[str, Any]:
    info = entry.info
    created = int((info.created if info else entry.modified) or started)
    out: dict[str, Any] = {
        "id": entry.name,
        "object": "model",
        "created": created,
        "owned_by": "llamay",
        "type": "model",
        "display_name": entry.name,
        "lifecycle": "active",
        "created_at": datetime.datetime.fromtimestamp(created, datetime.UTC)
        .isoformat()
        .replace("+00:00", "Z"),
    }
    if info is not None:
        out["max_model_len"] = out["max_input_tokens"] = out["max_tokens"] = info.context_length
        out["meta"] = {
            "n_vocab": info.vocab_size,
            "n_ctx": info.context_length,
            "n_ctx_train": info.trained_length,
            "n_embd": info.embedding_length,
            "n_params": info.n_parameters,
            "size": info.nbytes,
        }
    return out


@get(["/v1/models", "/models"])
async def list_models(request: Request[Any, Any, Any]) -> ASGIApp:
    """List the models that this server offers."""
    service = services(request)
    data = [_model(entry, service.started) for entry in service.models.entries.values()]
    ends = {"first_id": data[0]["id"] if data else None, "last_id": data[-1]["id"] if data else None}
    return WholeAnswer({"object": "list", "data": data, "has_more": False, **ends})


@get(["/v1/models/{model_id:path}"])
async def get_model(request: Request[Any, Any, Any]) -> ASGIApp:
    """Describe one model; its name may hold slashes and colons, escaped or not."""
    service = services(request)
    entry = service.models.find(unquote(str(request.path_params["model_id"])).strip("/"))
    return WholeAnswer(_model(entry, service.started))


HANDLERS = [list_models, get_model]
