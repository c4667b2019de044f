"""`quantize`: a model file in smaller formats."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from ..console.progress import Mode, reporting
from ..errors import CliError, Exit, RefusedError, printable
from ..models import resolve
from ..options.completion import complete_model
from ..options.shared import offline_option, progress_option, read_format, read_mix, threads_option

if TYPE_CHECKING:
    from llamay_models.quantization import Decision

_NAMED = 4
"""Unknown tensors that the report names; --json names all."""


@click.command()
@click.argument("source", shell_complete=complete_model)
@click.argument("target", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--type",
    "kind",
    required=True,
    metavar="TYPE",
    callback=read_mix,
    help="The mix to write: Q4_K_M, Q8_0, …",
)
@click.option("--pure", is_flag=True, help="Give every matrix the type's base format.")
@click.option(
    "--output-type", metavar="FORMAT", callback=read_format, help="The format of the matrix of logits."
)
@click.option(
    "--embedding-type", metavar="FORMAT", callback=read_format, help="The format of the embedding table."
)
@click.option("--allow-requantize", is_flag=True, help="Allow a source that is quantized already.")
@click.option("--force", is_flag=True, help="Replace TARGET where it exists.")
@click.option("--dry-run", is_flag=True, help="Show what would be written, and how large it would be.")
@threads_option()
@click.option("--json", "as_json", is_flag=True, help="Print every tensor's format as JSON.")
@offline_option()
@progress_option()
def quantize(
    source: str,
    target: Path,
    kind: str,
    pure: bool,
    output_type: str | None,
    embedding_type: str | None,
    allow_requantize: bool,
    force: bool,
    dry_run: bool,
    threads: int | None,
    as_json: bool,
    offline: bool,
    progress: str,
) -> None:
    """Write the model SOURCE to TARGET with its matrices in the formats of TYPE.

    TYPE is one of llama.cpp's mixes, which spend more bits where rounding hurts most:

    \b
      Q8_0  Q6_K                        nearly the same as the original
      Q5_K_M  Q5_K_S  Q4_K_M  Q4_K_S    the usual choices
      Q3_K_L  Q3_K_M  Q3_K_S  Q2_K      smaller, and worse
      IQ4_NL  IQ4_XS                    about as good as Q4_K_S, slower to make
      Q4_0 Q4_1 Q5_0 Q5_1               older
      TQ1_0 TQ2_0 MXFP4                 for models that were trained for them
      F16 BF16 F32                      not quantized

    The source should be F16, BF16 or F32. Only matrices that engines multiply are quantized; the report says
    what is kept as it is, and names tensors that no rule knows. Memory does not grow with the model, and
    TARGET appears only when it is complete.

    \b
    Example:
      llamay quantize model-f16.gguf model-q4_k_m.gguf --type Q4_K_M
    """  # noqa: D301
    from llamay_models import gguf
    from llamay_models.quantization import QuantizeError, decide, quantize_file

    resolved = resolve(source, mode=cast(Mode, progress), offline=offline)
    if target.exists() and not force and not dry_run:
        raise RefusedError(f"{target} exists", "--force replaces it")
    try:
        if dry_run:
            with gguf.open(resolved.path) as file:
                decisions = decide(
                    file,
                    kind,
                    pure=pure,
                    output=output_type,
                    embedding=embedding_type,
                    requantize=allow_requantize,
                )
        else:
            with reporting(cast(Mode, progress)) as report:
                decisions = quantize_file(
                    resolved.path,
                    target,
                    kind,
                    pure=pure,
                    output=output_type,
                    embedding=embedding_type,
                    requantize=allow_requantize,
                    threads=threads,
                    progress=report,
                )
    except QuantizeError as error:
        if "already" in str(error) and not allow_requantize:
            raise RefusedError(str(error), "--allow-requantize allows it") from error
        raise CliError(str(error)) from error
    if as_json:
        click.echo(json.dumps(_document(str(target), kind, decisions), indent=2))
    else:
        for line in _summary(str(target), decisions):
            click.echo(printable(line))
    click.get_current_context().exit(Exit.OK)


def _document(target: str, kind: str, decisions: list[Decision]) -> dict[str, object]:
    return {
        "file": target,
        "type": kind,
        "bytes": sum(d.target_bytes for d in decisions),
        "source_bytes": sum(d.source_bytes for d in decisions),
        "tensors": [
            {"name": d.name, "from": d.source, "to": d.target, "bytes": d.target_bytes, "is": d.reason}
            for d in decisions
        ],
        "kept": sum(d.kept for d in decisions),
        "unknown": [d.name for d in decisions if not d.known],
    }


def _summary(target: str, decisions: list[Decision]) -> list[str]:
    before, after = (sum(getattr(d, key) for d in decisions) for key in ("source_bytes", "target_bytes"))
    values = sum(_values(d) for d in decisions)
    formats = Counter(d.target for d in decisions)
    listed = ", ".join(f"{name} {count}" for name, count in formats.most_common())
    bits = 8 * after / max(1, values)
    lines = [
        f"{target}: {before / 1e6:,.1f} MB became {after / 1e6:,.1f} MB, {bits:.2f} bits a weight",
        f"tensors: {listed}",
    ]
    kept = Counter(d.reason for d in decisions if d.kept and d.known)
    if kept:
        lines.append(
            f"kept as they are: {', '.join(f'{reason} {count}' for reason, count in kept.most_common())}"
        )
    unknown = [d.name for d in decisions if not d.known]
    if unknown:
        more = f", and {len(unknown) - _NAMED} more" if len(unknown) > _NAMED else ""
        lines.append(f"kept because no rule knows them: {len(unknown)} ({', '.join(unknown[:_NAMED])}{more})")
    return lines


def _values(decision: Decision) -> int:
    count = 1
    for length in decision.shape:
        count *= length
    return count
