"""Write grids.inc: the grids of the IQ formats, which are facts of the file format, read from the gguf package.

    pip install gguf && python generate_grids.py

A grid is a list of the combinations of 4 or 8 magnitudes that a format can write. A combination is kept as the number
of each magnitude among those that occur: 2 bits each where there are three, 4 bits each where there are eight.
"""

from pathlib import Path

from gguf import quants

GRIDS = {
    "kGridIQ2_XXS": quants.IQ2_XXS,
    "kGridIQ2_XS": quants.IQ2_XS,
    "kGridIQ2_S": quants.IQ2_S,
    "kGridIQ3_XXS": quants.IQ3_XXS,
    "kGridIQ3_S": quants.IQ3_S,
    "kGridIQ1": quants.IQ1_S,
}


def entries(quant: type) -> list[int]:
    """Return one integer for each combination, the first magnitude in its lowest bits."""
    quant.init_grid()
    combinations = quant.grid.reshape(quant.grid_shape)
    bits = 16 // quant.grid_shape[1]
    levels = list(quant.grid_map)
    return [sum(levels.index(int(value)) << bits * i for i, value in enumerate(one)) for one in combinations]


def main() -> None:
    """Write the file beside this script."""
    out = ["// Written by generate_grids.py; not to be edited.", "", "// clang-format off"]
    for name, quant in GRIDS.items():
        numbers = [f"0x{n:04x}" for n in entries(quant)]
        out.append(f"constexpr uint16_t {name}[{len(numbers)}] = {{")
        out += ["    " + ", ".join(numbers[i : i + 12]) + "," for i in range(0, len(numbers), 12)]
        out.append("};")
    out.append("// clang-format on")
    Path(__file__).with_name("grids.inc").write_text("\n".join(out) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
