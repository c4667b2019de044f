"""An inference engine for GGUF models whose contexts are values.

    import llamay

    model = llamay.load("model.gguf")
    context = model.context("The capital of France is")
    print(context.generate(max_tokens=16).text)

The names here are those of `llamay_models`, for whoever needs no more than a model that answers, and three that bring
it together with `llamay_grammar`: `prompt`, `reader` and `vocabulary`.
"""

from typing import TYPE_CHECKING, Any

from llamay._bridge import prompt, reader, vocabulary
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
    branches,
    errors,
    load,
    score,
)

if TYPE_CHECKING:
    from llamay_models import answers

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
    "prompt",
    "reader",
    "score",
    "vocabulary",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Import what reads calls when it is asked for: most programs only write."""
        if name == "answers":
            from llamay_models import answers

            return answers
        raise AttributeError(f"module 'llamay' has no attribute {name!r}")
