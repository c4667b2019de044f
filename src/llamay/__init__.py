"""An inference engine for GGUF models whose contexts are values.

    import llamay

    model = llamay.load("model.gguf")
    context = model.context("The capital of France is")
    print(context.generate(max_tokens=16).text)

The names here are those of `llamay_models`, for whoever needs no more than a model that answers, and two that bring it
together with `llamay_grammar`: `reader` and `vocabulary`.
"""

from llamay._bridge import reader, vocabulary
from llamay_models import (
    Context,
    Engine,
    Generation,
    LlamayError,
    Model,
    ModelPool,
    Piece,
    Request,
    Sampling,
    TokenConstraint,
    TokenScore,
    Usage,
    answers,
    branches,
    errors,
    load,
    score,
)

__all__ = [
    "Context",
    "Engine",
    "Generation",
    "LlamayError",
    "Model",
    "ModelPool",
    "Piece",
    "Request",
    "Sampling",
    "TokenConstraint",
    "TokenScore",
    "Usage",
    "answers",
    "branches",
    "errors",
    "load",
    "reader",
    "score",
    "vocabulary",
]
