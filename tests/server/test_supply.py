"""What a server is made of is pinned with hashes, and a release can say it as a bill of materials."""

from __future__ import annotations

import importlib.metadata
import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LOCK = ROOT / ".ci" / "requirements.txt"


def pins() -> dict[str, tuple[str, list[str]]]:
    """Version and hashes of each name in the lock."""
    found: dict[str, tuple[str, list[str]]] = {}
    for entry in LOCK.read_text().replace("\\\n", " ").splitlines():
        need, *hashes = entry.split("--hash=")
        pinned = re.fullmatch(r"([A-Za-z0-9._-]+)==([^\s;]+)\s*(;.*)?", need.strip())
        assert pinned, f"only exact versions are locked: {need}"
        found[canonicalize_name(pinned[1])] = (pinned[2], [h.strip() for h in hashes])
    return found


def wanted() -> list[Requirement]:
    """What our packages say they need, from outside."""
    needs = []
    for path in ROOT.glob("packages/*/pyproject.toml"):
        project = tomllib.loads(path.read_text())["project"]
        server = project["name"] == "llamay-server"
        extra = project.get("optional-dependencies", {}).get("otel", []) if server else []
        needs += [Requirement(text) for text in (*project["dependencies"], *extra)]
    return [need for need in needs if not need.name.startswith("llamay")]


def test_j28_every_pin_has_a_hash_of_each_file():
    for name, (_, hashes) in pins().items():
        assert hashes, name
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", h) for h in hashes), name


def test_j28_the_pins_are_what_the_packages_ask_for():
    locked = pins()
    for need in wanted():
        name = canonicalize_name(need.name)
        assert name in locked, f"{name} is not locked; run .ci/supply lock"
        assert need.specifier.contains(locked[name][0]), f"{need} but {locked[name][0]} is locked"


def test_j28_what_those_need_in_turn_is_pinned_too():
    locked, seen = pins(), set()
    open_names = [canonicalize_name(need.name) for need in wanted()]
    while open_names:
        name = open_names.pop()
        if name in seen:
            continue
        seen.add(name)
        assert name in locked, f"{name} is not locked; run .ci/supply lock"
        try:
            needs = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue  # of an extra, or for another system
        for need in map(Requirement, needs):
            if need.marker is None or need.marker.evaluate({"extra": ""}):
                open_names.append(canonicalize_name(need.name))
    assert len(seen) > 25


def test_j28_the_bill_of_materials_names_every_pin_with_its_hashes(tmp_path):
    if shutil.which("cyclonedx-py", path=Path(sys.executable).parent) is None:
        pytest.skip("cyclonedx-bom is not installed")
    out = tmp_path / "llamay.cdx.json"
    environment = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    subprocess.run([ROOT / ".ci" / "supply", "sbom", out], check=True, env=environment)
    bill = json.loads(out.read_text())
    assert bill["bomFormat"] == "CycloneDX"
    told = {}
    for component in bill["components"]:
        hashes = [h["content"] for ref in component["externalReferences"] for h in ref.get("hashes", ())]
        assert component["purl"] == f"pkg:pypi/{component['name']}@{component['version']}"
        told[canonicalize_name(component["name"])] = (component["version"], {f"sha256:{h}" for h in hashes})
    assert told == {name: (version, set(hashes)) for name, (version, hashes) in pins().items()}
