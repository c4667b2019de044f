"""`embed` and `rerank`: texts from arguments, files and stdin; vectors and scores in forms that programs read."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from llamay_cli_fakes import FakeModel

Llamay = Callable[..., Any]


def expected(texts: list[str], dimensions: int = 8) -> list[list[float]]:
    vectors: list[list[float]] = FakeModel().embed(texts, dimensions=dimensions).tolist()
    return vectors


def test_cl01_embed_prints_a_list_of_numbers_a_line(fake: Any, llamay: Llamay, tmp_path: Path) -> None:
    (tmp_path / "more.txt").write_text("third\n\n fourth \n")

    result = llamay("embed", fake.path, "first", "second", "-f", tmp_path / "more.txt", "--pooling", "mean")

    assert (result.exit_code, result.stderr) == (0, "")
    texts = ["first", "second", "third", " fourth "]
    assert [json.loads(line) for line in result.stdout.splitlines()] == expected(texts)
    assert fake.model.embedded == (texts, "mean", True)
    assert fake.model.closed


def test_embed_reads_lines_of_stdin_and_writes_one_object(fake: Any, llamay: Llamay) -> None:
    result = llamay("embed", fake.path, "--json", "--dimensions", 3, "--no-normalize", stdin="one\ntwo\n")

    document = json.loads(result.stdout)
    assert document == {
        "model": fake.path.name,
        "dimensions": 3,
        "embeddings": expected(["one", "two"], 3),
    }
    assert fake.model.embedded[2] is False


def test_embed_writes_numpy_files_bit_for_bit(fake: Any, llamay: Llamay, tmp_path: Path) -> None:
    assert llamay("embed", fake.path, "one", "two", "-o", tmp_path / "vectors").exit_code == 0
    piped = llamay("embed", fake.path, "one", "two", "-o", "-")

    for source in (tmp_path / "vectors", io.BytesIO(piped.stdout_bytes)):
        vectors = np.load(source)
        assert vectors.dtype == np.float32
        np.testing.assert_array_equal(vectors, np.float32(expected(["one", "two"])))


def test_rerank_prints_the_best_first_and_keeps_the_order_of_equals(fake: Any, llamay: Llamay) -> None:
    documents = ("a\ndog", "the cat sat", "no\tcats", "nothing")

    result = llamay("rerank", fake.path, "where the cat", *documents, "-n", 3)

    assert result.stdout.splitlines() == ["2.000000\tthe cat sat", "0.000000\ta dog", "0.000000\tno\tcats"]
    found = json.loads(llamay("rerank", fake.path, "cat", "--json", stdin="dog\ncat\n").stdout)
    assert found == {
        "model": fake.path.name,
        "results": [
            {"index": 1, "score": 1.0, "document": "cat"},
            {"index": 0, "score": 0.0, "document": "dog"},
        ],
    }


def test_no_text_and_too_many_dimensions_are_said(fake: Any, llamay: Llamay) -> None:
    nothing = llamay("embed", fake.path, stdin="\n \n")
    assert (nothing.exit_code, "every line is empty" in nothing.stderr) == (2, True)

    nowhere = llamay("embed", fake.path, "one", "-o", "/nonexistent/vectors.npy")
    assert (nowhere.exit_code, "no folder /nonexistent" in nowhere.stderr) == (3, True)
    wide = llamay("embed", fake.path, "one", "--dimensions", 9)
    assert (wide.exit_code, "more than the 8" in wide.stderr) == (2, True)
