"""From a GGUF file to a model that answers."""

from llamay_models.loading.model_loader import load

__all__ = ["load"]
