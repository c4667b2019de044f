"""A package of another age is refused at import, by name, with the command that mends it."""

import subprocess
import sys
from types import ModuleType

import pytest

import llamay_models
from llamay_models.errors import InterfaceError
from llamay_models.interfaces import USES, check


def package(**interfaces):
    module = ModuleType("llamay_kernels")
    module.INTERFACE = interfaces
    return module


@pytest.mark.parametrize(
    ("offered", "message"),
    [
        (
            {"plan": (2, 0)},
            r"needs interface plan 1\.2 but the installed llamay-kernels offers 2\.0; run: pip install",
        ),
        (
            {"plan": (0, 9)},
            r"needs interface plan 1\.2 but the installed llamay-kernels offers 0\.9; run: pip install",
        ),
        (
            {"plan": (1, 1)},
            r"needs interface plan 1\.2 but the installed llamay-kernels offers 1\.1; run: pip install",
        ),
        (
            {},
            r"needs interface plan 1\.2 but the installed llamay-kernels does not offer it; run: pip install",
        ),
    ],
)
def test_a_version_that_does_not_fit_is_refused(offered, message):
    with pytest.raises(InterfaceError, match=message):
        check("llamay-models", package(**offered), {"plan": (1, 2)})


@pytest.mark.parametrize("version", [(1, 2), (1, 3)])
def test_a_version_that_fits_passes(version):
    check("llamay-models", package(plan=version), {"plan": (1, 2)})


@pytest.mark.parametrize("name", [module.__name__ for module in USES])
def test_importing_beside_a_wrong_package_fails_at_once(name):
    newer = f"{{k: (v[0] + 1, 0) for k, v in {name}.INTERFACE.items()}}"
    code = f"import {name}; {name}.INTERFACE = {newer}; import llamay_models"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("llamay_models.errors.InterfaceError: llamay-models needs interface")
    assert f"the installed {name.replace('_', '-')} offers 2.0; run: pip install" in last


def test_what_the_package_offers_is_there_and_in_order():
    names = llamay_models.__all__
    assert all(hasattr(llamay_models, name) for name in names)
    assert names == sorted(set(names), key=lambda name: (name.islower(), not name.isupper(), name))


def test_every_error_is_a_llamay_error():
    errors = llamay_models.errors
    assert all(issubclass(getattr(errors, name), errors.LlamayError) for name in errors.__all__)
    assert all(name in (errors.__doc__ or "") for name in errors.__all__)
