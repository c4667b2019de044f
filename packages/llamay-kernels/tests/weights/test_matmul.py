"""Matrix products: one arithmetic, to the last bit, whatever computes it and in whatever pieces."""

import mmap
import re
import sys
from pathlib import Path

import matmul_reference
import numpy as np
import pytest
from format_helpers import (
    BLOCK_FORMATS,
    FORMATS,
    SCALE_OFFSETS,
    formats,
    put_scales,
    random_activations,
    random_data,
    same_bits,
    seeds,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from llamay_kernels import _kernels as kernels

FAST = [isa for isa in kernels.runnable_isas() if isa != "portable"]


def shape(rng: np.random.Generator, name: str, most_blocks: int) -> int:
    block = FORMATS[name][0]
    return (
        block * int(rng.integers(1, most_blocks + 1)) if block > 1 else int(rng.integers(1, 40 * most_blocks))
    )


@settings(max_examples=60, deadline=None)
@given(
    name=formats,
    seed=seeds,
    rows=st.integers(1, 4),
    n=st.integers(1, 2),
    hostile=st.sampled_from([0.0, 0.02, 0.3]),
)
def test_portable_equals_the_arithmetic(name: str, seed: int, rows: int, n: int, hostile: float) -> None:
    rng = np.random.default_rng(seed)
    cols = shape(rng, name, 2)
    data, x = random_data(rng, name, rows, cols, hostile), random_activations(rng, n, cols, hostile / 10)
    bias = random_activations(rng, 1, rows)[0] if rng.random() < 0.5 else None
    residual = random_activations(rng, n, rows) if rng.random() < 0.5 else None
    weight = kernels.Weight(data, name, rows, cols)

    ours = kernels.matmul(weight, x, bias=bias, residual=residual, isa="portable")

    assert same_bits(ours, matmul_reference.matmul(data, name, rows, x, bias, residual))


@pytest.mark.parametrize("isa", FAST)
@settings(max_examples=150, deadline=None)
@given(
    name=formats,
    seed=seeds,
    rows=st.integers(1, 70),
    n=st.integers(1, 21),
    hostile=st.sampled_from([0.0, 0.02, 0.3]),
    data=st.data(),
)
def test_every_set_equals_portable_in_any_pieces(
    isa: str, name: str, seed: int, rows: int, n: int, hostile: float, data: st.DataObject
) -> None:
    rng = np.random.default_rng(seed)
    cols = shape(rng, name, 5)
    weight = kernels.Weight(random_data(rng, name, rows, cols, hostile), name, rows, cols)
    x = random_activations(rng, n, cols, hostile / 100)
    bias = random_activations(rng, 1, rows, hostile)[0] if rng.random() < 0.5 else None
    residual = random_activations(rng, n, rows, hostile) if rng.random() < 0.5 else None
    row_splits = sorted(data.draw(st.lists(st.integers(0, n), max_size=3)))
    group_splits = sorted(data.draw(st.lists(st.integers(0, (rows + 15) // 16), max_size=3)))

    expected = kernels.matmul(weight, x, bias=bias, residual=residual, isa="portable")
    ours = kernels.matmul(
        weight, x, bias=bias, residual=residual, isa=isa, row_splits=row_splits, group_splits=group_splits
    )

    assert same_bits(ours, expected)


@pytest.mark.parametrize("isa", kernels.runnable_isas())
@pytest.mark.parametrize("name", FORMATS)
def test_a_row_of_a_batch_equals_the_row_alone(isa: str, name: str) -> None:
    rng = np.random.default_rng(3)
    cols = 256 if FORMATS[name][0] > 1 else 100
    weight = kernels.Weight(random_data(rng, name, 50, cols), name, 50, cols)
    x = random_activations(rng, 33, cols)
    together = kernels.matmul(weight, x, isa=isa)

    for t in range(len(x)):
        assert np.array_equal(kernels.matmul(weight, x[t : t + 1], isa=isa)[0], together[t])


@pytest.mark.parametrize("isa", FAST)
@pytest.mark.parametrize("name", FORMATS)
def test_batches_larger_than_the_cache_equal_their_parts(isa: str, name: str) -> None:
    rng = np.random.default_rng(4)
    weight = kernels.Weight(random_data(rng, name, 40, 8192), name, 40, 8192)
    x = random_activations(rng, 75, 8192)
    together = kernels.matmul(weight, x, isa=isa)

    for t in range(len(x)):
        assert np.array_equal(kernels.matmul(weight, x[t : t + 1], isa=isa)[0], together[t])


@pytest.mark.parametrize("isa", kernels.runnable_isas())
@pytest.mark.parametrize("name", BLOCK_FORMATS)
@pytest.mark.parametrize("byte", [0x00, 0xFF, 0x7F, 0x80])
@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_integers_do_not_saturate(isa: str, name: str, byte: int, sign: int) -> None:
    block, size = FORMATS[name]
    blocks = np.full((1, size), byte, np.uint8)
    if name == "MXFP4":
        blocks[:, 0] = 128
    else:
        for offset in SCALE_OFFSETS.get(name, [None]):
            put_scales(name, blocks, offset, np.float16([1]).view(np.uint16))
    one = blocks.tobytes()
    cols = 512
    data = one * (17 * cols // block)
    x = np.full((3, cols), sign, np.float32)

    ours = kernels.matmul(kernels.Weight(data, name, 17, cols), x, isa=isa)

    expected = matmul_reference.matmul(one * (cols // block), name, 1, x[:1])[0, 0]
    assert np.array_equal(ours, np.full((3, 17), expected, np.float32))


@settings(max_examples=60, deadline=None)
@given(kind=st.sampled_from(["q8_32", "q8_256"]), seed=seeds, hostile=st.sampled_from([0.0, 0.01]))
def test_activations_are_rounded_alike_in_every_set(kind: str, seed: int, hostile: float) -> None:
    rng = np.random.default_rng(seed)
    x = random_activations(rng, 3, 512, hostile)
    stored = {isa: kernels.quantize_activations(x, kind, isa) for isa in kernels.runnable_isas()}
    block = int(kind[3:])
    with np.errstate(all="ignore"):
        integers, scales = matmul_reference.quantize(x[0], block)
    raw = stored["portable"][0]
    size = {32: 48, 256: 384}[block]
    for b, (expected, scale) in enumerate(zip(integers, scales, strict=True)):
        here = raw[b * size : (b + 1) * size]
        assert here[:block].view(np.int8).tolist() == expected
        d = here[32:36] if block == 32 else here[368:372]
        assert same_bits(d.view(np.float32), np.float32([scale]))

    for isa in FAST:
        assert same_bits(stored[isa].view(np.float32), stored["portable"].view(np.float32))


@pytest.mark.parametrize("isa", kernels.runnable_isas())
def test_infinity_in_an_activation_makes_its_row_nan_and_no_other(isa: str) -> None:
    rng = np.random.default_rng(1)
    for name in BLOCK_FORMATS:
        weight = kernels.Weight(random_data(rng, name, 20, 512), name, 20, 512)
        x = random_activations(rng, 4, 512)
        clean = kernels.matmul(weight, x, isa=isa)
        x[2, 300] = np.inf
        ours = kernels.matmul(weight, x, isa=isa)

        assert np.isnan(ours[2]).all()
        assert np.array_equal(ours[[0, 1, 3]], clean[[0, 1, 3]])


@pytest.mark.parametrize("name", FORMATS)
def test_products_are_near_those_of_the_dequantized_weight(name: str) -> None:
    rng = np.random.default_rng(2)
    x = rng.standard_normal((5, 1024)).astype(np.float32)
    w = rng.standard_normal((48, 1024)).astype(np.float32) * np.float32(0.05)
    weight = kernels.Weight(kernels.quantize(w, name), name, 48, 1024)
    exact = x.astype(np.float64) @ weight.dequantize().astype(np.float64).T

    error = np.sqrt(np.mean((kernels.matmul(weight, x) - exact) ** 2) / np.mean(exact**2))

    # Activations have 8 bits beside the largest of 32 or 256.
    assert error < (1e-6 if FORMATS[name][0] == 1 else 0.012)


def test_results_may_replace_the_residual() -> None:
    rng = np.random.default_rng(6)
    weight = kernels.Weight(random_data(rng, "Q4_K", 30, 256), "Q4_K", 30, 256)
    x, residual = random_activations(rng, 3, 256), random_activations(rng, 3, 30)

    assert np.array_equal(
        kernels.matmul(weight, x, residual=residual), residual + kernels.matmul(weight, x, residual=None)
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"x": np.zeros((1, 31), np.float32)}, "x has 31 columns, the weight 32"),
        ({"bias": np.zeros(2, np.float32)}, "bias must have a value for each row"),
        ({"residual": np.zeros((1, 2), np.float32)}, "residual must have the shape of the result"),
        ({"row_splits": [2]}, "splits must increase"),
        ({"isa": "sse9"}, "no kernel set 'sse9' on this CPU"),
    ],
)
def test_bad_arguments_say_what_is_wrong(arguments: dict[str, object], message: str) -> None:
    weight = kernels.Weight(bytes(18 * 3), "Q4_0", 3, 32)
    with pytest.raises(ValueError, match=message):
        kernels.matmul(weight, **{"x": np.zeros((1, 32), np.float32), **arguments})


@pytest.mark.skipif(sys.platform != "linux", reason="the resident pages of a mapping are known on Linux only")
def test_packing_a_mapped_file_gives_up_its_pages_as_it_goes(tmp_path):
    """And packs the same: the whole file and its packed form are never in memory together."""
    rows, cols = 4096, 1024
    values = np.random.default_rng(0).standard_normal((rows, cols)).astype(np.float32)
    (tmp_path / "w").write_bytes(values.tobytes())
    with (tmp_path / "w").open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapping:
        kept = kernels.Weight(mapping, "F32", rows, cols)
        before = resident(mapping)
        packed = kernels.Weight(mapping, "F32", rows, cols, mapped=True)
        after = resident(mapping)
        some = np.array([0, 17, 4095], np.int32)
        assert np.array_equal(packed.dequantize(some), values[some])
        assert np.array_equal(packed.dequantize(some), kept.dequantize(some))
    assert before >= 0.9 * rows * cols * 4
    assert after <= 0.05 * rows * cols * 4


def resident(mapping: mmap.mmap) -> int:
    """Return how many bytes of a mapping are in this process's memory."""
    address = np.frombuffer(mapping, np.uint8).ctypes.data  # released again at once
    inside, size = False, 0
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            begin, end = (int(x, 16) for x in line.split()[0].split("-"))
            inside = begin <= address < end
        elif inside and line.startswith("Rss:"):
            size = 1024 * int(line.split()[1])
    return size
