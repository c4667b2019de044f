"""Models that are split over several files: finding the parts and checking that they belong together."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from .. import _native
from ..errors import GGUFError

_PART = re.compile(r"(?P<prefix>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")


def part_path(prefix: str, number: int, count: int) -> str:
    """Return the name of part `number` (from 1) of `count`, as every tool writes it."""
    return f"{prefix}-{number:05d}-of-{count:05d}.gguf"


def part_count(file: _native.File) -> int:
    """Return the number of parts of the model that this file belongs to; 1 for an ordinary file."""
    return _integer(file, "split.count", 1)


def sibling_paths(path: Path, file: _native.File) -> list[Path]:
    """Return the paths of all parts, in order, given one of them.

    Raises:
        GGUFError: the file's name is not that of a part, contradicts its metadata, or a part is missing.

    """
    count = part_count(file)
    match = _PART.fullmatch(path.name)
    if match is None:
        raise GGUFError(
            f"this is a part of a model in {count} files, but is not named like one",
            f"name the parts {part_path('NAME', 1, count)} and so on",
            path=path,
        )
    if int(match["count"]) != count:
        raise GGUFError(
            f"the name says {int(match['count'])} parts, but the file says {count}",
            "give the parts their original names",
            path=path,
        )
    if not 1 <= int(match["number"]) <= count:
        raise GGUFError(
            f"the name says part {int(match['number'])} of {count}",
            "give the parts their original names",
            path=path,
        )
    paths = [path.with_name(part_path(match["prefix"], n, count)) for n in range(1, count + 1)]
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
