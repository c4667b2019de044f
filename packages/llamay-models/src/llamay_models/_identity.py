"""What a model's K/V depends on, as the fields that snapshots store and compare."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import llamay_kv
from llamay_models.plan import Program

if TYPE_CHECKING:
    from llamay_models.model import Model, Parts


def identity(model: Model, parts: Parts) -> llamay_kv.Identity:
    """Return the identity of what this model computes. Reads the whole file once, for its SHA-256."""
    return llamay_kv.Identity(
        weights=bytes.fromhex(model.sha256),
        architecture=parts.architecture,
        arithmetic=parts.backend.arithmetic,
        precision=parts.precision,
        dequantized=parts.dequantized,
        rope=_digest(parts.program, "rope", "rope_norm"),
        attention=_digest(parts.program, "attention"),
        tokenizer=parts.tokenizer.digest() if parts.tokenizer is not None else None,
        **_of_adapters(parts),
    )


def _of_adapters(parts: Parts) -> dict[str, bytes]:
    """Nothing at all without adapters: what was stored before there were any stays good."""
    if not parts.adapters:
        return {}
    from llamay_models.adapters import identity_fields

    return identity_fields(parts.adapters)


def _digest(program: Program, *ops: str) -> bytes:
    """Of the attributes of these operations, layer by layer: frequencies, factors, windows, scales."""
    total = hashlib.sha256()
    for record in program.records:
        if record.op in ops:
            for key in sorted(record.attrs):
                value = record.attrs[key]
                raw = value.tobytes() if hasattr(value, "tobytes") else repr(value).encode()
                total.update(f"{key}:{len(raw)}:".encode() + raw)
    return total.digest()
