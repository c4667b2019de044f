"""Quantizing model files: which format each tensor gets, and writing the file."""

from llamay_models.quantization.file import Decision, QuantizeError, decide, quantize_file
from llamay_models.quantization.recipe import MIXES, Mix, Place, fitting, format_of

__all__ = [
    "MIXES",
    "Decision",
    "Mix",
    "Place",
    "QuantizeError",
    "decide",
    "fitting",
    "format_of",
    "quantize_file",
]
