"""The vocabulary in which architectures are written, and its meanings.

An architecture is a pure function of (g, config, weights). What it does depends on g: `Trace` records a
plan, `Reference` computes in float64, `Needs` lists the weights, `Explain` prints, `Watch` keeps every
value. `fuse` rewrites what was recorded.
"""

from llamay_models.plan._explain import Explain, explain
from llamay_models.plan._fusion import REWRITES, fuse
from llamay_models.plan._needs import Needs, check
from llamay_models.plan._records import Program, Record, Tensor, Value
from llamay_models.plan._reference import Computed, Reference, Watch
from llamay_models.plan._rope import Linear, Llama3, Rope, Yarn
from llamay_models.plan._semantics import MEANINGS, evaluate
from llamay_models.plan._trace import Trace
from llamay_models.plan._weights import Weights, tensor_name

__all__ = [
    "MEANINGS",
    "REWRITES",
    "Computed",
    "Explain",
    "Linear",
    "Llama3",
    "Needs",
    "Program",
    "Record",
    "Reference",
    "Rope",
    "Tensor",
    "Trace",
    "Value",
    "Watch",
    "Weights",
    "Yarn",
    "check",
    "evaluate",
    "explain",
    "fuse",
    "tensor_name",
]
