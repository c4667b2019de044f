"""LoRA adapters beside a model: their files, and the scales that a request asks for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from llamay_server.http.errors import invalid

if TYPE_CHECKING:
    from llamay_server.engine.protocol import Model


class AdapterScale(Struct):
    """The scale at which an adapter's weights are added."""

    id: Annotated[int, Meta(ge=0, le=2**31 - 1)]
    scale: Annotated[float, Meta(ge=-1e6, le=1e6)]


def adapter_files(settings: Sequence[str]) -> list[tuple[Path, float]]:
    """Return the files and the scales of adapters, as settings name them: FILE or FILE:SCALE."""
    # Imported here, because a program that only reads settings or a recipe needs no engine.
    from llamay_models.adapters import read_adapter

    return [(Path(path), scale) for path, scale in map(read_adapter, settings)]


async def adapted(model: Model, wanted: Sequence[AdapterScale] | None) -> Model:
    """Return the model with the scales that a request asks for, else with the default scales.

    Raises a 400 that names the field.
    """
    if not model.adapters:
        if wanted:
            raise invalid("lora[0].id: this model has no adapters", "lora[0].id")
        return model
    scales = None if wanted is None else read_scales(model, wanted, "lora")
    # A model with new scales takes as long to make as a few steps; the event loop has other requests.
    return await asyncio.to_thread(model.adapted, scales)


def read_scales(model: Model, wanted: Sequence[AdapterScale], where: str) -> tuple[float, ...]:
    """Return one scale for each adapter, 0 for those that are not named. Raises a 400 that names the field."""
    scales = [0.0] * len(model.adapters)
    for n, each in enumerate(wanted):
        if each.id >= len(scales):
            path = f"{where}[{n}].id"
            raise invalid(f"{path}: there is no adapter {each.id}; this model has {len(scales)}", path)
        scales[each.id] = each.scale
    return tuple(scales)
