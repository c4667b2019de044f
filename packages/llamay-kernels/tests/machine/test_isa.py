"""Choosing a kernel set, and the promises of the build about each set's objects."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import llamay_kernels as lk
from llamay_kernels import _kernels

PACKAGE = Path(__file__).parents[2]
OBJECTS = sorted(PACKAGE.glob("build/*/CMakeFiles/kernels_*.dir/cpp/**/isa_*.o"))
SETS = ("avx512_vnni", "avx512", "avx_vnni", "avx2", "neon_i8mm", "neon_dotprod", "neon", "portable")


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """In a new process, for which nothing was chosen yet."""
    path = [str(Path(lk.__file__).parents[1]), *(p for p in sys.path if p)]
    env = {k: v for k, v in os.environ.items() if k != "LLAMAY_ISA"}
    env |= {"PYTHONPATH": os.pathsep.join(path), **environment}
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)


@pytest.mark.skipif(not OBJECTS or not shutil.which("nm"), reason="needs a build folder and nm")
@pytest.mark.parametrize("path", OBJECTS, ids=lambda p: "/".join(p.parts[-4:]))
def test_an_object_of_a_kernel_set_defines_its_table_and_nothing_else(path):
    # A weak (inline) symbol built for AVX-512 could become the copy that every CPU runs.
    names = subprocess.check_output(
        ["nm", "--extern-only", "--defined-only", "--format=just-symbols", path], text=True
    ).split()
    built_for = (
        next(p for p in path.parts if p.startswith("kernels_")).removeprefix("kernels_").removesuffix(".dir")
    )
    assert len(names) == 1
    assert re.fullmatch(rf"llamay_[a-z0-9_]+?_{built_for}", names[0])


def test_portable_always_runs_and_the_fastest_comes_first():
    sets = lk.runnable_isas()
    assert sets[-1] == "portable"
    assert sets == [s for s in SETS if s in sets]


def test_the_fastest_set_is_used_unless_told():
    result = run("import llamay_kernels as k; print(k.isa())")
    assert result.stdout.strip() == lk.runnable_isas()[0], result.stderr


@pytest.mark.parametrize("isa", lk.runnable_isas())
def test_forcing_a_set_by_the_environment_runs_what_was_compiled_for_it(isa):
    code = "from llamay_kernels import _kernels as k; print(k.isa(), k.compiled_for())"
    result = run(code, LLAMAY_ISA=isa)
    assert result.stdout.split() == [isa, isa], result.stderr


def test_an_unknown_set_fails_the_import_naming_the_choices():
    result = run("import llamay_kernels", LLAMAY_ISA="sse9")
    assert result.returncode != 0
    choices = ", ".join(lk.runnable_isas())
    assert f"no kernel set 'sse9' on this CPU; it can run: {choices}" in result.stderr


def test_use_isa_switches_and_refuses_unknown_names():
    before = lk.isa()
    try:
        for isa in lk.runnable_isas():
            lk.use_isa(isa)
            assert lk.isa() == isa == _kernels.compiled_for()
        choices = ", ".join(lk.runnable_isas())
        with pytest.raises(ValueError, match=rf"no kernel set 'sse9' on this CPU; it can run: {choices}"):
            lk.use_isa("sse9")
        assert lk.isa() == lk.runnable_isas()[-1]
    finally:
        lk.use_isa(before)


def test_the_public_names_are_these():
    assert lk.INTERFACE == {"plan": (1, 2)}
    assert lk.ARITHMETIC == 1
    assert len(set(lk.__all__)) == len(lk.__all__)
    assert all(hasattr(lk, name) for name in lk.__all__)
