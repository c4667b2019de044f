"""Files that break the format: each must give one clear error, fast, in little memory.

The classes are those that llama.cpp's own reader is tested with, and more. The bytes are put together here,
without our writer, so that both sides cannot be wrong in the same way.
"""

from __future__ import annotations

import struct
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from llamay_models import gguf

U32, I32, F32, BOOL, STRING, ARRAY, U64 = 4, 5, 6, 7, 8, 9, 10
TYPE_F32, TYPE_Q4_K, TYPE_I8, TYPE_I64 = 0, 12, 24, 27


def u32(n: int) -> bytes:
    return struct.pack("<I", n & 0xFFFFFFFF)


def u64(n: int) -> bytes:
    return struct.pack("<Q", n & 0xFFFFFFFFFFFFFFFF)


def text(s: bytes) -> bytes:
    return u64(len(s)) + s


def entry(key: bytes, kind: int, value: bytes) -> bytes:
    return text(key) + u32(kind) + value


def tensor(name: bytes, dims: tuple[int, ...], kind: int, offset: int) -> bytes:
    return text(name) + u32(len(dims)) + b"".join(u64(d) for d in dims) + u32(kind) + u64(offset)


@dataclass(frozen=True)
class Raw:
    """A GGUF file, field by field."""

    magic: bytes = b"GGUF"
    version: bytes = u32(3)
    n_tensors: int | None = None
    n_entries: int | None = None
    entries: tuple[bytes, ...] = ()
    tensors: tuple[bytes, ...] = ()
    alignment: int = 32
    data: bytes = b""
    tail: bytes = field(default=b"")

    def build(self) -> bytes:
        n_tensors = len(self.tensors) if self.n_tensors is None else self.n_tensors
        n_entries = len(self.entries) if self.n_entries is None else self.n_entries
        head = self.magic + self.version + u64(n_tensors) + u64(n_entries)
        head += b"".join(self.entries) + b"".join(self.tensors)
        return head + bytes(-len(head) % self.alignment) + self.data + self.tail


NAME = entry(b"general.name", STRING, text(b"a model"))
GOOD = Raw(
    entries=(NAME, entry(b"some.count", U32, u32(7))),
    tensors=(tensor(b"a", (4, 2), TYPE_F32, 0), tensor(b"b", (256,), TYPE_Q4_K, 32)),
    data=bytes(32 + 144),
)


def with_entries(*entries: bytes) -> Raw:
    return replace(GOOD, entries=(*GOOD.entries, *entries))


def with_tensor(raw: bytes, data: bytes = bytes(1024)) -> Raw:
    return replace(GOOD, tensors=(raw,), data=data)


def aligned(value: bytes, kind: int = U32, alignment: int = 32) -> Raw:
    return replace(with_entries(entry(b"general.alignment", kind, value)), alignment=alignment)


