"""A loaded model, its parts, and the identity of its K/V."""

from llamay_models.model.model import Model
from llamay_models.model.parts import Parts

__all__ = ["Model", "Parts"]
