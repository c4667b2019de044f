"""Weights of the stand-in: their values in float64."""

from __future__ import annotations

import numpy as np

import llamay_kernels as kernels


class Weight:
    """The values that the bytes of a tensor stand for."""

    def __init__(self, data, format, rows, cols, *, name="", threads=None, mapped=False):  # noqa: A002
        values = kernels.dequantize(data, format, rows * cols)
        self.name, self.format, self.rows, self.cols = name, format, rows, cols
        self._values = values.reshape(rows, cols).astype(np.float64)
        self._values.flags.writeable = False
        self.nbytes = self._values.nbytes

    def dequantize(self):
        return self._values
