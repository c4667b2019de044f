"""SHA-256 of files that are read or copied, with progress."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO

_CHUNK = 1 << 20


def chunks_of(file: BinaryIO) -> Iterator[bytes]:
    """Yield the rest of a file, at most 1 MiB at a time."""
    while chunk := file.read(_CHUNK):
        yield chunk


def sha256_of(chunks: Iterable[bytes], report: Callable[[int], None], copy_to: BinaryIO | None = None) -> str:
    """Return the SHA-256 of all chunks together, in hex; each is written to `copy_to` where there is one.

    After each chunk `report` gets the number of bytes so far.
    """
    digest, done = hashlib.sha256(), 0
    for chunk in chunks:
        digest.update(chunk)
        if copy_to is not None:
            copy_to.write(chunk)
        done += len(chunk)
        report(done)
    return digest.hexdigest()
