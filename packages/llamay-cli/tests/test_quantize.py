"""`llamay quantize`: what it writes, what it says, and what it refuses."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llamay_models import gguf
from llamay_models.gguf import TensorData, write

Llamay = Callable[..., Any]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    values = np.random.default_rng(0).standard_normal((32, 256)).astype(np.float16)
    tensors = [
        TensorData("token_embd.weight", "F16", values.shape, values),
        TensorData("blk.0.ffn_up.weight", "F16", values.shape, values),
        TensorData("blk.0.ffn_norm.weight", "F32", (256,), np.ones(256, np.float32)),
    ]
    write(path, {"general.architecture": "llama"}, tensors)
    return path


def test_a_model_in_smaller_formats(llamay: Llamay, source: Path, tmp_path: Path) -> None:
    target = tmp_path / "small.gguf"

    result = llamay("quantize", str(source), str(target), "--type", "q4_k_m")

    assert result.exit_code == 0
    assert "bits a weight" in result.stdout
    with gguf.open(target) as file:
        assert {n: t.format for n, t in file.tensors.items()} == {
            "token_embd.weight": "Q6_K",
            "blk.0.ffn_up.weight": "Q4_K",
            "blk.0.ffn_norm.weight": "F32",
        }


def test_json_names_every_tensor(llamay: Llamay, source: Path, tmp_path: Path) -> None:
    target = tmp_path / "small.gguf"

    document = json.loads(llamay("quantize", str(source), str(target), "--type", "Q8_0", "--json").stdout)

    assert document["bytes"] == 2 * 32 * 256 * 34 // 32 + 1024
    assert document["tensors"][1] == {
        "name": "blk.0.ffn_up.weight",
        "from": "F16",
        "to": "Q8_0",
        "bytes": 8704,
        "is": "matrix",
    }
    assert (document["kept"], document["unknown"]) == (1, [])


def test_a_dry_run_writes_nothing(llamay: Llamay, source: Path, tmp_path: Path) -> None:
    result = llamay("quantize", str(source), str(tmp_path / "no.gguf"), "--type", "Q8_0", "--dry-run")

    assert result.exit_code == 0
    assert "tensors: Q8_0 2, F32 1\nkept as they are: vector 1\n" in result.stdout
    assert [p.name for p in tmp_path.glob("*.gguf")] == ["model.gguf"]


def of_names(path: Path, names: list[str], architecture: str = "llama") -> Path:
    """Write a model of square matrices of zeros."""
    values = np.zeros((256, 256), np.float16)
    tensors = [TensorData(name, "F16", values.shape, values) for name in names]
    write(path, {"general.architecture": architecture}, tensors)
    return path


def test_the_report_says_what_is_kept_and_names_what_no_rule_knows(llamay: Llamay, tmp_path: Path) -> None:
    names = ["token_embd.weight", "blk.0.ffn_gate_inp.weight", "blk.0.ssm_conv1d.weight"]
    model = of_names(tmp_path / "m.gguf", [*names, *(f"blk.{i}.odd.weight" for i in range(6))])
    command = ("quantize", str(model), str(tmp_path / "q.gguf"), "--type", "Q8_0")

    lines = llamay(*command).stdout.splitlines()

    assert lines[1:] == [
        "tensors: F16 8, Q8_0 1",
        "kept as they are: router 1, kernel of a convolution 1",
        "kept because no rule knows them: 6 (blk.0.odd.weight, blk.1.odd.weight, blk.2.odd.weight,"
        " blk.3.odd.weight, and 2 more)",
    ]
    document = json.loads(llamay(*command, "--dry-run", "--json").stdout)
    assert (document["kept"], document["unknown"]) == (8, [f"blk.{i}.odd.weight" for i in range(6)])


def test_an_architecture_without_rules_is_refused_by_name(llamay: Llamay, tmp_path: Path) -> None:
    model = of_names(tmp_path / "m.gguf", ["token_embd.weight"], "brandnew")

    result = llamay("quantize", str(model), str(tmp_path / "q.gguf"), "--type", "Q8_0", "--pure", "--force")

    assert result.exit_code == 1
    assert "there are no rules for the architecture 'brandnew'" in result.stderr
    assert not (tmp_path / "q.gguf").exists()


def test_a_file_that_is_there_is_replaced_only_by_force(llamay: Llamay, source: Path, tmp_path: Path) -> None:
    target = tmp_path / "small.gguf"
    target.write_bytes(b"precious")

    refused = llamay("quantize", str(source), str(target), "--type", "Q8_0")
    assert refused.exit_code == 5
    assert "small.gguf exists" in refused.stderr
    assert "--force replaces it" in refused.stderr
    assert target.read_bytes() == b"precious"

    assert llamay("quantize", str(source), str(target), "--type", "Q8_0", "--force").exit_code == 0
    assert target.read_bytes()[:4] == b"GGUF"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--type", "Q9"), 2, "there is no type 'Q9'"),
        (("--type", "Q8_0", "--output-type", "IQ9_S"), 2, "there is no format 'IQ9_S'"),
        ((), 2, "Missing option '--type'"),
    ],
)
def test_what_cannot_be_is_one_line(
    llamay: Llamay, source: Path, tmp_path: Path, arguments: tuple[str, ...], code: int, words: str
) -> None:
    result = llamay("quantize", str(source), str(tmp_path / "q.gguf"), *arguments)

    assert result.exit_code == code
    assert words in result.stderr
    assert "Traceback" not in result.output


def test_a_quantized_source_asks_for_permission(llamay: Llamay, source: Path, tmp_path: Path) -> None:
    small = tmp_path / "small.gguf"
    assert llamay("quantize", str(source), str(small), "--type", "Q8_0").exit_code == 0

    result = llamay("quantize", str(small), str(tmp_path / "q.gguf"), "--type", "Q4_0")

    assert result.exit_code == 5
    assert "--allow-requantize allows it" in result.stderr


def test_a_folder_that_is_not_there(llamay: Llamay, source: Path, tmp_path: Path) -> None:
    result = llamay("quantize", str(source), str(tmp_path / "no" / "q.gguf"), "--type", "Q8_0")

    assert result.exit_code == 3
    assert "there is no such folder" in result.stderr
