"""Request bodies: strict JSON into the struct of a route."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from llamay_server.http.errors import invalid

if TYPE_CHECKING:
    from litestar import Request

T = TypeVar("T")

_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


async def read_json(request: Request[Any, Any, Any], kind: type[T]) -> T:
    """Return the body as `kind`, whatever its Content-Type says. Raises a 400 that names the field."""
    return decode_json(await request.body(), kind)


def decode_json(data: bytes, kind: type[T]) -> T:
    """Decode strictly: no coercion, no NaN, no lone surrogate, bounded depth. Raises a 400 that names the field."""
    if not data.strip():
        raise invalid("missing request body", code="missing_body")
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.json.Decoder(kind)
    try:
        value: T = decoder.decode(data)
    except msgspec.ValidationError as e:
        text, _, path = str(e).partition(" - at `")
        param = path.rstrip("`").removeprefix("$.").removeprefix("$") or None
        if field := re.fullmatch("Object missing required field `(.+)`", text):
            param = f"{param}.{field[1]}" if param else field[1]
            raise invalid(f"{param}: it is missing", param, "missing_required_parameter") from None
        raise invalid(f"{param or 'body'}: {text}", param, "invalid_type") from None
    except msgspec.DecodeError as e:
        raise invalid(f"The body is not valid JSON: {e}", code="invalid_json") from None
    except UnicodeDecodeError:
        raise invalid("The body is not valid UTF-8.", code="invalid_json") from None
    except RecursionError:
        raise invalid("The body is nested too deeply.", code="invalid_json") from None
    return value


def boolean(given: Mapping[str, Any], name: str, where: str) -> bool | None:
    """Return the boolean `name` of an object without a struct; None where it is absent.

    Raises a 400 for any other value: a number or a text that is taken for true or false is a mistake of the client.
    """
    value = given.get(name)
    if value is None or isinstance(value, bool):
        return value
    raise invalid(f"{where}.{name}: it must be true or false", f"{where}.{name}", "invalid_type")


def mapping(given: Mapping[str, Any], name: str, where: str) -> Mapping[str, Any]:
    """Return the object `name` of an object without a struct; an empty one where it is absent.

    Raises a 400 for any other value.
    """
    value = given.get(name)
    if value is None:
        return {}
    if isinstance(value, dict):
        return value
    raise invalid(f"{where}.{name}: it must be an object", f"{where}.{name}", "invalid_type")
