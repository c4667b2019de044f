"""The vocabulary in which architectures are written, and its meanings.

An architecture is a pure function of (g, config, weights). Its effect depends on g: `Trace` records a
plan, `Reference` computes in float64, `Needs` lists the weights, `Explain` prints, `Watch` keeps every
value. `fuse` rewrites a recorded program. `operation` returns the properties of an operation.
"""

from llamay_models.plan.digests import digest_memories, digest_operations
from llamay_models.plan.evaluation import MEANINGS, apply, evaluate
from llamay_models.plan.explanation import Explain, explain
from llamay_models.plan.fusion import REWRITES, fuse
from llamay_models.plan.hidden_states import hidden
from llamay_models.plan.low_rank import Update, adapt, outline
from llamay_models.plan.needs import Absent, Needs, check
from llamay_models.plan.operations import TABLE
from llamay_models.plan.records import (
    ArrayTensor,
    Doubles,
    Floats,
    Part,
    Program,
    Record,
    Shaped,
    Tensor,
    Value,
)
from llamay_models.plan.reference import Computed, Reference, Watch
from llamay_models.plan.rotary import LinearScaling, Llama3Scaling, Rope, Style, YarnScaling
from llamay_models.plan.row_by_row import RowByRow
from llamay_models.plan.rows import Rows
from llamay_models.plan.schema import Call, Inputs, Memory, Operation
from llamay_models.plan.table import call_of, inputs, memories, operation, validate, whole_text
from llamay_models.plan.trace import Trace
from llamay_models.plan.weights import Weights, tensor_name

__all__ = [
    "MEANINGS",
    "REWRITES",
    "TABLE",
    "Absent",
    "ArrayTensor",
    "Call",
    "Computed",
    "Doubles",
    "Explain",
    "Floats",
    "Inputs",
    "LinearScaling",
    "Llama3Scaling",
    "Memory",
    "Needs",
    "Operation",
    "Part",
    "Program",
    "Record",
    "Reference",
    "Rope",
    "RowByRow",
    "Rows",
    "Shaped",
    "Style",
    "Tensor",
    "Trace",
    "Update",
    "Value",
    "Watch",
    "Weights",
    "YarnScaling",
    "adapt",
    "apply",
    "call_of",
    "check",
    "digest_memories",
    "digest_operations",
    "evaluate",
    "explain",
    "fuse",
    "hidden",
    "inputs",
    "memories",
    "operation",
    "outline",
    "tensor_name",
    "validate",
    "whole_text",
]
