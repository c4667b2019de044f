"""Digests of programs: two are equal if and only if their programs compute, or keep, the same.

Fields are tagged and preceded by their length, so that no two programs make the same bytes before they are hashed.
A digest has no names and no weights in it: a file's SHA-256 identifies the weights.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Collection, Iterable
from typing import Any

import numpy as np

from llamay_models.plan.records import Program
from llamay_models.plan.table import memories, operation

_VERSION = b"llamay operations 1"


def digest_operations(program: Program, told_elsewhere: Collection[str] = ()) -> bytes:
    """Return a SHA-256 of a program's operations, their arguments and their attributes.

    The program must not be fused, since fusion changes the list and not the results. An attribute with its
    default value leaves no trace, so new optional attributes do not change stored digests.
    The attributes of the operations in `told_elsewhere` are left out: the caller compares them under other names.
    """
    total = _Digest(_VERSION)
    for record in program.records:
        total.field(b"op", record.op.encode())
        for value in record.args:
            total.field(b"arg", _number(value))
        for value in record.outs:
            total.field(b"out", _number(value) + _number(program.widths[value]))
        total.field(b"weights", _number(len(record.weights)))
        if record.op not in told_elsewhere:
            attrs = operation(record.op).recorded(record.attrs)
            for name in sorted(attrs):
                total.field(b"attr " + name.encode(), _value(attrs[name]))
    return total.bytes()


def digest_memories(program: Program) -> bytes:
    """Return a SHA-256 of the values that the program's operations keep of each layer, in order of the layers."""
    total = _Digest(b"llamay memories 1")
    for m in sorted(memories(program), key=lambda m: (m.layer, m.kind, m.v_dim)):
        total.field(b"kind", m.kind.encode())
        for size in (m.layer, m.heads, m.k_dim, m.v_dim, m.window):
            total.field(b"size", _number(size))
    return total.bytes()


class _Digest:
    def __init__(self, version: bytes) -> None:
        self._total = hashlib.sha256()
        self.field(b"version", version)

    def field(self, tag: bytes, value: bytes) -> None:
        self._total.update(b"%s:%d:" % (tag, len(value)))
        self._total.update(value)

    def bytes(self) -> bytes:
        return self._total.digest()


def _number(value: int) -> bytes:
    return struct.pack("<q", value)


def _value(value: Any) -> bytes:
    """Return the bytes of an attribute, preceded by its kind."""
    if isinstance(value, str):
        return b"text " + value.encode()
    if isinstance(value, int | np.integer):
        return b"whole " + _number(int(value))
    if isinstance(value, float | np.floating):
        return b"real " + struct.pack("<d", value)
    return b"list " + b"".join(_entries(value))


def _entries(values: Iterable[Any]) -> Iterable[bytes]:
    for value in values:
        entry = _value(value)
        yield _number(len(entry)) + entry
