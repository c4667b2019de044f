"""A loaded model, what it is made of, and the identity of what it computes."""

from llamay_models.model.model import Model
from llamay_models.model.parts import Parts

__all__ = ["Model", "Parts"]
