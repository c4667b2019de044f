# mypy: disable-error-code="import-not-found,import-untyped,misc,no-any-return,unused-ignore"
"""The states of llama-cpp-python: which tokens they hold, and their bytes in a file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

import numpy as np
from llama_cpp.llama import LlamaState

UNUSED = -1
"""The token id after the tokens that a state holds."""


def digest(tokens: np.ndarray) -> bytes:
    """SHA-256 of token ids."""
    return hashlib.sha256(tokens.astype("<i4").tobytes()).digest()


def ids(key: Sequence[int]) -> np.ndarray:
    """Return token ids as an array."""
    return np.asarray(key, np.int32)


def held(state: LlamaState) -> np.ndarray:
    """Return the tokens that a state holds."""
    return np.ascontiguousarray(state.input_ids[: state.n_tokens], np.int32)


def without_stale_ids(state: LlamaState, *, scores: bool) -> LlamaState:
    """Return the state with nothing behind its tokens, and without scores unless they are wanted."""
    ids = np.array(state.input_ids)
    ids[state.n_tokens :] = UNUSED
    return LlamaState(
        input_ids=ids,
        scores=state.scores if scores else np.broadcast_to(np.float32(0), state.scores.shape),
        n_tokens=state.n_tokens,
        llama_state=state.llama_state,
        llama_state_size=state.llama_state_size,
        seed=state.seed,
    )


def encode(state: LlamaState) -> bytes:
    """Return a state's bytes; its tokens are kept apart."""
    kept = not (state.scores.strides and not any(state.scores.strides))
    scores = np.ascontiguousarray(state.scores) if kept else None
    about = {
        "ids": len(state.input_ids),
        "seed": int(state.seed),
        "scores": None if scores is None else scores.dtype.str,
        "shape": list(state.scores.shape),
        "size": int(state.llama_state_size),
    }
    head = json.dumps(about).encode()
    parts = [len(head).to_bytes(4, "little"), head, b"" if scores is None else scores.tobytes()]
    return b"".join([*parts, state.llama_state])


def decode(payload: memoryview, tokens: np.ndarray) -> LlamaState:
    """Return the state of bytes and tokens. ValueError if they are none."""
    n = int.from_bytes(payload[:4], "little")
    about = json.loads(bytes(payload[4 : 4 + n]))
    at, shape = 4 + n, tuple(about["shape"])
    scores: np.ndarray = np.broadcast_to(np.float32(0), shape)
    if about["scores"] is not None:
        dtype = np.dtype(about["scores"])
        end = at + dtype.itemsize * int(np.prod(shape))
        scores, at = np.frombuffer(payload[at:end], dtype).reshape(shape), end
    ids = np.full(about["ids"], UNUSED, np.intc)
    ids[: len(tokens)] = tokens
    raw = bytes(payload[at:])
    if len(raw) != about["size"]:
        raise ValueError("a state of another length")
    return LlamaState(
        input_ids=ids,
        scores=scores,
        n_tokens=len(tokens),
        llama_state=raw,
        llama_state_size=len(raw),
        seed=about["seed"],
    )
