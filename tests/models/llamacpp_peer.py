"""llama.cpp, where its wheel is installed, in a process of its own: two engines in one would share its threads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest


def ask(program: str, arguments: Any) -> list[Any]:
    """Run a program with `arguments` as JSON in its first argument; gives what it prints, a JSON value a line.

    Skips the test where there is no llama.cpp.
    """
    python = os.environ.get("LLAMAY_PEER_PYTHON", sys.executable)
    if subprocess.run([python, "-c", "import xllamacpp"], capture_output=True, check=False).returncode:
        pytest.skip(
            "no llama.cpp to compare with: pip install xllamacpp, or name its Python in LLAMAY_PEER_PYTHON"
        )
    out = subprocess.run(
        [python, "-c", program, json.dumps(arguments)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return [json.loads(line) for line in out.stdout.splitlines() if line.startswith(("{", "["))]
