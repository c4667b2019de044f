"""Names of the parts of split models: one rule for files, paths and addresses, whatever their case."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from llamay_models import gguf
from llamay_models.gguf.split import PartName, model_stem, part_name, part_path, parts_of


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("m-00001-of-00002.gguf", ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"]),
        ("m-00002-of-00002.GGUF", ["m-00001-of-00002.GGUF", "m-00002-of-00002.GGUF"]),
        ("a/b-00001-OF-00001.gguf", ["a/b-00001-OF-00001.gguf"]),
        ("m-00003-of-00002.gguf", ["m-00003-of-00002.gguf"]),
        ("m-00000-of-00002.gguf", ["m-00000-of-00002.gguf"]),
        ("m-00001-of-00000.gguf", ["m-00001-of-00000.gguf"]),
        ("m-1-of-2.gguf", ["m-1-of-2.gguf"]),
        ("m-00001-of-00002.bin", ["m-00001-of-00002.bin"]),
        (
            "m-\u0660\u0660\u0660\u0660\u0661-of-\u0660\u0660\u0660\u0660\u0662.gguf",
            ["m-\u0660\u0660\u0660\u0660\u0661-of-\u0660\u0660\u0660\u0660\u0662.gguf"],
        ),
        ("m.gguf", ["m.gguf"]),
        ("", [""]),
    ],
)
def test_a_name_says_the_names_of_all_parts(name: str, parts: list[str]) -> None:
    assert parts_of(name) == parts


def test_a_name_is_taken_apart_and_put_together() -> None:
    assert part_name("m-00002-of-00003.gguf") == PartName("m", 2, 3)
    assert part_path("m", 2, 3) == "m-00002-of-00003.gguf"
    assert part_name("m.gguf") is None


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("m-Q8_0.gguf", "m-Q8_0"),
        ("m-Q8_0.GGUF", "m-Q8_0"),
        ("m-Q8_0-00001-of-00002.gguf", "m-Q8_0"),
        ("m-Q8_0-00001-of-00002", "m-Q8_0"),
        ("Q8_0", "Q8_0"),
    ],
)
def test_a_stem_has_no_ending_and_no_part(name: str, stem: str) -> None:
    assert model_stem(name) == stem


def test_a_split_model_opens_under_names_in_capitals(shared_data: Path, tmp_path: Path) -> None:
    parts = sorted((shared_data / "models" / "split").glob("*.gguf"))
    for part in parts:
        shutil.copyfile(part, tmp_path / part.name.upper())

    with gguf.open(tmp_path / parts[1].name.upper()) as opened:
        assert [path.name for path in opened.paths] == [part.name.upper() for part in parts]
