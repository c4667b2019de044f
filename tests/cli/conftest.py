"""The command as a user runs it: a process of its own, with a store of its own, on a small real model."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data(shared_data: Path) -> Path:
    return shared_data


@pytest.fixture(scope="session")
def stories(data: Path) -> Path:
    return data / "models" / "stories260K.gguf"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "LLAMAY_HOME": str(tmp_path / "home"), "NO_COLOR": "1"}


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def llamay(environment: dict[str, str], tmp_path: Path) -> Run:
    """Run `llamay ARGUMENTS` in an empty folder; stdin is empty unless given."""

    def run(*arguments: object, stdin: str = "", timeout: float = 120) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "llamay_cli", *map(str, arguments)],
            input=stdin,
            capture_output=True,
            text=True,
            env=environment,
            cwd=tmp_path,
            timeout=timeout,
        )

    return run
