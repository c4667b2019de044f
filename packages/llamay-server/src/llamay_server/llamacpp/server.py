"""GET /health, /metrics, /props and /slots: llama.cpp's routes about the server."""

from __future__ import annotations

from typing import Any

from litestar import Request, get, post
from litestar.types import ASGIApp

from llamay_server.http.answers import WholeAnswer
from llamay_server.http.errors import ApiError
from llamay_server.http.exchange import exchange_of
from llamay_server.http.route_description import described
from llamay_server.services import services


@get(["/health", "/v1/health"])
async def health(request: Request[Any, Any, Any]) -> ASGIApp:
    """Tell whether the server can answer; 503 while the default model loads."""
    models = services(request).models
    entry = next(iter(models.entries.values()), None)
    if entry is not None and (entry.status.loading or models.starting):
        error = {"code": 503, "message": "Loading model", "type": "unavailable_error"}
        return WholeAnswer({"error": error}, status=503)
    return WholeAnswer({"status": "ok"})


@get("/metrics", opt=described(media="text/plain"))
async def metrics(request: Request[Any, Any, Any]) -> ASGIApp:
    """Metrics as Prometheus text."""
    service = services(request)
    if not service.config.metrics:
        raise ApiError("not_supported", "Metrics are off; start the server with --metrics.")
    started = {"process-start-time-unix": str(int(service.started))}
    return WholeAnswer(
        service.metrics.text(), headers=started, media="text/plain; version=0.0.4; charset=utf-8"
    )


@get("/props")
async def props(request: Request[Any, Any, Any]) -> ASGIApp:
    """Describe the default model and the server: without keys, and with paths only where the operator shows them."""
    service = services(request)
    async with service.models.use(request.query_params.get("model"), exchange_of(request.scope)) as (
        entry,
        model,
    ):
        info = model.info
        path = "" if info.path is None else str(info.path) if service.config.expose_paths else info.path.name
        return WholeAnswer(
            {
                "default_generation_settings": {
                    "n_ctx": info.context_length,
                    "params": {
                        "temperature": 1.0,
                        "top_k": 0,
                        "top_p": 1.0,
                        "min_p": 0.0,
                        "seed": -1,
                        "n_predict": -1,
                    },
                },
                "total_slots": service.config.max_streams or service.config.max_queue,
                "model_alias": entry.name,
                "model_path": path or entry.name,
                "chat_template": info.chat_template or "",
                "bos_token": info.bos_token,
                "eos_token": info.eos_token,
                "modalities": {"vision": False, "audio": False},
                "build_info": f"llamay {service.version}",
            }
        )


@post("/props", status_code=200, opt=described(hidden=True))
async def set_props(request: Request[Any, Any, Any]) -> ASGIApp:
    """Refuse: properties are not changed while the server runs."""
    raise ApiError("not_supported", "Properties cannot be changed while the server runs.")


@get("/slots")
async def slots(request: Request[Any, Any, Any]) -> ASGIApp:
    """List an entry for each generation that runs or waits, without prompts."""
    service = services(request)
    if not service.config.slots:
        raise ApiError("not_supported", "Slots are off; start the server with --slots.")
    admission = service.admission
    busy = admission.waiting + admission.running
    total = service.config.max_streams or service.config.max_queue
    if request.query_params.get("fail_on_no_slot") and busy >= total:
        raise ApiError("unavailable", "no slot available")
    entry = next(iter(service.models.entries.values()), None)
    info = entry.info if entry is not None else None
    length = info.context_length if info is not None else 0
    shown = max(busy, 1)
    return WholeAnswer([{"id": i, "n_ctx": length, "is_processing": i < busy} for i in range(shown)])


@post("/slots/{slot:str}", status_code=200, opt=described(hidden=True))
async def slot_action(request: Request[Any, Any, Any]) -> ASGIApp:
    """Refuse: slots are not saved to files by name."""
    raise ApiError(
        "not_supported",
        "Slots are not saved to files here: download a context's snapshot, and restore it, with /v1/contexts.",
    )


HANDLERS = [health, metrics, props, set_props, slots, slot_action]
