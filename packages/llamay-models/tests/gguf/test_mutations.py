"""Whatever the bytes, the reader gives a FormatError, or a file of which everything can be read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llamay_models import _native, gguf


@pytest.fixture(scope="module")
def seed(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path: Path = tmp_path_factory.mktemp("seed") / "seed.gguf"
    gguf.write(
        path,
        {
            "general.architecture": "llama",
            "a.bool": True,
            "a.float": 1.5,
            "a.u64": np.uint64(1 << 40),
            "tokenizer.ggml.tokens": ["a", "bc", "", "def"],
            "tokenizer.ggml.scores": np.arange(4, dtype=np.float32),
        },
        [
            gguf.TensorData("x", "F32", (3, 4), np.arange(12, dtype=np.float32)),
            gguf.TensorData("y", "Q8_0", (2, 32), bytes(68)),
        ],
    )
    return path.read_bytes()


def walk(data: bytes) -> None:
    """Touch everything that a file offers."""
    try:
        file = _native.File.of_bytes(data)
    except _native.FormatError as error:
        problem, hint, offset = error.args
        assert problem
        assert hint
        assert offset is None or 0 <= offset <= len(data) + 1
        return
    keys = file.keys()
    for key in keys:
        value = file.value(key)
        if isinstance(value, _native.Strings):
            assert len(value.texts()) == len(value)
        file.raw(key).sum()
    for _name, _format, _shape, offset, nbytes in file.tensors():
        file.bytes(offset, nbytes).sum()


@settings(max_examples=400, deadline=1000)
@given(data=st.data())
def test_mutated_files_never_crash_the_reader(seed: bytes, data: st.DataObject) -> None:
    mutated = bytearray(seed)
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(mutated) - 1))
        kind = data.draw(st.sampled_from(["flip", "set", "cut", "insert", "number"]))
        if kind == "flip":
            mutated[at] ^= 1 << data.draw(st.integers(0, 7))
        elif kind == "set":
            mutated[at] = data.draw(st.integers(0, 255))
        elif kind == "cut":
            del mutated[at : at + data.draw(st.integers(1, 9))]
        elif kind == "insert":
            mutated[at:at] = data.draw(st.binary(max_size=9))
        else:
            mutated[at : at + 8] = data.draw(
                st.sampled_from([0, 1, 1 << 31, 1 << 62, 1 << 63, (1 << 64) - 1, (1 << 64) - 32])
            ).to_bytes(8, "little")
        if not mutated:
            break
    walk(bytes(mutated))


@settings(max_examples=200, deadline=1000)
@given(st.binary(max_size=200))
def test_arbitrary_bytes_after_the_magic_never_crash_the_reader(tail: bytes) -> None:
    walk(b"GGUF\3\0\0\0" + tail)
