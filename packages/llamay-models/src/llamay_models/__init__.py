"""GGUF models, tokenizers, chat templates, architectures and the engine of llamay.

model = llamay_models.load("model.gguf")
context = model.context("The capital of France is")
print(context.generate(max_tokens=16).text)
"""

from llamay_models import branches, errors, score
from llamay_models._interfaces import INTERFACE
from llamay_models.engine import (
    Context,
    Engine,
    Generation,
    Piece,
    Request,
    Sampling,
    Timings,
    TokenConstraint,
    TokenScore,
    Usage,
)
from llamay_models.errors import LlamayError
from llamay_models.loading import load
from llamay_models.model import Model
from llamay_models.pool import ModelPool

__all__ = [
    "INTERFACE",
    "Context",
    "Engine",
    "Generation",
    "LlamayError",
    "Model",
    "ModelPool",
    "Piece",
    "Request",
    "Sampling",
    "Timings",
    "TokenConstraint",
    "TokenScore",
    "Usage",
    "branches",
    "errors",
    "load",
    "score",
]
