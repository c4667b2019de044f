"""GET and POST /lora-adapters: the scales of LoRA adapters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from litestar import Request, get, post
from litestar.types import ASGIApp
from msgspec import Struct

from llamay_server.http.answers import WholeAnswer
from llamay_server.http.bodies import read_json
from llamay_server.http.errors import invalid
from llamay_server.http.exchange import exchange_of
from llamay_server.http.route_description import described
from llamay_server.models.lora import AdapterScale, read_scales
from llamay_server.services import services

if TYPE_CHECKING:
    from llamay_server.engine.protocol import Model


class AdapterState(Struct):
    """One adapter, and the scale for requests that ask for none."""

    id: int
    path: str
    scale: float


@get("/lora-adapters")
async def adapters(request: Request[Any, Any, Any]) -> ASGIApp:
    """List the LoRA adapters beside the model, with the scales for requests that ask for none."""
    service = services(request)
    async with service.models.use(request.query_params.get("model"), exchange_of(request.scope)) as (
        _,
        model,
    ):
        return WholeAnswer(_states(model, paths=service.config.expose_paths))


@post("/lora-adapters", status_code=200, opt=described(body=list[AdapterScale]))
async def set_adapters(request: Request[Any, Any, Any]) -> ASGIApp:
    """Set the scales for requests that ask for none. Adapters that are not named have scale 0 from then on."""
    service = services(request)
    data = await read_json(request, list[AdapterScale])
    async with service.models.use(request.query_params.get("model"), exchange_of(request.scope)) as (
        entry,
        model,
    ):
        if data and not model.adapters:
            raise invalid(f"[0].id: there is no adapter {data[0].id}", "[0].id")
        if entry.model is not None and model.adapters:
            entry.model.set_scales(read_scales(model, data, ""))
        return WholeAnswer(_states(model, paths=service.config.expose_paths))


def _states(model: Model, *, paths: bool) -> list[AdapterState]:
    return [
        AdapterState(i, str(each.path) if paths else each.path.name, each.scale)
        for i, each in enumerate(model.adapters)
    ]


HANDLERS = [adapters, set_adapters]
