"""Models that other programs have fetched, in Ollama's store and Hugging Face's cache: read, never written.

Nothing of them is copied. A damaged model is skipped, and reported where somebody asks for it by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from . import huggingface, ollama
from .model import ForeignModel

__all__ = ["ForeignModel", "find", "models"]


def models(warn: Callable[[str], None] = lambda text: None) -> Iterator[ForeignModel]:
    """Yield every model that can be used, Ollama's first; `warn` is told of those that cannot."""
    yield from ollama.models(warn)
    yield from huggingface.models()


def find(name: str) -> ForeignModel | None:
    """Return Ollama's model of `name`, or a file of Hugging Face's cache; None where there is neither.

    Raises IntegrityError for a model that is there and damaged.
    """
    return ollama.find(name) or huggingface.find(name)
