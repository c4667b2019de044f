"""Schemas that mean the same for an object in JSON and for arguments between tags."""

from __future__ import annotations

from typing import Any

OBJECTS: dict[str, Any] = {
    "few names": {
        "type": "object",
        "patternProperties": {"^[ab]$": {"const": 0}},
        "properties": {"a": True},
        "additionalProperties": False,
        "minProperties": 2,
    },
    "if then else": {
        "type": "object",
        "properties": {"kind": {"enum": ["a", "b"]}, "x": {}},
        "required": ["kind"],
        "additionalProperties": False,
        "if": {"properties": {"kind": {"const": "a"}}},
        "then": {"properties": {"x": {"type": "integer"}}, "required": ["x"]},
        "else": {"properties": {"x": {"type": "string"}}},
    },
}
