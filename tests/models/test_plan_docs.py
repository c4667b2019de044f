"""The pages about plans and architectures: their examples run, and the table of operations is the table's."""

from __future__ import annotations

import inspect
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from llamay_models import _native, gguf
from llamay_models.architectures import ARCHITECTURES, Keys
from llamay_models.plan import TABLE, Reference, Trace, Weights, check, fuse
from llamay_models.plan.attributes import REQUIRED, Attr
from llamay_models.plan.schema import Operation
from llamay_models.tensors import file_tensors

from ..guides import DOCS, apply_diff, copy_sources, examples, save_listing

NONE = "\N{EN DASH}"
UNARY = TABLE["unary"].attrs["kind"].choices
TOKENS = [1, 20, 33, 47, 301, 8, 99, 100]


def blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (DOCS / page).read_text(), re.M | re.S)


def block(page: str, first_line: str) -> str:
    (found,) = (b for b in blocks(page) if b.startswith(first_line))
    return found


# -- the table of operations


def row_of(operation: Operation) -> str:
    """One row of the table: what it is called, what its record has, and what it means."""
    marks = ["row by row"] * operation.row_by_row + ["keeps"] * (operation.step is not None)
    marks += ["only rows that want an output"] * (operation.rows == "wanted")
    attrs = ", ".join(attribute(name, attr) for name, attr in operation.attrs.items())
    means = operation.means or inspect.getdoc(getattr(Trace, operation.name)) or ""
    text = " ".join(means.removeprefix("Return ").split()).removesuffix(".")
    end = f". *({'; '.join(marks)})*" if marks else ""
    cells = (
        f"`{operation.name}`",
        ", ".join(operation.args) or NONE,
        ", ".join(operation.weights) or NONE,
        attrs or NONE,
        f"{', '.join(operation.outs)}: {text}{end}",
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def attribute(name: str, attr: Attr) -> str:
    default = "" if attr.default is REQUIRED else "=" if attr.default is None else f"={attr.default}"
    if attr.choices == UNARY and name != "kind":
        return f"`{name}{default}` (a kind of `unary`)"
    return f"`{name}{default}`" + (f" ({', '.join(attr.choices)})" if attr.choices else "")


def test_the_table_of_operations_is_the_one_that_everything_asks() -> None:
    """LLAMAY_UPDATE_SNAPSHOTS=1 writes it anew."""
    page = DOCS / "plan.md"
    before, _, rest = page.read_text().partition("<!-- operations -->\n")
    _, _, after = rest.partition("<!-- end of operations -->")
    vocabulary = [o for o in TABLE.values() if not o.means]
    fused = [o for o in TABLE.values() if o.means]
    head = "| op | args | weights | attributes | makes |\n| --- | --- | --- | --- | --- |\n"
    table = head + "".join(f"{row_of(o)}\n" for o in vocabulary)
    table += "\nFused operations, made by rewrites of the list and equal to what they replace:\n\n"
    table += head + "".join(f"{row_of(o)}\n" for o in fused)
    text = f"{before}<!-- operations -->\n{table}<!-- end of operations -->{after}"
    if os.environ.get("LLAMAY_UPDATE_SNAPSHOTS"):
        page.write_text(text)

    assert page.read_text() == text


# -- examples


def run(code: str, folder: Path) -> None:
    """Run code in an interpreter of its own. Warnings are errors."""
    (folder / "example.py").write_text(code)
    result = subprocess.run(
        [sys.executable, "-W", "error", "example.py"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""


# An editable install is found before all paths: here the copy of the package must be.
COPY_FIRST = """\
import sys
sys.meta_path[:] = [f for f in sys.meta_path if "llamay_models" not in getattr(f, "known_source_files", ())]
import pathlib
import llamay_models
assert pathlib.Path(llamay_models.__file__).is_relative_to(pathlib.Path.cwd()), llamay_models.__file__
"""


def copied_package(root: Path) -> Path:
    """Copy the package with its native module, which an editable install has in another folder; return the copy."""
    copy = copy_sources(DOCS.parent / "packages" / "llamay-models" / "src" / "llamay_models", root)
    shutil.copy(_native.__file__, copy)
    return copy


def test_an_operation_is_one_file(tmp_path: Path) -> None:
    """The family of the page, put among the others in a copy of them, is found, traced, computed and fused around."""
    copy = copied_package(tmp_path)
    save_listing(block("plan.md", "# packages/"), tmp_path)
    run(COPY_FIRST + block("plan.md", "import numpy as np\nfrom llamay_models.errors"), copy.parent)


def test_an_operation_in_the_kernels_is_quoted_as_it_stands() -> None:
    """Each piece of the page's C++, between empty lines, is in the file that a comment before it names."""
    (quoted,) = examples("plan.md", "To add an operation", "cpp")
    parts = re.split(r"^// (packages/\S+)\n", quoted, flags=re.M)
    assert not parts[0]
    assert len(parts) == 7
    for name, pieces in zip(parts[1::2], parts[2::2], strict=True):
        source = (DOCS.parent / name).read_text("utf-8")
        for piece in pieces.strip("\n").split("\n\n"):
            assert f"\n{piece}\n" in source, f"{name} has not\n{piece}"


def test_the_guides_name_tests_and_places_that_are_there() -> None:
    tests = DOCS.parent / "packages" / "llamay-models" / "tests"
    page = (DOCS / "plan.md").read_text("utf-8")
    for test in re.findall(r"`(test_\w+)(?:\[clip\])?`", page):
        assert f"def {test}(" in (tests / "architectures" / "test_kernels.py").read_text("utf-8"), test
    conftest = (tests / "conftest.py").read_text("utf-8")
    assert 'params=[CPU, STANDIN], ids=["cpu", "standin"]' in conftest.partition("def backend(")[0]
    for page_name in ("plan.md", "architectures.md"):
        text = (DOCS / page_name).read_text("utf-8")
        for path in re.findall(r"`(packages/[\w./-]+?)`", text):
            assert (DOCS.parent / path).exists(), path


def test_a_backend_goes_through_the_records(tmp_path: Path) -> None:
    backend = block("plan.md", "import numpy as np\nfrom llamay_models.plan import Rows")
    run(backend + block("plan.md", "from llamay_models.plan import ArrayTensor, Trace"), tmp_path)


def test_an_architecture_is_one_file(tmp_path: Path) -> None:
    """The file of the page, saved and registered as the page says in a copy of the package, is found by its name."""
    copy = copied_package(tmp_path)
    saved = save_listing(block("architectures.md", "# packages/"), tmp_path)
    (diff,) = examples("architectures.md", "To add one", "diff")
    assert apply_diff(diff, tmp_path) == [saved.with_name("__init__.py")]
    run(
        COPY_FIRST + block("architectures.md", "import numpy as np\nfrom llamay_models.architectures"),
        copy.parent,
    )


def test_the_architecture_of_the_page_computes_what_transformers_does(shared_data: Path) -> None:
    models = shared_data / "models"
    names: dict[str, object] = {"__name__": "smollm3"}
    exec(block("architectures.md", "# packages/"), names)
    build, read = names["smollm3"], names["config"]
    assert callable(build)
    assert callable(read)
    with gguf.open(models / "smollm3.gguf") as file:
        config, tensors = read(Keys(file.metadata, "smollm3")), file_tensors(file)
        check(build, config, tensors)
        logits = build(Reference(TOKENS), config, Weights(tensors)).array
        trace = Trace()
        build(trace, config, Weights(tensors))
    np.testing.assert_allclose(logits, np.load(models / "smollm3.logits.npy"), atol=5e-6)
    assert sum(r.op == "rope" for r in fuse(trace.program()).records) == 2 * sum(
        b.rope is not None for b in config.blocks
    )


def test_every_architecture_has_its_row() -> None:
    page = (DOCS / "architectures.md").read_text()
    for name in ARCHITECTURES:
        assert re.search(rf"^\| `{name}`", page, re.M), name


@pytest.mark.parametrize("page", ["plan.md", "architectures.md"])
def test_a_page_names_files_that_are_there(page: str) -> None:
    text = (DOCS / page).read_text()
    for target in re.findall(r"\]\(([\w/-]+\.md)", text):
        assert (DOCS / target).is_file(), target
