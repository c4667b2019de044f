"""Models that are split over several files: names of parts, finding them, checking that they belong together."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import _native
from ..errors import GGUFError

# Names differ in case where a file system or a user changed it: such a model is split all the same.
_PART = re.compile(r"(.*)-([0-9]{5})(-of-)([0-9]{5})(\.gguf)", re.IGNORECASE | re.DOTALL)
_ENDING = re.compile(r"\.gguf\Z", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class PartName:
    """The name, path or address of one part of a split model, taken apart; `number` counts from 1."""

    prefix: str
    number: int
    count: int
    of: str = "-of-"
    ending: str = ".gguf"

    def of_part(self, number: int) -> str:
        """Return the name of another part, written as this one is."""
        return f"{self.prefix}-{number:05d}{self.of}{self.count:05d}{self.ending}"


def part_path(prefix: str, number: int, count: int) -> str:
    """Return the name of part `number` (from 1) of `count`, as every tool writes it."""
    return PartName(prefix, number, count).of_part(number)


def part_name(name: str) -> PartName | None:
    """Return what a name, a path or an address says of a part of a split model; None where it names no part."""
    match = _PART.fullmatch(name)
    return match and PartName(match[1], int(match[2]), int(match[4]), match[3], match[5])


def parts_of(name: str) -> list[str]:
    """Return the names of all parts of the model that `name` is a part of, in order; `name` alone for another file."""
    part = part_name(name)
    if part is None or not 1 <= part.number <= part.count:
        return [name]
    return [part.of_part(number) for number in range(1, part.count + 1)]


def model_stem(name: str) -> str:
    """Return a file's name without `.gguf`, and without the number and the count of a part."""
    part = part_name(name if _ENDING.search(name) else f"{name}.gguf")
    return _ENDING.sub("", name) if part is None else part.prefix


def part_count(file: _native.File) -> int:
    """Return the number of parts of the model that this file belongs to; 1 for an ordinary file."""
    return _integer(file, "split.count", 1)


def sibling_paths(path: Path, file: _native.File) -> list[Path]:
    """Return the paths of all parts, in order, given one of them.

    Raises:
        GGUFError: the file's name is not that of a part, contradicts its metadata, or a part is missing.

    """
    count = part_count(file)
    part = part_name(path.name)
    if part is None:
        raise GGUFError(
            f"this is a part of a model in {count} files, but is not named like one",
            f"name the parts {part_path('NAME', 1, count)} and so on",
            path=path,
        )
    if part.count != count:
        raise GGUFError(
            f"the name says {part.count} parts, but the file says {count}",
            "give the parts their original names",
            path=path,
        )
    if not 1 <= part.number <= count:
        raise GGUFError(
            f"the name says part {part.number} of {count}",
            "give the parts their original names",
            path=path,
        )
    paths = [path.with_name(name) for name in parts_of(path.name)]
    missing = [p.name for p in paths if not p.exists()]
    if missing:
        shown = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
        raise GGUFError(
            f"the model is in {count} files and {shown} is missing", "fetch the missing part", path=path
        )
    return paths


def check_parts(paths: list[Path], files: list[_native.File]) -> None:
    """Check that the files are the parts of one model, each in its place.

    Raises:
        GGUFError: a part has another number or count, or the parts do not hold the tensors that they should.

    """
    for index, (path, file) in enumerate(zip(paths, files, strict=True)):
        number = _integer(file, "split.no", 0)
        if number != index or part_count(file) != len(files):
            raise GGUFError(
                f"this should be part {index + 1} of {len(files)}, but says it is part {number + 1} of"
                f" {part_count(file)}",
                "give the parts their original names",
                path=path,
            )
    expected = _integer(files[0], "split.tensors.count", -1)
    found = sum(len(file.tensors()) for file in files)
    if expected not in (-1, found):
        raise GGUFError(
            f"the model should have {expected} tensors, but its {len(files)} parts have {found}",
            "fetch all parts again",
            path=paths[0],
        )


def _integer(file: _native.File, key: str, default: int) -> int:
    try:
        value: Any = file.value(key)
    except KeyError:
        return default
    if not isinstance(value, int) or isinstance(value, bool):
        raise GGUFError(
            f"metadata key '{key}' must be an integer, but is {file.type(key)}", "fetch the file again"
        )
    return value
