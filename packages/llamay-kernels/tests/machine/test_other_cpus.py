"""Kernel sets that this CPU cannot run: compiled for their own and emulated, they compute the same bits.

AVX-VNNI is compiled with the longer encoding of its instructions where the CPU has only that one; the Arm sets are
cross-compiled and run by qemu.
"""

import os
import platform
import shutil
import subprocess
from pathlib import Path

import pytest

DIGEST = Path(__file__).parents[2] / "cpp" / "digest"
X86 = platform.machine() in ("x86_64", "AMD64")
COMPILER, EMULATOR = (
    "aarch64-linux-gnu-g++",
    shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static"),
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("cmake"), reason="needs cmake"),
    pytest.mark.skipif(not DIGEST.exists(), reason="needs the C++ sources"),
]


def built(folder: Path, *options: str) -> Path:
    """kernel_digest, compiled."""
    for command in (
        ["cmake", "-S", DIGEST, "-B", folder, "-DCMAKE_BUILD_TYPE=Release", *options],
        ["cmake", "--build", folder, "--parallel", str(min(4, os.cpu_count() or 1))],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return folder / "kernel_digest"


def digests(*command: str | Path) -> dict[str, dict[str, str]]:
    """Checksums by kernel set and by computation."""
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    found: dict[str, dict[str, str]] = {}
    for line in lines:
        isa, what, value = line.split()
        found.setdefault(isa, {})[what] = value
    return found


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """The checksums of this CPU's sets, AVX-VNNI among them where the CPU has VNNI at all."""
    flags = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    options = ["-DLLAMAY_EVEX_VNNI=ON"] if "avx512_vnni" in flags else []
    program = built(tmp_path_factory.mktemp("here"), *options)
    return digests(program, *(["--all"] if options else []))


def test_every_set_that_can_run_here_computes_the_same(here: dict[str, dict[str, str]]) -> None:
    assert len(here["portable"]) > 40
    for isa, computed in here.items():
        assert computed == here["portable"], isa


@pytest.mark.skipif(not X86, reason="on Arm the tests above are the Arm sets' own")
@pytest.mark.skipif(not shutil.which(COMPILER), reason=f"needs the cross compiler {COMPILER}")
@pytest.mark.skipif(not EMULATOR, reason="needs qemu-aarch64 (qemu-user)")
def test_arm_sets_compute_what_the_portable_set_of_x86_does(
    here: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    program = built(
        tmp_path,
        "-DCMAKE_SYSTEM_NAME=Linux",
        "-DCMAKE_SYSTEM_PROCESSOR=aarch64",
        f"-DCMAKE_CXX_COMPILER={COMPILER}",
        "-DCMAKE_EXE_LINKER_FLAGS=-static",
    )
    found = digests(str(EMULATOR), "-cpu", "max", program, "--all")

    assert list(found) == ["portable", "neon", "neon_dotprod", "neon_i8mm"]
    for isa, computed in found.items():
        assert computed == here["portable"], isa

    def sets(cpu: str) -> list[str]:
        command = [str(EMULATOR), "-cpu", cpu, program, "--sets"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()

    assert sets("max") == ["neon_i8mm", "neon_dotprod", "neon", "portable"]
    assert sets("neoverse-n1") == ["neon_dotprod", "neon", "portable"]
    assert sets("cortex-a72") == ["neon", "portable"]
