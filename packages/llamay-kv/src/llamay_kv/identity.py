"""Identities: everything beside the tokens that K/V depends on."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from numbers import Integral
from struct import pack

from llamay_kv import arguments
from llamay_kv.errors import IdentityMismatchError

Value = str | bytes | int | float | bool | None

_DOMAIN = b"llamay identity 1\0"


def _encode(value: Value) -> bytes:
    """Encode a value as its type tag and its bytes, so that no two values of any type are alike."""
    match value:
        case None:
            return b"n"
        case bool():
            return b"b" + bytes([value])
        case int():
            return b"i" + str(value).encode()
        case float():
            return b"f" + pack("<d", value)
        case str():
            return b"s" + value.encode()
        case bytes():
            return b"x" + value


class Identity:
    """Named fields, hashed as tagged, length-prefixed pairs in the order of their names.

    Everything beside the tokens on which K/V depends belongs in an identity: `weights` (SHA-256 of the
    file), `adapter` and `adapter_scale`, `rope_base`, `rope_scaling`, `rope_factors`, `window`,
    `precision`, `arithmetic` (version of the numeric contract), `operations`, `layer_kinds`, `device`,
    `tokenizer`, `media`, `tenant`. The names are the caller's; a field that one of two identities lacks
    makes them differ, but see `implying`.

    >>> Identity(weights=b"...", rope_base=10000.0).difference(Identity(weights=b"...", rope_base=500000.0))
    'rope_base'
    """

    __slots__ = ("_digest", "_fields", "_implied")

    def __init__(self, fields: Mapping[str, Value] | None = None, /, **more: Value) -> None:
        merged: dict[str, Value] = {**arguments.mapping("fields", fields or {}), **more}
        for name, value in merged.items():
            arguments.text("fields: a name", name)
            if isinstance(value, Integral) and not isinstance(value, int):
                merged[name] = int(value)
            elif not isinstance(value, Value):
                arguments.refuse(f"the field {name!r}", "str, bytes, int, float, bool or None", value)
        self._fields = {name: merged[name] for name in sorted(merged)}
        self._implied: dict[str, Value] = {}
        self._digest = hashlib.sha256(self.encode()).digest()

    @property
    def fields(self) -> dict[str, Value]:
        """A copy of the fields, in the order of their names."""
        return dict(self._fields)

    @property
    def digest(self) -> bytes:
        """SHA-256 over `encode()`."""
        return self._digest

    def encode(self) -> bytes:
        """Return the bytes that are hashed.

        The words "llamay identity 1" and a zero byte, then for each field the name and the value, each as a
        32-bit little-endian length and its bytes; a value begins with its type tag.
        """
        parts = [_DOMAIN]
        for name, value in self._fields.items():
            for item in (name.encode(), _encode(value)):
                parts += [pack("<I", len(item)), item]
        return b"".join(parts)

    def stored_as(self, precision: str) -> Identity:
        """Return the identity of state that was converted to a precision when it was saved: the field `payload`.

        Converted state never counts as the computed one: it is found under this identity only.
        """
        return Identity(self._fields, payload=arguments.text("precision", precision)).implying(self._implied)

    def implying(self, fields: Mapping[str, Value] | None = None, /, **more: Value) -> Identity:
        """Return the same identity, which also matches older snapshots that lack some of its fields.

        Args:
            fields: by name, the value that a stored identity without the field stands for. A stored value takes
                precedence.
            more: further such fields.

        Only `require`, and so `Pool.restore`, uses implied values: the digest covers all fields, so that a prefix tree
        and a disk cache find entries of exactly this identity. Raises ValueError for a field that this identity lacks.

        """
        implied = {**self._implied, **Identity(fields, **more)._fields}
        if foreign := sorted(implied.keys() - self._fields.keys()):
            raise ValueError(f"the identity has no field {foreign[0]!r} that could be implied")
        same = Identity(self._fields)
        same._implied = implied
        return same

    def difference(self, other: Identity) -> str | None:
        """Name the first field in which the two differ, None if they do not."""
        arguments.instance("other", other, Identity)
        for name in sorted({*self._fields, *other._fields}):
            ours, theirs = self._fields.get(name, ...), other._fields.get(name, ...)
            if ours is ... or theirs is ... or _encode(ours) != _encode(theirs):
                return name
        return None

    def require(self, stored: Identity, *, path: str | None = None) -> None:
        """Raise IdentityMismatchError, naming the field, unless `stored` is equal, after implied values are filled in.

        `path` is the file with the stored identity, for the message.
        """
        arguments.instance("stored", stored, Identity)
        if self._implied.keys() - stored._fields.keys():
            stored = Identity({**self._implied, **stored._fields})
        name = self.difference(stored)
        if name is not None:
            raise IdentityMismatchError(path, name, stored._show(name), self._show(name))

    def _show(self, name: str) -> str:
        if name not in self._fields:
            return "none"
        value = self._fields[name]
        return value.hex() if isinstance(value, bytes) else repr(value)

    def to_json(self) -> dict[str, str | None]:
        """Return the fields as strings with a type tag, as manifests store them."""
        encoded = {name: _encode(value) for name, value in self._fields.items()}
        return {
            name: None
            if raw == b"n"
            else f"{chr(raw[0])}:{raw[1:].decode() if raw[:1] in b'si' else raw[1:].hex()}"
            for name, raw in encoded.items()
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, object]) -> Identity:
        """Return the identity that `to_json` wrote. ValueError if it did not."""
        return cls({name: _decode(name, text) for name, text in arguments.mapping("fields", fields).items()})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and self._digest == other._digest

    def __hash__(self) -> int:
        return hash(self._digest)

    def __repr__(self) -> str:
        return f"Identity({', '.join(f'{name}={self._show(name)}' for name in self._fields)})"


def _decode(name: str, text: object) -> Value:
    if text is None:
        return None
    if isinstance(text, str) and text[1:2] == ":":
        tag, raw = text[0], text[2:]
        match tag:
            case "s":
                return raw
            case "i":
                return int(raw)
            case "x":
                return bytes.fromhex(raw)
            case "f" if len(raw) == 16:
                return _unpack_double(raw)
            case "b" if raw in ("00", "01"):
                return raw == "01"
    raise ValueError(f"identity field {name!r} is not one that this version writes")


def _unpack_double(raw: str) -> float:
    from struct import unpack

    (value,) = unpack("<d", bytes.fromhex(raw))
    return float(value)
