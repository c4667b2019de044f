"""Install what the tests of foreign clients need: JavaScript packages, and the official clients' own suites.

    python install.py FOLDER

FOLDER gets `node_modules` (from package.json beside this file) and `suites` (unpacked source archives of the Python
clients). What is there already is left alone.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).parent


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    npm = shutil.which("npm")
    if npm is None:
        print("npm is not installed: the JavaScript clients and the agents are left out", file=sys.stderr)
    elif not (folder / "node_modules").is_dir():
        shutil.copy(HERE / "package.json", folder)
        subprocess.run([npm, "install", "--no-audit", "--no-fund"], cwd=folder, check=True)
    suites = folder / "suites"
    for name in ("openai", "anthropic"):
        if any(suites.glob(f"{name}-*/")):
            continue
        suites.mkdir(exist_ok=True)
        release = f"{name}=={version(name)}"  # a later suite would test what the client here does not have
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", release],
            cwd=suites,
            check=True,
        )
        for archive in suites.glob(f"{name}-*.tar.gz"):
            with tarfile.open(archive) as files:
                files.extractall(suites, filter="data")
            archive.unlink()


if __name__ == "__main__":
    main()
