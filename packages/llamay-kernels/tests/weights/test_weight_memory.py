"""The memory of weights: their own bytes, side by side, and given back as soon as each weight is dropped."""

import os
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from llamay_kernels import FORMATS, Weight

MEBI = 1 << 20
# In slabs of a few huge pages five of these would leave a gap as large as half of one more.
ROWS, COLS = 4864, 896

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
    pytest.mark.skipif(
        "asan" in os.environ.get("LD_PRELOAD", ""), reason="AddressSanitizer keeps freed memory"
    ),
]


def anonymous() -> int:
    found = re.search(r"^RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) << 10


def test_weights_take_their_bytes_and_give_them_back_one_by_one():
    block, size = FORMATS["Q4_0"]
    data = np.ones(ROWS * COLS // block * size, np.uint8)
    keeps_the_mapping = Weight(data[: size * 2], "Q4_0", 1, 2 * block)
    before = anonymous()
    weights = [Weight(data, "Q4_0", ROWS, COLS) for _ in range(30)]
    total = sum(w.nbytes for w in weights)
    assert total > 60 * MEBI
    assert total - 4 * MEBI < anonymous() - before < total + 6 * MEBI
    expected = weights[-1].dequantize(np.array([7], np.int32))
    del weights[:-1:2]
    assert anonymous() - before < 0.55 * total + 6 * MEBI
    assert (weights[-1].dequantize(np.array([7], np.int32)) == expected).all()
    weights.clear()
    assert anonymous() - before < 6 * MEBI
    assert keeps_the_mapping.nbytes
