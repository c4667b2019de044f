"""Rotary frequencies are those of the papers, correctly rounded."""

import math

import numpy as np
import pytest

from llamay_models.plan import LinearScaling, Llama3Scaling, Rope, YarnScaling


@pytest.mark.parametrize("dims", [2, 8, 64, 96, 128, 256])
@pytest.mark.parametrize("base", [10000.0, 100000.0, 1000000.0, 500000.0])
def test_plain_frequencies_are_powers_of_the_base(dims, base):
    freqs = Rope(dims, base).frequencies()
    assert freqs.shape == (dims // 2,)
    assert freqs[0] == 1.0
    np.testing.assert_allclose(freqs, base ** (-2.0 * np.arange(dims // 2) / dims), rtol=1e-15)


def test_exact_powers_come_out_exactly():
    assert Rope(8, 10000.0).frequencies().tolist() == [1.0, 0.1, 0.01, 0.001]
    assert Rope(4, 1048576.0).frequencies().tolist() == [1.0, 1 / 1024]


def test_linear_scaling_divides():
    np.testing.assert_array_equal(
        Rope(8, 10000.0, scaling=LinearScaling(4.0)).frequencies(), Rope(8, 10000.0).frequencies() / 4
    )


def test_factors_divide_before_scaling():
    factors = np.array([1, 2, 4, 8], np.float32)
    rope = Rope(8, 10000.0, scaling=LinearScaling(2.0))
    np.testing.assert_allclose(
        rope.frequencies(factors), Rope(8, 10000.0).frequencies() / factors / 2, rtol=1e-15
    )


def test_yarn_keeps_fast_pairs_and_divides_slow_ones():
    rope = Rope(128, 10000.0, scaling=YarnScaling(4.0, 4096))
    plain, freqs = Rope(128, 10000.0).frequencies(), rope.frequencies()
    # The dimension at which a pair makes n turns in the original context (the paper's equation 17).
    dimension = [128 * math.log(4096 / (n * 2 * math.pi)) / (2 * math.log(10000.0)) for n in (32.0, 1.0)]
    low, high = math.floor(dimension[0]), math.ceil(dimension[1])
    ramp = np.clip((np.arange(64) - low) / (high - low), 0, 1)
    np.testing.assert_allclose(freqs, plain / 4 * ramp + plain * (1 - ramp), rtol=1e-14)
    assert freqs[0] == plain[0]
    assert freqs[-1] == pytest.approx(plain[-1] / 4, rel=1e-15)
    assert rope.factor == pytest.approx(0.1 * math.log(4.0) + 1, rel=1e-15)


def test_yarn_without_stretching_changes_nothing():
    rope = Rope(64, 10000.0, scaling=YarnScaling(1.0, 4096))
    np.testing.assert_allclose(rope.frequencies(), Rope(64, 10000.0).frequencies(), rtol=1e-15)
    assert rope.factor == 1.0


def test_llama3_divides_long_wavelengths():
    rope = Rope(128, 500000.0, scaling=Llama3Scaling(8.0, 8192, 1.0, 4.0))
    plain, freqs = Rope(128, 500000.0).frequencies(), rope.frequencies()
    wavelength = 2 * math.pi / plain
    smooth = np.clip((8192 / wavelength - 1.0) / (4.0 - 1.0), 0, 1)
    np.testing.assert_allclose(freqs, plain / 8 * (1 - smooth) + plain * smooth, rtol=1e-13)
    assert (freqs[wavelength < 8192 / 4] == plain[wavelength < 8192 / 4]).all()
