"""The engine: contexts, sampling, and one thread per model that computes everything in batches."""

from llamay_models.engine._constraint import TokenConstraint
from llamay_models.engine._context import Context
from llamay_models.engine._engine import Engine
from llamay_models.engine._generation import FinishReason, Generation, Piece, Timings, TokenScore, Usage
from llamay_models.engine._pace import Stall
from llamay_models.engine._progress import Progress
from llamay_models.engine._request import Request
from llamay_models.engine._runner import Runner
from llamay_models.engine._sampling import Sampling, read_samplers, sampler_letters
from llamay_models.engine._stats import Histogram, Histograms, Stats

__all__ = [
    "Context",
    "Engine",
    "FinishReason",
    "Generation",
    "Histogram",
    "Histograms",
    "Piece",
    "Progress",
    "Request",
    "Runner",
    "Sampling",
    "Stall",
    "Stats",
    "Timings",
    "TokenConstraint",
    "TokenScore",
    "Usage",
    "read_samplers",
    "sampler_letters",
]