MALFORMED: dict[str, tuple[Raw | bytes, str]] = {
    # The header.
    "empty file": (b"", "empty"),
    "magic alone": (b"GGUF", "ends inside the version"),
    "magic cut short": (b"GG", "ends inside the magic"),
    "wrong magic": (replace(GOOD, magic=b"GGML"), "does not start with 'GGUF'"),
    "version 0": (replace(GOOD, version=u32(0)), "unknown GGUF version 0"),
    "version 1": (replace(GOOD, version=u32(1)), "version 1 is not supported"),
    "version of the future": (replace(GOOD, version=u32(4)), "unknown GGUF version 4"),
    "big endian": (replace(GOOD, version=struct.pack(">I", 3)), "big endian"),
    "tensor count of 2^64-1": (replace(GOOD, n_tensors=-1), "claims 18446744073709551615 tensors"),
    "tensor count beyond the file": (replace(GOOD, n_tensors=1000), "the file"),
    "entry count of 2^64-1": (replace(GOOD, n_entries=-1), "claims 18446744073709551615 metadata entries"),
    "entry count beyond the file": (replace(GOOD, n_entries=60000), "bytes"),
    "header without counts": (b"GGUF" + u32(3) + b"\0\0\0", "ends inside the number of tensors"),
    # Metadata.
    "key length of 2^64-1": (with_entries(u64(-1) + b"key" + u32(U32) + u32(1)), "a metadata key claims"),
    "key length of 2^63": (with_entries(u64(1 << 63) + b"key" + u32(U32) + u32(1)), "a metadata key claims"),
    "empty key": (with_entries(entry(b"", U32, u32(1))), "key is empty"),
    "key of 65536 bytes": (with_entries(entry(b"k" * 65536, U32, u32(1))), "65535 is the most"),
    "key that is not text": (with_entries(entry(b"\xff\xfe", U32, u32(1))), "not UTF-8"),
    "unknown value type": (with_entries(entry(b"key", 13, u32(1))), "'key' has unknown value type 13"),
    "negative value type": (with_entries(entry(b"key", -1, u32(1))), "unknown value type 4294967295"),
    "duplicate key": (with_entries(entry(b"x", U32, u32(1)), entry(b"x", U32, u32(2))), "'x' occurs twice"),
    "bool of 2": (with_entries(entry(b"flag", BOOL, b"\2")), "bool of value 2"),
    "string length of 2^63": (with_entries(entry(b"s", STRING, u64(1 << 63))), "a string claims"),
    "string length of 2^64-1": (with_entries(entry(b"s", STRING, u64(-1))), "a string claims"),
    "array of unknown type": (with_entries(entry(b"a", ARRAY, u32(99) + u64(0))), "unknown value type 99"),
    "array of arrays": (
        with_entries(entry(b"a", ARRAY, u32(ARRAY) + u64(1) + u32(U32) + u64(0))),
        "array of arrays",
    ),
    "array length of 2^64-1": (with_entries(entry(b"a", ARRAY, u32(U32) + u64(-1))), "'a' claims"),
    "array length of 2^62": (with_entries(entry(b"a", ARRAY, u32(U32) + u64(1 << 62))), "'a' claims"),
    "array of 2^60 strings": (with_entries(entry(b"a", ARRAY, u32(STRING) + u64(1 << 60))), "'a' claims"),
    "array of strings, one too long": (
        with_entries(entry(b"a", ARRAY, u32(STRING) + u64(2) + text(b"ok") + u64(1 << 40))),
        "a string of an array claims",
    ),
    "as many strings as bytes": (
        with_entries(entry(b"a", ARRAY, u32(STRING) + u64(4 << 20)) + bytes(4 << 20)),
        "'a' claims 4194304 values",
    ),
    "alignment 0": (aligned(u32(0)), "not a power of two"),
    "alignment 13": (aligned(u32(13)), "not a power of two"),
    "alignment of another type": (aligned(u32(32), I32), "must be a uint32, but is int32"),
    "alignment as an array": (
        aligned(u32(U32) + u64(1) + u32(32), ARRAY),
        "must be a uint32, but is an array",
    ),
    "alignment of 2^31": (aligned(u32(1 << 31)), "ends before its data section"),
    # Tensors.
    "tensor name of 64 bytes": (with_tensor(tensor(b"n" * 64, (4,), TYPE_F32, 0)), "64 bytes long"),
    "tensor name length of 2^64-1": (with_tensor(u64(-1) + b"n"), "a tensor name claims"),
    "empty tensor name": (with_tensor(tensor(b"", (4,), TYPE_F32, 0)), "name is empty"),
    "tensor name that is not text": (with_tensor(tensor(b"\xc3(", (4,), TYPE_F32, 0)), "not UTF-8"),
    "5 dimensions": (with_tensor(tensor(b"t", (1, 1, 1, 1, 1), TYPE_F32, 0)), "has 5 dimensions"),
    "2^32-1 dimensions": (with_tensor(text(b"t") + u32(-1)), "4294967295 dimensions"),
    "negative dimension": (with_tensor(tensor(b"t", (-1,), TYPE_F32, 0)), "dimension of 2^63 or more"),
    "too many elements": (
        with_tensor(tensor(b"t", (1 << 33, 1 << 33), TYPE_F32, 0)),
        "more than 2^63 elements",
    ),
    "too many elements in 4 dimensions": (
        with_tensor(tensor(b"t", (1 << 16, 1 << 16, 1 << 16, 1 << 16), TYPE_I8, 0)),
        "more than 2^63 elements",
    ),
    "too many bytes": (with_tensor(tensor(b"t", (1 << 31, 1 << 30), TYPE_I64, 0)), "more than 2^63 bytes"),
    "bytes that wrap when padded": (
        with_tensor(tensor(b"t", (4, (1 << 30) - 1, (1 << 30) + 1), TYPE_F32, 0)),
        "more than 2^63 bytes",
    ),
    "two tensors that overflow together": (
        replace(
            GOOD,
            tensors=(
                tensor(b"s", (0x7FFFFFFFFFFFFFC0,), TYPE_I8, 0),
                tensor(b"t", (0x7FFFFFFFFFFFFFC0,), TYPE_I8, 0x7FFFFFFFFFFFFFC0),
            ),
            data=bytes(32),
        ),
        "beyond the end",
    ),
    "unknown tensor type": (with_tensor(tensor(b"t", (4,), 43, 0)), "'t' has unknown type 43"),
    "negative tensor type": (with_tensor(tensor(b"t", (4,), -1, 0)), "unknown type 4294967295"),
    "withdrawn tensor type": (with_tensor(tensor(b"t", (32,), 31, 0)), "Q4_0_4_4, which was withdrawn"),
    "rows that are no whole blocks": (
        with_tensor(tensor(b"t", (100,), TYPE_Q4_K, 0)),
        "comes in blocks of 256",
    ),
    "offset of 2^64-1": (with_tensor(tensor(b"t", (4,), TYPE_F32, -1)), "not a multiple"),
    "offset of 2^64-32": (with_tensor(tensor(b"t", (4,), TYPE_F32, -32)), "beyond the end"),
    "duplicate tensor": (
        replace(GOOD, tensors=(tensor(b"t", (4,), TYPE_F32, 0), tensor(b"t", (4,), TYPE_F32, 32))),
        "tensor 't' occurs twice",
    ),
    "offset that is not aligned": (
        with_tensor(tensor(b"t", (4,), TYPE_F32, 16)),
        "multiple of the alignment 32",
    ),
    "offsets for another alignment": (
        replace(aligned(u32(64), alignment=64), tensors=GOOD.tensors),
        "multiple of the alignment 64",
    ),
    "tensors that overlap": (
        replace(GOOD, tensors=(tensor(b"s", (16,), TYPE_F32, 0), tensor(b"t", (16,), TYPE_F32, 32))),
        "'s' and 't' overlap",
    ),
    "one tensor inside another": (
        replace(GOOD, tensors=(tensor(b"in", (4,), TYPE_F32, 32), tensor(b"out", (40,), TYPE_F32, 0))),
        "'out' and 'in' overlap",
    ),
    # Data.
    "one byte of data missing": (replace(GOOD, data=GOOD.data[:-1]), "beyond the end"),
    "no data at all": (replace(GOOD, data=b""), "beyond the end"),
    "file that ends in the padding": (
        GOOD.build()[: len(replace(GOOD, data=b"", alignment=1).build()) + 1],
        "ends before",
    ),
}


