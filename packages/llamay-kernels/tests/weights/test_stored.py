"""Packed weights in files: read back as they were, or refused."""

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llamay_kernels import FORMATS, PACKED_LAYOUT, Threads, Weight


def some(kind: str, rows: int = 40, blocks: int = 3, seed: int = 0) -> Weight:
    """Return a weight of random bytes, which are a weight in any format."""
    block, size = FORMATS[kind]
    cols = blocks * max(block, 32)
    data = np.random.default_rng(seed).integers(0, 256, rows * cols // block * size, dtype=np.uint8)
    return Weight(data.tobytes(), kind, rows, cols, name="w")


def read(path: Path, weight: Weight, *, offset: int = 0, checksum: int | None = None) -> Weight:
    """Read a weight from a file."""
    checksum = weight.checksum() if checksum is None else checksum
    with path.open("rb") as file:
        return Weight.read_packed(
            file.fileno(), offset, weight.format, weight.rows, weight.cols, checksum, name=weight.name
        )


@pytest.mark.parametrize("kind", sorted(FORMATS))
def test_a_packed_weight_is_read_back_bit_for_bit(kind: str, tmp_path: Path) -> None:
    weight = some(kind)
    assert weight.packed.nbytes == weight.nbytes
    assert not weight.packed.flags.writeable
    path = tmp_path / "w"
    path.write_bytes(b"x" * 100 + weight.packed.tobytes() + b"more")
    again = read(path, weight, offset=100)
    assert np.array_equal(again.packed, weight.packed)
    assert (again.name, again.format, again.rows, again.cols) == ("w", kind, 40, weight.cols)


def test_pieces_and_threads_do_not_change_the_checksum(tmp_path: Path) -> None:
    weight = some("Q8_0", rows=2048, blocks=40)  # several pieces
    checksum = weight.checksum()
    path = tmp_path / "w"
    path.write_bytes(weight.packed.tobytes())
    for count in (1, 2, 3):
        threads = Threads(count)
        assert weight.checksum(threads) == checksum
        with path.open("rb") as file:
            again = Weight.read_packed(
                file.fileno(), 0, "Q8_0", weight.rows, weight.cols, checksum, threads=threads
            )
        assert np.array_equal(again.packed, weight.packed)


@settings(deadline=None)  # it writes files
@given(st.data())
def test_a_changed_bit_is_noticed(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    weight = some("Q4_K", rows=16, blocks=2)
    damaged = bytearray(weight.packed.tobytes())
    bit = data.draw(st.integers(0, 8 * len(damaged) - 1))
    damaged[bit // 8] ^= 1 << bit % 8
    path = tmp_path_factory.getbasetemp() / "damaged"
    path.write_bytes(damaged)
    with pytest.raises(ValueError, match="'w': its packed bytes are not those that were written"):
        read(path, weight)


def test_swapped_pieces_are_noticed(tmp_path: Path) -> None:
    weight = some("Q8_0", rows=2048, blocks=40)
    data = weight.packed.tobytes()
    piece = 1 << 19
    path = tmp_path / "w"
    path.write_bytes(data[piece : 2 * piece] + data[:piece] + data[2 * piece :])
    with pytest.raises(ValueError, match="not those that were written"):
        read(path, weight)


def test_what_cannot_be_read_is_one_clear_error(tmp_path: Path) -> None:
    weight = some("Q8_0")
    path = tmp_path / "w"
    path.write_bytes(weight.packed.tobytes()[:-1])
    with pytest.raises(ValueError, match="the file ends within its packed bytes"):
        read(path, weight)
    with pytest.raises(ValueError, match="the file ends within"):
        read(path, weight, offset=1 << 40)
    with pytest.raises(ValueError, match="the offset is too large"):
        read(path, weight, offset=1 << 63)
    number = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(ValueError, match="cannot be read"):
            Weight.read_packed(number, 0, "Q8_0", 16, 32, 0)
    finally:
        os.close(number)
    with pytest.raises(ValueError, match="cols must be a multiple of 32"):
        Weight.read_packed(0, 0, "Q8_0", 16, 31, 0)
    with pytest.raises(ValueError, match="rows and cols must be at least 1"):
        Weight.read_packed(0, 0, "Q8_0", 0, 32, 0)


def test_a_view_outlives_its_weight() -> None:
    weight = some("Q4_0")
    packed, copy = weight.packed, weight.packed.copy()
    del weight
    assert np.array_equal(packed, copy)


def test_the_layout_has_a_version() -> None:
    assert isinstance(PACKED_LAYOUT, int)
