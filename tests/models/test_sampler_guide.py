"""The guide to adding a sampler, followed to the letter: the stage is compiled, and does what its reference says."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ..borrowed import borrowed
from ..guides import DOCS, apply_diff, copy_sources, examples

KERNELS = DOCS.parent / "packages" / "llamay-kernels"
TITLE = "To add a sampler"
# Prints the log-probabilities that are left after the stages, or the error.
DRIVER = r"""
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <vector>

#include "sampling/sampler.hpp"

int main(int, char** args) try {
  llamay::SamplerOptions options;
  options.top_a = std::atof(args[1]);
  options.temperature = std::atof(args[2]);
  options.samplers = {"temperature", args[3]};
  std::vector<float> logits;
  for (float logit; std::scanf("%f", &logit) == 1;) logits.push_back(logit);
  llamay::Sampler sampler(options);
  llamay::LogProbs left;
  sampler.sample({logits.data(), logits.size(), 0, nullptr, 0, nullptr}, &left, logits.size());
  std::printf("{");
  for (std::size_t i = 0; i < left.top.size(); ++i)
    std::printf("%s\"%u\": %.17g", i ? ", " : "", left.top[i].first, left.top[i].second);
  std::printf("}");
} catch (const std::exception& error) {
  std::fputs(error.what(), stderr);
  return 1;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which(os.environ.get("CXX", "c++"))
    if compiler is None:
        pytest.skip("needs a C++ compiler")
    folder = tmp_path_factory.mktemp("cpp")
    cpp = copy_sources(KERNELS / "cpp", folder)
    (diff,) = examples("sampling.md", TITLE, "diff")
    apply_diff(diff, folder)
    (cpp / "driver.cpp").write_text(DRIVER)
    stages = ("candidates", "dry", "isa_sampling", "mirostat", "stages")
    names = ("options", "sampler", *(f"chain/{name}" for name in stages))
    command = [compiler, "-std=c++20", "-O0", "-Wall", "-Wextra", "-Werror", "-I.", "-DLLAMAY_ISA=portable"]
    # Without LLAMAY_X86 and LLAMAY_ARM64 there is the portable set of kernels only.
    sources = [f"sampling/{name}.cpp" for name in names]
    subprocess.run(
        [*command, *sources, "dispatch.cpp", "driver.cpp", "-o", "driver"],
        cwd=cpp,
        check=True,
        timeout=280,
    )
    return cpp / "driver"


def left(program: Path, logits: Any, a: float, temperature: float = 1.0, name: str = "top_a") -> Any:
    """The log-probabilities of the tokens that are left."""
    arguments = [str(program), str(a), str(temperature), name]
    text = " ".join(map(repr, map(float, logits)))
    done = subprocess.run(arguments, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(done.stderr)
    return {int(token): value for token, value in json.loads(done.stdout).items()}


@pytest.mark.parametrize("a", [0.0, 0.02, 0.2, 0.7, 1.0])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
@pytest.mark.parametrize("spread", [0.3, 2.0, 6.0])
def test_the_stage_keeps_what_its_reference_keeps(
    program: Path, a: float, temperature: float, spread: float
) -> None:
    reference = borrowed("llamay-kernels", "sampling_reference")
    names = {"probabilities": reference.probabilities, "only": reference.only}
    (code,) = examples("sampling.md", TITLE, "python")
    exec(code, names)
    top_a: Any = names["top_a"]
    logits = np.random.default_rng([int(100 * a), int(10 * spread)]).normal(0, spread, 300).astype(np.float32)
    heated = {token: float(logit) / temperature for token, logit in enumerate(logits)}
    wanted = reference.probabilities(top_a(heated, a))

    found = left(program, logits, a, temperature)

    assert found.keys() == wanted.keys()
    for token, log_probability in found.items():
        assert math.isclose(math.exp(log_probability), wanted[token], rel_tol=1e-4)


def test_its_range_and_unknown_names_are_refused(program: Path) -> None:
    with pytest.raises(ValueError, match=r"top_a must be 0 to 1, not 1\.5"):
        left(program, [0, 1], 1.5)
    with pytest.raises(ValueError, match="which is none of"):
        left(program, [0, 1], 0.5, name="top_b")


def files_with(option: str) -> set[str]:
    """The sources and pages that name an option. The page of samplers, and programs of tests, are left out."""
    folders = [*DOCS.parent.glob("packages/*/src"), KERNELS / "cpp", DOCS.parent / "src", DOCS]
    return {
        str(path.relative_to(DOCS.parent))
        for folder in folders
        for path in folder.rglob("*")
        if path.suffix in (".py", ".pyi", ".cpp", ".hpp", ".md")
        if path.parent.name != "tests"
        if path.name != "sampling.md"
        if re.search(rf"\b{option}\b", path.read_text("utf-8"))
    }


def test_the_guide_names_every_file_that_knows_an_option() -> None:
    """`typical_p` is known wherever all options are told, `min_p` in every place that tells some; nowhere else."""
    page = (DOCS / "sampling.md").read_text("utf-8").partition(f"## {TITLE}")[2]
    everywhere, _, common = page.partition("Other places tell the commonest options only")
    file = r"`((?:packages|docs)/[^`]+\.(?:pyi?|cpp|hpp|md))`"
    named = set(re.findall(file, everywhere)) - {"packages/llamay-kernels/tests/sampling_reference.py"}

    assert named == files_with("typical_p")
    assert set(re.findall(file, common)) == files_with("min_p") - named
