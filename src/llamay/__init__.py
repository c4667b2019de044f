"""An inference engine for GGUF models whose contexts are values.

    import llamay

    model = llamay.load("model.gguf")
    context = model.context("The capital of France is")
    print(context.generate(max_tokens=16).text)

The names here are those of `llamay_models`, for whoever needs no more than a model that answers, and four that bring
it together with `llamay_grammar`: `constraint`, `prompt`, `reader` and `vocabulary`.
"""

from typing import TYPE_CHECKING, Any

from llamay._bridge import constraint, prompt, reader, vocabulary
from llamay_models import (
    Context,
    Engine,
    Generation,
    LlamayError,
    Model,
    Piece,
    Request,
    Sampling,
    Timings,
    TokenConstraint,
    TokenScore,
    Usage,
    errors,
    load,
)
from llamay_models.constraints import use_compiler as _use_compiler

if TYPE_CHECKING:
    from llamay_models import ModelPool, adapters, answers, branches, scoring

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
    "Timings",
    "TokenConstraint",
    "TokenScore",
    "Usage",
    "adapters",
    "answers",
    "branches",
    "constraint",
    "errors",
    "load",
    "prompt",
    "reader",
    "scoring",
    "vocabulary",
]


def _compiler() -> Any:
    import llamay_grammar

    return llamay_grammar


_use_compiler(_compiler)

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Import what few programs use when it is asked for."""
        if name in ("ModelPool", "adapters", "answers", "branches", "scoring"):
            import llamay_models

            return getattr(llamay_models, name)
        raise AttributeError(f"module 'llamay' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
