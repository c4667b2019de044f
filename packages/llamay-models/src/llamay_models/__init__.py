"""GGUF models, tokenizers, chat templates, architectures and the engine of llamay.

model = llamay_models.load("model.gguf")
context = model.context("The capital of France is")
print(context.generate(max_tokens=16).text)
"""

from typing import TYPE_CHECKING, Any

from llamay_models import errors
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
from llamay_models.interfaces import INTERFACE
from llamay_models.loading import load
from llamay_models.model import Model

if TYPE_CHECKING:
    from llamay_models import adapters, answers, branches, scoring
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
    "adapters",
    "answers",
    "branches",
    "errors",
    "load",
    "scoring",
]


if not TYPE_CHECKING:  # type checkers see all names above

    def __getattr__(name: str) -> Any:
        """Import modules that an answer does not need when they are first used, so that programs start faster."""
        if name == "ModelPool":
            from llamay_models.pool import ModelPool

            return ModelPool
        if name in ("adapters", "answers", "branches", "scoring"):
            from importlib import import_module

            return import_module(f"llamay_models.{name}")
        raise AttributeError(f"module 'llamay_models' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