def raw(case: Raw | bytes) -> bytes:
    return case if isinstance(case, bytes) else case.build()


@pytest.fixture
def stored(tmp_path: Path) -> Callable[[Raw | bytes], Path]:
    def store(case: Raw | bytes) -> Path:
        path = tmp_path / "model.gguf"
        path.write_bytes(raw(case))
        return path

    return store


@pytest.mark.parametrize("name", MALFORMED)
def test_j05_malformed_file_gives_one_clear_error(name: str, stored: Callable[[Raw | bytes], Path]) -> None:
    case, words = MALFORMED[name]
    path = stored(case)
    start = time.monotonic()
    with pytest.raises(gguf.GGUFError) as caught:
        gguf.open(path)
    assert time.monotonic() - start < 1
    assert words in str(caught.value)
    assert str(path) in str(caught.value)
    assert caught.value.hint
    assert "\n" not in str(caught.value)


def test_the_file_that_the_malformed_ones_vary_is_good(stored: Callable[[Raw | bytes], Path]) -> None:
    with gguf.open(stored(GOOD)) as file:
        assert dict(file.metadata) == {"general.name": "a model", "some.count": 7}
        assert {n: (t.format, t.shape, t.nbytes) for n, t in file.tensors.items()} == {
            "a": ("F32", (2, 4), 32),
            "b": ("Q4_K", (256,), 144),
        }


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(Raw(), id="nothing but a header"),
        pytest.param(replace(GOOD, version=u32(2)), id="version 2"),
        pytest.param(replace(GOOD, tail=bytes(99)), id="bytes after the data"),
        pytest.param(aligned(u32(1), alignment=1), id="alignment 1"),
        pytest.param(with_tensor(tensor(b"t", (4, 0), TYPE_F32, 0)), id="a dimension of 0"),
        pytest.param(with_tensor(tensor(b"t", (), TYPE_F32, 0)), id="no dimensions"),
        pytest.param(
            with_tensor(tensor(b"n" * 63, (4,), TYPE_F32, 64)), id="longest name, gap before the data"
        ),
        pytest.param(with_entries(entry(b"a", ARRAY, u32(U32) + u64(0))), id="an empty array"),
        pytest.param(with_entries(entry(b"a", ARRAY, u32(STRING) + u64(0))), id="an empty array of strings"),
    ],
)
def test_unusual_but_valid_files_open(case: Raw, stored: Callable[[Raw | bytes], Path]) -> None:
    gguf.open(stored(case)).close()


