"""One version for all, and every package pinned to it."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
VERSION = re.search(r'__version__ = "(.+)"', (ROOT / "version.py").read_text())
PROJECTS = [ROOT / "pyproject.toml", *sorted(ROOT.glob("packages/*/pyproject.toml"))]


def project(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text())["project"]


@pytest.mark.parametrize("path", PROJECTS, ids=lambda p: p.parent.name)
def test_every_package_takes_its_version_from_the_one_file(path: Path) -> None:
    config = tomllib.loads(path.read_text())

    assert config["project"]["dynamic"] == ["version"]
    assert (path.parent / config["tool"]["hatch"]["version"]["path"]).resolve() == ROOT / "version.py"


@pytest.mark.parametrize("path", PROJECTS, ids=lambda p: p.parent.name)
def test_siblings_are_pinned_to_exactly_this_version(path: Path) -> None:
    assert VERSION
    own = [d for d in project(path).get("dependencies", []) if d.startswith("llamay-")]

    assert all(d.endswith(f"=={VERSION[1]}") for d in own), own


def test_the_distribution_joins_the_six() -> None:
    members = {project(path)["name"] for path in PROJECTS[1:]}
    joined = {d.split("==")[0] for d in project(PROJECTS[0])["dependencies"]}

    assert len(members) == 6
    assert joined == members


def test_nanobind_backend_has_no_upper_bound() -> None:
    """Extensions of different ages must be able to share one backend."""
    for path in PROJECTS:
        for dependency in project(path).get("dependencies", []):
            if dependency.startswith("nanobind-backend"):
                assert re.fullmatch(r"nanobind-backend>=[\d.]+", dependency)
