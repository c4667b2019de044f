"""Descriptions of models to be created, as the body of POST /api/create has them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from llamay_server.http.errors import ApiError, invalid
from llamay_server.ollama.messages import read_messages
from llamay_server.ollama.schema import OllamaMessage, Options
from llamay_server.store import Recipe

_DIGEST = re.compile(r"sha256[:-]([0-9a-f]{64})")
_MAX_PROFILE = 512 << 10


class CreateRequest(Struct, kw_only=True):
    """Body of POST /api/create."""

    model: str | None = None
    name: str | None = None
    from_: str | None = msgspec.field(default=None, name="from")
    files: dict[str, str] | None = None
    adapters: dict[str, str] | None = None
    template: str | None = None
    system: str | None = None
    license: str | list[str] | None = None
    parameters: dict[str, Any] | None = None
    messages: Annotated[list[OllamaMessage], Meta(max_length=1000)] | None = None
    quantize: str | None = None
    quantization: str | None = None
    modelfile: str | None = None
    stream: bool | None = None


class RecipeError(ValueError):
    """A description of a model that cannot be created; the message names the field."""


def read_recipe(body: Mapping[str, Any]) -> Recipe:
    """Return the checked recipe of a body of `/api/create`. Raises `RecipeError`."""
    try:
        return recipe_of(msgspec.convert(dict(body), CreateRequest))
    except msgspec.ValidationError as e:
        raise RecipeError(str(e).replace("`$.", "`")) from None
    except ApiError as e:
        raise RecipeError(e.message) from None


def recipe_of(data: CreateRequest) -> Recipe:
    """Return the checked recipe of a request. Raises a 400 naming the field."""
    if data.modelfile:
        raise invalid("modelfile: not supported here; send from or files", "modelfile")
    if bool(data.from_) == bool(data.files):
        raise invalid("send either from (a model) or files (uploaded GGUF files)", "from")
    files, adapters = (
        {
            _file_name(name, field): digest_of(digest, f"{field}.{name[:60]}")
            for name, digest in (given or {}).items()
        }
        for field, given in (("files", data.files), ("adapters", data.adapters))
    )
    changes: dict[str, Any] = {}
    if data.template is not None:
        changes["template"] = data.template
    if data.system is not None:
        changes["system"] = data.system
    if data.license is not None:
        changes["license"] = [data.license] if isinstance(data.license, str) else data.license
    if data.parameters is not None:
        changes["parameters"] = _parameters(data.parameters)
    if data.messages is not None:
        read_messages(data.messages)
        changes["messages"] = msgspec.to_builtins(
            [{k: v for k, v in msgspec.structs.asdict(m).items() if v is not None} for m in data.messages]
        )
    if len(msgspec.json.encode(changes)) > _MAX_PROFILE:
        raise invalid(f"template, system, license and messages are longer than {_MAX_PROFILE} bytes together")
    return Recipe(data.from_, files, adapters, data.quantize or data.quantization, changes)


def _parameters(given: Mapping[str, Any]) -> dict[str, Any]:
    values = dict(given)
    if isinstance(values.get("stop"), str):
        values["stop"] = [values["stop"]]
    for name in values:
        if name not in Options.__struct_fields__:
            raise invalid(f"parameters.{name[:60]}: there is no such parameter", f"parameters.{name[:60]}")
    try:
        msgspec.convert(values, Options)
    except msgspec.ValidationError as e:
        text, _, path = str(e).partition(" - at `")
        param = f"parameters{path.rstrip('`').removeprefix('$')}"
        raise invalid(f"{param}: {text}", param) from None
    return values


def _file_name(name: str, field: str) -> str:
    """Return a file name without a folder. Raises a 400 for any other."""
    plain = PurePosixPath(name).name == name and not set(name) & set("/\\:\0") and name.isprintable()
    if not plain or name.startswith(".") or len(name) > 200:
        raise invalid(f"{field}: {name[:60]!r} is no plain file name", field)
    return name


def digest_of(text: str, param: str) -> str:
    """Return the 64 hex digits of `sha256:...`. Raises a 400 that names `param`."""
    if (match := _DIGEST.fullmatch(text)) is None:
        raise invalid(f"{param}: {text[:80]!r} is no digest; write sha256: and 64 hex digits", param)
    return match[1]
