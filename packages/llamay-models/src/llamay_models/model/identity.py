"""`kv_identity`: everything that a model's K/V depends on, as the fields that snapshots store and compare."""

from __future__ import annotations

import hashlib

import llamay_kv
from llamay_models.model.parts import Parts
from llamay_models.plan import Program, digest_memories, digest_operations

# Architectures of which there are snapshots without operations, layer kinds and device. A change of an architecture's
# operations or layers removes it from here.
_FIRST = frozenset({"gemma3", "gpt2", "llama", "qwen2", "qwen3"})


def kv_identity(parts: Parts, sha256: str) -> llamay_kv.Identity:
    """Return the identity of the K/V of a model of these parts; `sha256` is its file's, in hexadecimal.

    PrefixCache in memory and on disk are found under all of its fields. Snapshots of the first form, which lack the
    operations, the kinds of layers and the device, are restored where all their fields agree: the fields that they
    lack had the values of today.
    """
    added: dict[str, bytes | str] = {
        "operations": digest_operations(parts.base, told_elsewhere=("rope", "attention")),
        "layer_kinds": digest_memories(parts.base),
        "device": parts.backend.device,
    }
    whole = llamay_kv.Identity(
        **added,
        weights=bytes.fromhex(sha256),
        architecture=parts.architecture,
        arithmetic=parts.backend.arithmetic,
        precision=parts.precision,
        dequantized=parts.dequantized,
        rope=_digest(parts.program, "rope", "rope_norm"),
        attention=_digest(parts.program, "attention"),
        tokenizer=parts.tokenizer.digest() if parts.tokenizer is not None else None,
        **_of_adapters(parts),
    )
    return whole.implying({**added, "device": "cpu"}) if parts.architecture in _FIRST else whole


def _of_adapters(parts: Parts) -> dict[str, bytes]:
    """Return no field without adapters, so that snapshots from before there were adapters stay valid."""
    if not parts.adapters:
        return {}
    from llamay_models.adapters import identity_fields

    return identity_fields(parts.adapters)


def _digest(program: Program, *ops: str) -> bytes:
    """Return the digest of the attributes of these operations by layer: frequencies, factors, windows, scales."""
    total = hashlib.sha256()
    for record in program.records:
        if record.op in ops:
            for key in sorted(record.attrs):
                value = record.attrs[key]
                raw = value.tobytes() if hasattr(value, "tobytes") else repr(value).encode()
                total.update(f"{key}:{len(raw)}:".encode() + raw)
    return total.digest()
