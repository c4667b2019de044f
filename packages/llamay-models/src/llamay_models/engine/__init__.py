"""The engine: contexts, sampling, and one thread per model that computes everything in batches."""

from llamay_models.engine.contexts.context import Context
from llamay_models.engine.engine import Engine
from llamay_models.engine.requests.generation import Generation
from llamay_models.engine.requests.request import Request
from llamay_models.engine.requests.results import FinishReason, Piece, Timings, TokenScore, Usage
from llamay_models.engine.requests.token_constraint import TokenConstraint
from llamay_models.engine.runner import Runner
from llamay_models.engine.sampling import Sampling, read_samplers, sampler_letters
from llamay_models.engine.scheduling.prefill_budget import Stall
from llamay_models.engine.stats import Histogram, Histograms, Stats
from llamay_models.progress import Progress

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
