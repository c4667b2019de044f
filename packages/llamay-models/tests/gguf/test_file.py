"""What an open file offers."""

from __future__ import annotations

import gc
import hashlib
from pathlib import Path

import numpy as np
import pytest

from llamay_models import gguf


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.gguf"
    gguf.write(
        path,
        {
            "general.architecture": "llama",
            "an.int": 7,
            "a.negative": -7,
            "a.big": 1 << 40,
            "a.float": 0.5,
            "a.bool": True,
            "ints": [1, 2, 3],
            "floats": [0.5, 1.0],
            "bools": [True, False],
            "names": ["x", "é", b"\xff"],
        },
        [gguf.TensorData("m", "F32", (2, 3), np.arange(6, dtype=np.float32))],
    )
    return path


def test_values_come_as_python_values_and_arrays(small: Path) -> None:
    metadata = gguf.open(small).metadata
    assert [metadata[k] for k in ("an.int", "a.negative", "a.big", "a.float", "a.bool")] == [
        7,
        -7,
        1 << 40,
        0.5,
        True,
    ]
    assert isinstance(metadata["ints"], np.ndarray)
    assert metadata["ints"].tolist() == [1, 2, 3]
    names = metadata["names"]
    assert isinstance(names, gguf.StringArray)
    assert names[:] == ["x", "é", "\ufffd"]
    assert names.raw(-1) == b"\xff"
    assert next(iter(metadata)) == "general.architecture"
    assert "none" not in metadata
    with pytest.raises(KeyError):
        metadata["none"]
    with pytest.raises(IndexError):
        names[3]


def test_typed_accessors_name_key_expected_and_found_type(small: Path) -> None:
    metadata = gguf.open(small).metadata
    assert metadata.get_int("an.int") == 7
    assert metadata.get_float("an.int") == 7.0
    assert isinstance(metadata.get_float("an.int"), float)
    assert metadata.get_bool("a.bool") is True
    assert metadata.get_ints("ints").tolist() == [1, 2, 3]
    assert metadata.get_floats("floats").tolist() == [0.5, 1.0]
    assert metadata.get_bools("bools").tolist() == [True, False]
    assert metadata.get_int("none", None) is None
    with pytest.raises(gguf.GGUFError, match="'none' is missing"):
        metadata.get_int("none")
    with pytest.raises(gguf.GGUFError, match=r"'a\.bool' must be an integer, but is bool"):
        metadata.get_int("a.bool", 3)
    with pytest.raises(gguf.GGUFError, match="'names' must be a string, but is array of string"):
        metadata.get_str("names")
    with pytest.raises(gguf.GGUFError, match="'ints' must be an array of floats, but is array of uint32"):
        metadata.get_floats("ints")


def test_tensor_data_is_a_read_only_view_that_outlives_the_file(small: Path) -> None:
    with gguf.open(small) as file:
        tensor = file.tensors["m"]
    del file
    gc.collect()
    assert tensor.data.view(np.float32).reshape(tensor.shape).tolist() == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(ValueError, match="read-only"):
        tensor.data[0] = 1


def test_a_closed_file_says_so(small: Path) -> None:
    file = gguf.open(small)
    file.close()
    with pytest.raises(ValueError, match="was closed"):
        file.metadata  # noqa: B018
    assert "closed" in repr(file)


def test_sha256_is_that_of_the_bytes(small: Path) -> None:
    assert gguf.open(small).sha256() == hashlib.sha256(small.read_bytes()).hexdigest()


def test_every_part_of_a_split_model_opens_the_whole(shared_data: Path) -> None:
    models = shared_data / "models"
    whole = gguf.open(models / "stories260K.gguf")
    parts = sorted((models / "split").glob("*.gguf"))
    assert len(parts) == 3
    for part in parts:
        split = gguf.open(part)
        assert split.path == parts[0]
        assert split.paths == tuple(parts)
        assert split.architecture == whole.architecture
        assert split.tensors.keys() == whole.tensors.keys()
        for name, tensor in whole.tensors.items():
            assert split.tensors[name].shape == tensor.shape
            assert np.array_equal(split.tensors[name].data, tensor.data)
    assert gguf.open(parts[2]).sha256() == hashlib.sha256(b"".join(p.read_bytes() for p in parts)).hexdigest()


