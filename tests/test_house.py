"""Imports go down only: cli -> server -> models -> kernels, kv, grammar; the ground floor stands alone."""

import ast
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAY_IMPORT: dict[str, set[str]] = {
    "llamay_kernels": set(),
    "llamay_kv": set(),
    "llamay_grammar": set(),
    "llamay_models": {"llamay_kernels", "llamay_kv"},
    "llamay_server": {"llamay_models", "llamay_kv", "llamay_grammar"},
    "llamay_cli": {"llamay_server", "llamay_models", "llamay_kernels", "llamay_kv", "llamay_grammar"},
}

# What lies at the top of a package's folder.
ENTRIES = {"CMakeLists.txt", "README.md", "cpp", "pyproject.toml", "src", "tests"}
MORE_ENTRIES = {"llamay-models": {"fuzz"}}


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.split(".")[0])
    return {name for name in names if name == "llamay" or name.startswith("llamay_")}


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_a_package_imports_only_what_lies_below_it(package: str) -> None:
    sources = sorted((ROOT / "packages" / package.replace("_", "-") / "src").rglob("*.py"))

    assert sources
    for path in sources:
        above = imported(path) - MAY_IMPORT[package] - {package}
        assert not above, f"{path.relative_to(ROOT)} imports {', '.join(sorted(above))}"


@pytest.mark.parametrize("package", ["llamay_kernels", "llamay_kv", "llamay_grammar", "llamay_models"])
def test_native_code_crosses_packages_only_by_the_shared_headers(package: str) -> None:
    folder = ROOT / "packages" / package.replace("_", "-")
    for path in [*folder.rglob("*.hpp"), *folder.rglob("*.cpp"), *folder.rglob("*.h")]:
        for line in path.read_text().splitlines():
            if line.startswith("#include") and "packages/" in line:
                pytest.fail(f"{path.relative_to(ROOT)} reaches into another package: {line}")


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_a_package_folder_holds_nothing_else(package: str) -> None:
    """A file that does not belong there, such as the output of a tool, would be published with the package."""
    folder = "packages/" + package.replace("_", "-")
    listed = subprocess.run(
        ["git", "ls-files", "-z", folder], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("needs a git checkout")
    found = {name.split("/")[2] for name in listed.stdout.split("\0") if name}

    known = ENTRIES | MORE_ENTRIES.get(folder.partition("/")[2], set())
    assert found <= known, f"{folder} holds {', '.join(sorted(found - known))}"
