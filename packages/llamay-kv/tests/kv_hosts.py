"""Import other engines' base classes: installed, or from the folder of an unpacked wheel, without a GPU."""

import importlib
import os
import sys
import types
import warnings
from pathlib import Path

import pytest


def host(name, module, *bare):
    """Return a module of an engine; skip if it is not here.

    `LLAMAY_TEST_<NAME>` names the folder of an unpacked wheel. Packages in `bare` are then entered without running
    their `__init__`, which imports the whole engine.
    """
    variable = f"LLAMAY_TEST_{name.upper()}"
    folder = os.environ.get(variable)
    if folder:
        for package in bare:
            entry = types.ModuleType(package)
            entry.__path__ = [str(Path(folder, *package.split(".")))]
            sys.modules.setdefault(package, entry)
        if folder not in sys.path:
            sys.path.append(folder)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # theirs are not ours to mend
            return importlib.import_module(module)
    except ImportError as error:
        reason = f"needs {name}, installed or unpacked where {variable} says ({error})"
        pytest.skip(reason, allow_module_level=True)
