"""The part of a program before its output matrix, whose outputs are hidden states instead of logits."""

from __future__ import annotations

from llamay_models.errors import PlanError
from llamay_models.plan.records import Program
from llamay_models.plan.table import operation


def hidden(program: Program) -> Program:
    """Return the program that ends where the output matrix begins: its output is the final hidden state.

    That is the state after the last norm, as llama.cpp takes it for embeddings. The records are the same,
    so is every bit of their results. Raises PlanError where a program has no output matrix.
    """
    records = program.records
    norm = next((i for i in reversed(range(len(records))) if operation(records[i].op).is_norm), -1)
    made = set(records[norm].outs[-1:])
    whole = 0 <= norm < len(records) - 1
    for record in records[norm + 1 :]:
        whole = whole and made.issuperset(record.args)
        made.update(record.outs)
    if not whole:
        raise PlanError("this architecture does not end with an output matrix over one hidden state")
    return Program(records[: norm + 1], program.widths, program.tensors, program.names)
