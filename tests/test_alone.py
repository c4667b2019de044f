"""The packages that other engines adopt install from their source distribution with nothing else of the project."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]

GRAMMAR = """
import json, sys
import numpy as np
import llamay_grammar as lg

vocabulary = lg.Vocabulary.from_tokenizer_json("tokenizer.json", end=["</s>"])
schema = {"type": "object", "properties": {"age": {"type": "integer", "minimum": 0}}, "required": ["age"]}
matcher = lg.compile_json_schema(schema, vocabulary).matcher()
mask = np.empty(vocabulary.mask_words, np.uint32)
text = '{"age": 7}'
by_bytes = {vocabulary.bytes_of(t): t for t in range(len(vocabulary))}
assert not matcher.allows(by_bytes[b"x"])
for byte in text.encode():
    matcher.fill_mask(mask)
    token = by_bytes[bytes([byte])]
    assert mask[token >> 5] >> (token & 31) & 1, byte
    matcher.accept(token)
assert matcher.is_complete
"""

KV = """
import sys
import numpy as np
from llamay_kv import Layout, Pool

pool = Pool(Layout.uniform(n_layers=2, kv_heads=2, k_dim=4, v_dim=4, precision="f16"), budget_bytes=1 << 20)
context = pool.context()
with context.reserve(3) as lease:
    for layer in range(2):
        lease.write(layer, np.ones((3, 2, 4), "f4"), np.ones((3, 2, 4), "f4"))
    lease.commit([11, 12, 13])
fork = context.fork()
assert list(fork.tokens) == [11, 12, 13]
assert fork.read(0)[0].shape == (3, 2, 4)
"""

LOADED = """
print(sorted({name.split(".")[0] for name in sys.modules}))
"""
# What may be there besides the standard library: the package, and what it declares.
ALONE: dict[str, tuple[str, set[str], set[str]]] = {
    "llamay-grammar": (
        GRAMMAR,
        {"llamay-grammar", "nanobind-backend", "numpy"},
        {"nanobind_backend", "numpy"},
    ),
    "llamay-kv": (
        KV,
        {"llamay-kv", "nanobind-backend", "numpy", "cryptography", "cffi", "pycparser"},
        {"nanobind_backend", "numpy", "cryptography", "cffi", "_cffi_backend"},
    ),
}


def run(*command: Any, **options: Any) -> str:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def tokenizer_json() -> dict[str, Any]:
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    letters = [*map(chr, printable), *(chr(0x100 + n) for n in range(len(others)))]
    return {
        "model": {"type": "BPE", "vocab": {letter: n for n, letter in enumerate(letters)}, "merges": []},
        "added_tokens": [{"id": 256, "content": "</s>", "special": True}],
        "decoder": {"type": "ByteLevel"},
    }


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", ALONE)
def test_a_package_installs_and_works_alone(name: str, tmp_path: Path) -> None:
    script, packages, modules = ALONE[name]
    if not (ROOT / ".git").exists():
        pytest.skip("needs the repository, to copy what belongs to it")
    clean = tmp_path / "clean"
    for file in run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT).split(
        "\0"
    ):
        if file and (ROOT / file).is_file():
            (clean / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / file, clean / file)
    run(
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "-t",
        "sdist",
        "-d",
        tmp_path,
        cwd=clean / "packages" / name,
    )
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    shutil.rmtree(clean)
    source = next((tmp_path / "unpacked").iterdir())
    assert not {p.name for p in source.iterdir()} & {"build", "tests", ".hypothesis"}
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path, cwd=source)

    run(sys.executable, "-m", "venv", tmp_path / "venv")
    python = tmp_path / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python"
    wheel = next(tmp_path.glob("*.whl"))
    installed = subprocess.run(
        [python, "-m", "pip", "install", "--no-input", "--quiet", wheel],
        capture_output=True,
        text=True,
        check=False,
    )
    if "Could not find a version" in installed.stderr or "NewConnectionError" in installed.stderr:
        pytest.skip("its dependencies cannot be fetched here")
    assert installed.returncode == 0, installed.stderr[-3000:]
    listed = json.loads(run(python, "-m", "pip", "list", "--format=json"))
    assert {p["name"].lower().replace("_", "-") for p in listed} - {"pip", "setuptools"} <= packages

    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer_json()), "utf-8")
    code = "import sys; before = set(sys.modules)\n" + script + LOADED
    loaded = set(json.loads(run(python, "-I", "-c", code, cwd=tmp_path).replace("'", '"')))
    foreign = {m for m in loaded if m not in sys.stdlib_module_names and not m.startswith("__")}
    own = name.replace("-", "_")
    assert {m for m in foreign if not m.startswith(("_distutils", "_virtualenv", "sitecustomize"))} <= {
        own,
        *modules,
    }