def test_every_truncation_of_a_good_file_is_refused(stored: Callable[[Raw | bytes], Path]) -> None:
    whole = GOOD.build()
    for size in range(len(whole)):
        with pytest.raises(gguf.GGUFError):
            gguf.open(stored(whole[:size]))


def test_malformed_files_are_refused_in_little_memory(tmp_path: Path) -> None:
    paths = [tmp_path / f"{i}.gguf" for i in range(len(MALFORMED))]
    for path, (case, _) in zip(paths, MALFORMED.values(), strict=True):
        path.write_bytes(raw(case))
    script = """
import resource, sys
from llamay_models import gguf
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (16 << 20),) * 2)
for path in sys.argv[1:]:
    try:
        gguf.open(path)
    except gguf.GGUFError:
        continue
    sys.exit(f"{path} was accepted")
"""
    if not Path("/proc/self/statm").exists():
        pytest.skip("needs /proc to know how much memory is in use")
    subprocess.run([sys.executable, "-c", script, *map(str, paths)], check=True)


def test_a_directory_or_a_missing_file_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        gguf.open(tmp_path / "none.gguf")
    with pytest.raises((OSError, gguf.GGUFError)):
        gguf.open(tmp_path)


def test_errors_tell_path_offset_problem_and_hint_apart(stored: Callable[[Raw | bytes], Path]) -> None:
    path = stored(replace(GOOD, version=u32(9)))
    with pytest.raises(gguf.GGUFError) as caught:
        gguf.open(path)
    error = caught.value
    assert (error.path, error.offset) == (path, 4)
    assert error.problem == "unknown GGUF version 9"
    assert "update llamay" in error.hint
