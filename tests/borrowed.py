"""Modules of the packages' own tests, for tests that cross packages."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

PACKAGES = Path(__file__).parents[1] / "packages"


def borrowed(package: str, name: str) -> ModuleType:
    """Return the module `name` of the tests of a package, loaded once.

    Its folder stands for a package, so that it may import modules that lie beside it.
    """
    folder = PACKAGES / package / "tests"
    around = f"{package.replace('-', '_')}_tests"
    if around not in sys.modules:
        sys.modules[around] = ModuleType(around)
        sys.modules[around].__path__ = [str(folder)]
    known = f"{around}.{name}"
    if known not in sys.modules:
        spec = importlib.util.spec_from_file_location(known, folder / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[known] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[known])
    return sys.modules[known]
