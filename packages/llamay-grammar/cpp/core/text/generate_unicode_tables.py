"""Write unicode_tables.inc: for each general category the ranges of code points that Python's unicodedata has in it.

python generate_unicode_tables.py > unicode_tables.inc
"""

import textwrap
import unicodedata

# Surrogates are no characters of a text in UTF-8.
LEFT_OUT = {"Cs"}


def ranges() -> dict[str, list[int]]:
    """First and last code points in turn, by category."""
    found: dict[str, list[int]] = {}
    for point in range(0x110000):
        ends = found.setdefault(unicodedata.category(chr(point)), [])
        if ends and ends[-1] == point - 1:
            ends[-1] = point
        else:
            ends += [point, point]
    return {category: found[category] for category in sorted(found.keys() - LEFT_OUT)}


def main() -> None:
    """Print the file."""
    tables = ranges()
    print(
        f"// General categories of Unicode {unicodedata.unidata_version}, made by generate_unicode_tables.py."
    )
    print("// clang-format off")
    for category, ends in tables.items():
        print(f"static constexpr uint32_t k{category}[] = {{")
        numbers = ", ".join(f"0x{end:X}" for end in ends) + ","
        print("\n".join(textwrap.wrap(numbers, 108)).replace(", ", ","))
        print("};")
    print("static constexpr Category kCategories[] = {")
    for category in tables:
        print(f'{{"{category}", k{category}, sizeof(k{category}) / 8}},')
    print("};")
    print("// clang-format on")


if __name__ == "__main__":
    main()