def part(path: Path, number: int, count: int, tensors: list[gguf.TensorData], total: int) -> None:
    gguf.write(
        path,
        {
            "general.architecture": "llama",
            "split.no": np.uint16(number),
            "split.count": np.uint16(count),
            "split.tensors.count": np.int32(total),
        },
        tensors,
    )


def one(name: str) -> gguf.TensorData:
    return gguf.TensorData(name, "F32", (4,), np.zeros(4, np.float32))


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    part(tmp_path / "m-00001-of-00003.gguf", 0, 3, [one("a")], 3)
    part(tmp_path / "m-00003-of-00003.gguf", 2, 3, [one("c")], 3)
    with pytest.raises(gguf.GGUFError, match=r"m-00002-of-00003\.gguf is missing"):
        gguf.open(tmp_path / "m-00001-of-00003.gguf")


@pytest.mark.parametrize(
    ("second_name", "second", "words"),
    [
        ("m-00002-of-00002.gguf", (0, 2, ["b"], 2), "should be part 2 of 2, but says it is part 1"),
        ("m-00002-of-00002.gguf", (1, 3, ["b"], 2), "says it is part 2 of 3"),
        ("m-00002-of-00002.gguf", (1, 2, ["a"], 2), "'a' is in more than one part"),
        ("m-00002-of-00002.gguf", (1, 2, ["b", "c"], 2), "should have 2 tensors, but its 2 parts have 3"),
        ("other.gguf", (1, 2, ["b"], 2), "missing"),
    ],
)
def test_parts_that_do_not_belong_together_are_refused(
    tmp_path: Path, second_name: str, second: tuple[int, int, list[str], int], words: str
) -> None:
    part(tmp_path / "m-00001-of-00002.gguf", 0, 2, [one("a")], 2)
    number, count, names, total = second
    part(tmp_path / second_name, number, count, [one(n) for n in names], total)
    with pytest.raises(gguf.GGUFError, match=words):
        gguf.open(tmp_path / "m-00001-of-00002.gguf")


def test_a_part_under_another_name_says_how_to_name_it(tmp_path: Path) -> None:
    part(tmp_path / "renamed.gguf", 0, 2, [one("a")], 2)
    with pytest.raises(gguf.GGUFError, match="NAME-00001-of-00002"):
        gguf.open(tmp_path / "renamed.gguf")
    part(tmp_path / "m-00001-of-00003.gguf", 0, 2, [one("a")], 2)
    with pytest.raises(gguf.GGUFError, match="the name says 3 parts, but the file says 2"):
        gguf.open(tmp_path / "m-00001-of-00003.gguf")
    for number in (1, 2):
        part(tmp_path / f"m-0000{number}-of-00002.gguf", number - 1, 2, [one(f"{number}")], 2)
    for number in (0, 3):
        path = tmp_path / f"m-0000{number}-of-00002.gguf"
        part(path, 0, 2, [one("a")], 2)
        with pytest.raises(gguf.GGUFError, match=f"the name says part {number} of 2"):
            gguf.open(path)


def test_the_reader_agrees_with_the_reference_reader_on_real_files(shared_data: Path) -> None:
    reference = pytest.importorskip("gguf")
    for path in sorted((shared_data / "models").glob("*.gguf")):
        if path.stat().st_size > 5_000_000:
            continue
        ours, theirs = gguf.open(path), reference.GGUFReader(path)
        assert len(ours.tensors) == len(theirs.tensors)
        for tensor in theirs.tensors:
            mine = ours.tensors[tensor.name]
            assert mine.format == tensor.tensor_type.name
            assert mine.shape == tuple(int(d) for d in reversed(tensor.shape))
            assert mine.offset == tensor.data_offset
            assert np.array_equal(mine.data, np.asarray(tensor.data).reshape(-1).view(np.uint8))
        fields = {name: f for name, f in theirs.fields.items() if not name.startswith("GGUF.")}
        assert list(ours.metadata) == list(fields)
        for key, f in fields.items():
            value, expected = ours.metadata[key], f.contents()
            if isinstance(value, np.ndarray):
                assert value.tolist() == expected
            elif isinstance(value, gguf.StringArray):
                assert list(value) == expected
            else:
                assert value == expected
