"""The part of a program before its output matrix: what a model knows of a text, instead of what comes next."""

from __future__ import annotations

from llamay_models.errors import PlanError
from llamay_models.plan._records import Program


def hidden(program: Program) -> Program:
    """Return the program that ends where the output matrix begins: its output is the final hidden state.

    That is the state after the last norm, as llama.cpp takes it for embeddings. The records are the same,
    so is every bit of what they compute. Raises PlanError where a program has no output matrix.
    """
    records = program.records
    last = next((i for i in reversed(range(len(records))) if records[i].op == "linear"), 0)
    if last == 0 or records[last].args != (records[last - 1].outs[-1],):
        raise PlanError("this architecture does not end with an output matrix over one hidden state")
    return Program(records[:last], program.widths, program.tensors, program.names)
