"""LoRA adapters beside a model: which there are, and how much of each a request wants."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from llamay_server.engine.protocol import Model
from llamay_server.http.errors import invalid


class AdapterScale(Struct):
    """How much of one adapter counts."""

    id: Annotated[int, Meta(ge=0, le=2**31 - 1)]
    scale: Annotated[float, Meta(ge=-1e6, le=1e6)]


def files_of(texts: Sequence[str]) -> list[tuple[Path, float]]:
    """Files and scales of adapters as settings name them."""
    from llamay_server.engine.model import (
        read_adapter,  # the engine alone knows them, and takes a while to import
    )

    return [(Path(path), scale) for path, scale in map(read_adapter, texts)]


async def adapted(model: Model, wanted: Sequence[AdapterScale] | None) -> Model:
    """The model with the scales that a request wants, or with those that hold. Raises a 400 naming the place."""
    if not model.adapters:
        if wanted:
            raise invalid("lora[0].id: this model has no adapters", "lora[0].id")
        return model
    scales = None if wanted is None else read_scales(model, wanted, "lora")
    # Making one takes as long as a few steps; the loop has other requests.
    return await asyncio.to_thread(model.adapted, scales)


def read_scales(model: Model, wanted: Sequence[AdapterScale], where: str) -> tuple[float, ...]:
    """One scale for each adapter; those that are not named count as 0. Raises a 400 naming the place."""
    scales = [0.0] * len(model.adapters)
    for n, each in enumerate(wanted):
        if each.id >= len(scales):
            path = f"{where}[{n}].id"
            raise invalid(f"{path}: there is no adapter {each.id}; this model has {len(scales)}", path)
        scales[each.id] = each.scale
    return tuple(scales)
