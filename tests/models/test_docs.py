"""What the documentation shows runs as it stands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.model


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "docs/python.md",
        "docs/engine.md",
        "docs/architectures.md",
        "docs/embeddings.md",
        "docs/sampling.md",
        "docs/tool-calls.md",
        "packages/llamay-grammar/README.md",
        "packages/llamay-kernels/README.md",
        "packages/llamay-models/README.md",
    ],
)
def test_the_examples_of_a_page_run_one_after_the_other(page, model_file, tmp_path):
    # Guides have tests of their own, which follow them in a copy of the package.
    text = re.sub(r"^## To add .*?(?=^## |\Z)", "", (ROOT / page).read_text(), flags=re.M | re.S)
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
    runnable = [b for b in blocks if not b.startswith("def ")]
    assert runnable
    (tmp_path / "SmolLM2-135M-Instruct.Q4_1.gguf").symlink_to(model_file("smollm2"))
    (tmp_path / "example.py").write_text("\n".join(runnable))
    result = subprocess.run(
        [sys.executable, "-W", "error", "example.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
