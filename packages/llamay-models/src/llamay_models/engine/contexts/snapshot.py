"""Saving a context, and restoring it so that it continues exactly.

llamay_kv writes tokens and K/V. Everything else that decides how a context continues is stored beside them as side
state: the logits after the last token, the sampling with its seed, the random stream, and the mu of mirostat.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import numpy as np

import llamay_kv
from llamay_models.engine.contexts.protocols import ContextModel
from llamay_models.engine.sampling import Sampling
from llamay_models.engine.state.context_state import State
from llamay_models.engine.state.vectors import Vectors, decode_vectors, encode_vectors
from llamay_models.errors import (
    IdentityMismatchError,
    LlamayError,
    NotAllowedError,
    OutOfMemoryError,
    SnapshotError,
)
from llamay_models.progress import Progress

_NAME = "llamay.engine"
_VERSION = 1
_VECTORS = "llamay.vectors"
_INVALID = (ValueError, ArithmeticError, KeyError, TypeError, AttributeError, RecursionError, LlamayError)
"""The errors that reading damaged side state may raise."""


def save(
    model: ContextModel,
    state: State,
    path: str | os.PathLike[str],
    progress: Progress | None,
    key: llamay_kv.Key | None = None,
) -> None:
    """Write a context whose logits are known."""
    total = _bytes(state.kv)
    vfs = _Counting(lambda done: progress("saving", min(done, total), total)) if progress else None
    try:
        side = {_NAME: (_VERSION, _encode(state))}
        if state.vectors:
            side[_VECTORS] = (_VERSION, encode_vectors(state.vectors))
        state.kv.save(path, identity=model.identity, side=side, key=key, vfs=vfs)
    except (OSError, ValueError) as error:
        raise SnapshotError(f"the context cannot be saved to {os.fspath(path)}: {_reason(error)}") from error
    if progress:
        progress("saving", total, total)


def restore(
    model: ContextModel, path: str | os.PathLike[str], progress: Progress | None, **allowed: Any
) -> State:
    """Return the state in a file. If the file is refused, nothing of it stays in memory."""
    name = os.fspath(path)
    try:
        total = Path(name).stat().st_size
        vfs = _Counting(lambda done: progress("restoring", min(done, total), total)) if progress else None
        cache = model.pool.restore(path, identity=model.identity, vfs=vfs, **allowed)
    except llamay_kv.IdentityMismatchError as error:
        raise _mismatch(name, error) from error
    except llamay_kv.NotAllowedError as error:
        raise NotAllowedError(str(error), path=error.path, part=error.part, reason=error.reason) from error
    except llamay_kv.SnapshotError as error:
        raise SnapshotError(str(error), path=error.path, part=error.part, reason=error.reason) from error
    except llamay_kv.OutOfPagesError as error:
        raise OutOfMemoryError(f"no K/V memory is left for the snapshot {name}: {error}") from error
    except OSError as error:
        raise SnapshotError(f"the snapshot {name} cannot be read: {_reason(error)}") from error
    try:
        return _state(model, cache, name)
    except BaseException:
        cache.close()
        raise


def _state(model: ContextModel, cache: llamay_kv.Context, path: str) -> State:
    n = len(cache)
    if n > model.context_size:
        raise SnapshotError(
            f"{path} holds {n} tokens but contexts hold {model.context_size} here; "
            f"load the model with a larger ctx_size"
        )
    if any(
        not 0 <= t < model.vocab_size and (t >= 0 or cache.pool.digest_of(t) is None) for t in cache.tokens
    ):
        raise SnapshotError(f"{path} holds a token that is outside the vocabulary of {model.vocab_size}")
    state = State(cache)
    state.has_vectors = any(t < 0 for t in cache.tokens)
    if _VECTORS in cache.side:
        state.vectors = _vectors(model, cache, path)
    version, data = cache.side.get(_NAME, (_VERSION, b""))
    if version == _VERSION and data:
        _decode(state, data, model.vocab_size, path)
    elif n:
        state.forget_logits()  # saved by a program that keeps no logits
    return state


def _vectors(model: ContextModel, cache: llamay_kv.Context, path: str) -> tuple[Vectors, ...]:
    """Return the saved vectors. Raises SnapshotError if they are not those that the context's rows stand for."""
    try:
        version, data = cache.side[_VECTORS]
        if version != _VERSION:
            raise ValueError(f"a version of {version}")
        return decode_vectors(data, cache, model.engine.vectors)
    except _INVALID as error:
        raise SnapshotError(f"{path}: its vectors are not valid: {error}") from error


