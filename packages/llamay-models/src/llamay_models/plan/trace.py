"""`Trace`: the meaning of the vocabulary that records a plan."""

from __future__ import annotations

from llamay_models.errors import PlanError
from llamay_models.plan.operations import Vocabulary
from llamay_models.plan.records import Program


class Trace(Vocabulary):
    """Records each call, and computes nothing.

    Widths and shapes are checked, so that a mistake in an architecture is an error that names the
    operation and both sizes. The methods are the vocabulary: their docstrings say what each operation
    means for one row. `Reference` has the same methods and computes it.
    """

    def program(self) -> Program:
        """Return the recorded program. Raises PlanError if nothing was recorded."""
        if not self.records:
            raise PlanError("a plan needs at least one operation")
        return Program(tuple(self.records), tuple(self.widths), tuple(self.tensors), tuple(self.names))
