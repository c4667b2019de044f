"""Write tables.inc: what the tokenizers need to know about characters.

Run it with `python generate_tables.py`. It takes the newest Unicode data at hand: PyPI's unicodedata2
where that is installed, else Python's own. The result is committed; nothing at build or run time needs this
script.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

try:
    import unicodedata2 as unicodedata
except ImportError:
    import unicodedata

#: The White_Space property (PropList.txt); it has not changed since Unicode 6.3.
WHITE_SPACE = [
    *range(9, 14),
    0x20,
    0x85,
    0xA0,
    0x1680,
    *range(0x2000, 0x200B),
    0x2028,
    0x2029,
    0x202F,
    0x205F,
    0x3000,
]

#: Order as in unicode::Class.
CLASSES = [
    "Upper",
    "Lower",
    "OtherLetter",
    "Mark",
    "Decimal",
    "Punctuation",
    "Symbol",
    "Space",
    "Other",
    "OtherNumber",
]


def class_of(code_point: int) -> int:
    """Return the index in CLASSES."""
    if code_point in WHITE_SPACE:
        return 7
    category = unicodedata.category(chr(code_point))
    by_category = {"Lu": 0, "Lt": 0, "Ll": 1, "Lm": 2, "Lo": 2, "Nd": 4}
    return by_category.get(category, {"M": 3, "N": 9, "P": 5, "S": 6}.get(category[0], 8))


def class_ranges() -> Iterator[str]:
    """Yield the first code point of each run of one class, with that class."""
    for kind, run in groupby(range(sys.maxunicode + 1), class_of):
        yield f"{{0x{next(run):X}, {kind}}}"


def lowercase() -> Iterator[str]:
    """Yield code points whose simple lower case is another single code point."""
    for c in range(sys.maxunicode + 1):
        lower = chr(c).lower()
        if 0xD800 <= c <= 0xDFFF or lower == chr(c):
            continue
        # U+0130 lowers to two characters; its simple mapping (UnicodeData.txt) is "i".
        yield f"{{0x{c:X}, 0x{ord(lower[0]):X}}}"


def first_of_decomposition() -> Iterator[str]:
    """Yield code points with a canonical decomposition, and its full form."""
    for c in range(sys.maxunicode + 1):
        if 0xAC00 <= c <= 0xD7A3 or 0xD800 <= c <= 0xDFFF:
            continue  # Hangul decomposes by arithmetic
        parts = unicodedata.normalize("NFD", chr(c))
        if parts != chr(c):
            padded = [ord(p) for p in parts] + [0] * (4 - len(parts))
            yield f"{{0x{c:X}, {{" + ", ".join(f"0x{p:X}" for p in padded) + "}}"


def combining_classes() -> Iterator[str]:
    """Yield the first code point of each run with one canonical combining class."""
    for kind, run in groupby(range(sys.maxunicode + 1), lambda c: unicodedata.combining(chr(c))):
        yield f"{{0x{next(run):X}, {kind}}}"


def table(kind: str, name: str, rows: Iterator[str]) -> str:
    """Lay rows out in lines of 110 characters."""
    lines, line = [], "   "
    for row in rows:
        if len(line) + len(row) + 2 > 110:
            lines.append(line)
            line = "   "
        line += f" {row},"
    return f"constexpr {kind} {name}[] = {{\n" + "\n".join([*lines, line]) + "\n};\n"


def main() -> None:
    """Write the file beside this script."""
    version: Any = unicodedata.unidata_version
    parts = [
        f"// Written by generate_tables.py from Unicode {version}; do not edit.\n// clang-format off\n",
        table("RangeStart", "kClassRanges", class_ranges()),
        table("Pair", "kLowercase", lowercase()),
        table("Decomposition", "kDecompositions", first_of_decomposition()),
        table("RangeStart", "kCombiningRanges", combining_classes()),
        "// clang-format on\n",
    ]
    Path(__file__).with_name("tables.inc").write_text("\n".join(parts))


if __name__ == "__main__":
    main()