def _bytes(cache: llamay_kv.Context) -> int:
    """Return about how many bytes a context takes in a file."""
    layout = cache.pool.layout
    states = sum(group.state_bytes for group in layout.groups)
    return layout.position_bytes * len(cache) + states * (len(cache.checkpoints) + 1)


def _encode(state: State) -> bytes:
    """Return a line of JSON, then the logits as little-endian float32.

    Floats are in hexadecimal: exact, and infinities are no trouble.
    """
    assert state.logits is not None
    fields = None
    if state.sampling is not None:
        fields = asdict(state.sampling)
        fields["logit_bias"] = [[t, float(b)] for t, b in state.sampling.logit_bias.items()]
    head = {"sampling": _hexed(fields), "stream": state.random_stream, "vocab": len(state.logits)}
    if state.mirostat is not None:
        head["mirostat"] = _hexed(list(state.mirostat))
    return json.dumps(head, sort_keys=True).encode() + b"\n" + state.logits.astype("<f4").tobytes()


def _decode(state: State, data: bytes, vocab: int, path: str) -> None:
    try:
        line, _, raw = data.partition(b"\n")
        head = json.loads(line)
        fields = _unhexed(head["sampling"])
        if fields is not None:
            fields["logit_bias"] = {int(t): b for t, b in fields["logit_bias"]}
            state.sampling = Sampling(**fields)
        stream = head["stream"]
        if not isinstance(stream, int) or not 0 <= stream < 1 << 32:
            raise ValueError(f"a random stream of {stream!r}")
        state.random_stream = stream
        if "mirostat" in head:
            version, tau, eta, mu = _unhexed(head["mirostat"])
            if version not in (1, 2) or not all(
                isinstance(x, float) and abs(x) < 1e9 for x in (tau, eta, mu)
            ):
                raise ValueError(f"a mirostat of {version!r}, {tau!r}, {eta!r}, {mu!r}")
            state.mirostat = (version, tau, eta, mu)
        if head["vocab"] != vocab or len(raw) != 4 * vocab:
            raise ValueError(f"{len(raw)} bytes of logits for a vocabulary of {vocab}")
        state.logits = np.frombuffer(raw, "<f4").astype(np.float32)
    except _INVALID as error:
        raise SnapshotError(f"{path}: the engine's side state is not valid: {error}") from error


def _hexed(value: Any) -> Any:
    if isinstance(value, float):
        return {"f": value.hex()}
    if isinstance(value, dict):
        return {k: _hexed(v) for k, v in value.items()}
    return [_hexed(v) for v in value] if isinstance(value, list | tuple) else value


def _unhexed(value: Any) -> Any:
    if isinstance(value, dict):
        return (
            float.fromhex(value["f"]) if set(value) == {"f"} else {k: _unhexed(v) for k, v in value.items()}
        )
    return [_unhexed(v) for v in value] if isinstance(value, list) else value


def _mismatch(path: str, error: llamay_kv.IdentityMismatchError) -> IdentityMismatchError:
    return IdentityMismatchError(
        f"{path} was made with another {error.field} ({error.stored}, not {error.wanted}); "
        f"load the model and settings it was made with",
        error.field,
        error.stored,
        error.wanted,
        path=path,
    )


def _reason(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


class _Counting(llamay_kv.LocalVfs):
    """A file system that reports how many bytes were read or written."""

    def __init__(self, tell: Callable[[int], None]) -> None:
        super().__init__()
        self._tell = tell

    def open(self, path: str) -> llamay_kv.File:
        return _CountedFile(super().open(path), self._tell)

    def create(self, path: str) -> llamay_kv.File:
        return _CountedFile(super().create(path), self._tell)


class _CountedFile:
    def __init__(self, file: llamay_kv.File, tell: Callable[[int], None]) -> None:
        self._file, self._tell, self._done = file, tell, 0

    def size(self) -> int:
        return self._file.size()

    def read_into(self, buffers: Sequence[memoryview], offset: int) -> int:
        return self._count(self._file.read_into(buffers, offset))

    def append(self, buffers: Sequence[bytes | bytearray | memoryview]) -> None:
        self._file.append(buffers)
        self._count(sum(memoryview(b).nbytes for b in buffers))

    def sync(self) -> None:
        self._file.sync()

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _count(self, n: int) -> int:
        self._done += n
        self._tell(self._done)
        return n
