"""The stand-in engine and the running server of the package's own tests, for tests that cross packages."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "packages" / "llamay-server" / "tests"

if "llamay_server_tests" not in sys.modules:
    spec = importlib.util.spec_from_file_location(
        "llamay_server_tests", FOLDER / "__init__.py", submodule_search_locations=[str(FOLDER)]
    )
    assert spec is not None
    sys.modules["llamay_server_tests"] = importlib.util.module_from_spec(spec)
