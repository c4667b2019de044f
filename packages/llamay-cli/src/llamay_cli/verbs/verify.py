"""`verify`: the checks, as a table or as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, cast

import click

from ..console.progress import Mode, reporting
from ..errors import Exit, printable
from ..models import resolve
from ..options.completion import complete_model
from ..options.shared import kv_option, offline_option, progress_option, threads_option

if TYPE_CHECKING:
    from ..verification import Precision


@click.command()
@click.argument("model", shell_complete=complete_model)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--tokens",
    type=click.IntRange(64),
    metavar="N",
    help="Length of the text.  [default: 160, or past the window]",
)
@threads_option("CPU threads here.")
@kv_option()
@offline_option()
@progress_option()
def verify(
    model: str,
    as_json: bool,
    tokens: int | None,
    threads: int | None,
    kv: Precision,
    offline: bool,
    progress: str,
) -> None:
    """Prove on this machine, with this file, that MODEL computes the same bits whichever way it is asked.

    \b
    Each check compares logits bit for bit; the difference must be exactly 0:
      prefill == decode             a text prefilled at once, in pieces, token by token, and generated
      batch of 8 == each alone      eight contexts that decode together
      fork == parent                branches and their parent, against contexts that were never forked
      snapshot                      saved, and continued in a new process
      threads, kernel sets, pages   1, 2, 4 threads; every set this CPU runs; pages of 16, 64, 256 positions

    Every check is also run on a text with one token changed, and fails if it does not see that.
    The exit code is 0 if all checks pass and 1 if one does not.
    """  # noqa: D301
    from ..verification import Setup, Subject
    from ..verification import verify as run_checks
    from ..verification.text import text_tokens

    resolved = resolve(model, mode=cast(Mode, progress), offline=offline)
    subject = Subject(resolved.path, Setup(threads=threads, kv=kv), resolved.sha256)
    results = []
    with reporting(cast(Mode, progress)) as report, subject.loaded(report) as loaded:
        loaded.engine.check_writes()  # the checks compare texts that a model writes
        text = text_tokens(loaded, tokens)
        for result in run_checks(subject, loaded, text, report):
            results.append(result)
            if not as_json:
                click.echo(_line(result))
    ok = all(result.passed for result in results)
    if as_json:
        document = {
            "ok": ok,
            "model": resolved.name,
            "tokens": len(text),
            "checks": [r.to_json() for r in results],
        }
        click.echo(json.dumps(document, indent=2))
    else:
        passed = sum(result.passed for result in results)
        click.echo(f"{resolved.name}: {passed} of {len(results)} checks passed on {len(text)} tokens")
    click.get_current_context().exit(Exit.OK if ok else Exit.ERROR)


def _line(result: object) -> str:
    from ..verification import Result

    assert isinstance(result, Result)
    mark = click.style("pass", fg="green") if result.passed else click.style("FAIL", fg="red")
    difference = "    -" if result.difference is None else f"{result.difference:5.3g}"
    return f"{mark}  {difference}  {result.name}  ({printable(result.detail)})"
