"""What the writer stores is what the reader, ours and the reference's, gives back."""

from __future__ import annotations

import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llamay_models import gguf

KEYS = st.text(string.ascii_lowercase + "._", min_size=1, max_size=20).map("x.".__add__)
VALUES = st.one_of(
    st.booleans(),
    st.integers(-(1 << 63), (1 << 64) - 1),
    st.floats(width=32, allow_nan=False),
    st.text(max_size=20),
    st.lists(st.text(max_size=5), min_size=1, max_size=5),
    st.lists(st.integers(-5, 5), min_size=1, max_size=5),
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=2000)
@given(
    metadata=st.dictionaries(KEYS, VALUES, max_size=6),
    shapes=st.lists(st.lists(st.integers(0, 5), max_size=4).map(tuple), max_size=4),
    alignment=st.sampled_from([1, 8, 32, 64, 4096]),
)
def test_round_trip(
    tmp_path: Path, metadata: dict[str, Any], shapes: list[tuple[int, ...]], alignment: int
) -> None:
    rng = np.random.default_rng(0)
    arrays = {f"t{i}": rng.standard_normal(s).astype(np.float32) for i, s in enumerate(shapes)}
    path = tmp_path / "x.gguf"
    gguf.write(
        path,
        metadata,
        [gguf.TensorData(n, "F32", a.shape, np.asarray(a)) for n, a in arrays.items()],
        alignment=alignment,
    )
    file = gguf.open(path)
    assert file.alignment == alignment
    for key, value in metadata.items():
        found = file.metadata[key]
        assert (found.tolist() if isinstance(found, np.ndarray) else found) == value
    for name, array in arrays.items():
        assert file.tensors[name].shape == array.shape
        assert file.tensors[name].data.tobytes() == array.tobytes()


def test_the_reference_reader_reads_what_we_write(tmp_path: Path) -> None:
    reference = pytest.importorskip("gguf")
    path = tmp_path / "x.gguf"
    blocks = np.arange(2 * 34, dtype=np.uint8)
    gguf.write(
        path, {"general.architecture": "llama", "n": 3}, [gguf.TensorData("w", "Q8_0", (2, 32), blocks)]
    )
    reader = reference.GGUFReader(path)
    assert reader.fields["n"].contents() == 3
    assert reader.tensors[0].tensor_type.name == "Q8_0"
    assert reader.tensors[0].data.tobytes() == blocks.tobytes()


def test_tensors_are_written_piece_by_piece(tmp_path: Path) -> None:
    alive = 0

    def pieces() -> Iterator[bytes]:
        nonlocal alive
        for i in range(4):
            alive += 1
            yield bytes([i]) * 16

    path = tmp_path / "x.gguf"
    gguf.write(path, {}, [gguf.TensorData("a", "I8", (4, 16), pieces)])
    assert alive == 4
    assert gguf.open(path).tensors["a"].data.reshape(4, 16)[:, 0].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("metadata", "tensors", "words"),
    [
        ({"": 1}, [], "key is empty"),
        ({"k": []}, [], "empty list"),
        ({"k": {"a": 1}}, [], "type dict"),
        ({"k": [1, "a"]}, [], "type list"),
        ({"k": 1 << 64}, [], "beyond 64 bits"),
        ({"k": np.zeros((2, 2), np.float32)}, [], "type ndarray"),
        ({"general.alignment": 64}, [], "contradicts"),
        ({}, [gguf.TensorData("n" * 64, "F32", (1,), bytes(4))], "longer than 63"),
        ({}, [gguf.TensorData("a", "F32", (1,), bytes(4))] * 2, "used twice"),
        ({}, [gguf.TensorData("a", "Q9", (1,), bytes(4))], "unknown format 'Q9'"),
        ({}, [gguf.TensorData("a", "F32", (1, 1, 1, 1, 1), bytes(4))], "5 dimensions"),
        ({}, [gguf.TensorData("a", "F32", (2,), bytes(4))], "takes 8 bytes as F32, but 4 were given"),
        ({}, [gguf.TensorData("a", "F32", (2,), bytes(12))], "but at least 12 were given"),
        ({}, [gguf.TensorData("a", "Q8_0", (33,), bytes(34))], "blocks of 32"),
    ],
)
def test_what_cannot_be_stored_is_refused_and_leaves_no_file(
    tmp_path: Path, metadata: dict[str, Any], tensors: list[gguf.TensorData], words: str
) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(b"what was there")
    with pytest.raises(gguf.GGUFError, match=words):
        gguf.write(path, metadata, tensors)
    assert [p.name for p in tmp_path.iterdir()] == ["x.gguf"]
    assert path.read_bytes() == b"what was there"
