"""Quantizing model files: which format each tensor gets, and writing the file."""

from llamay_models.quantization.decisions import Decision, QuantizeError, decide
from llamay_models.quantization.file import quantize_file
from llamay_models.quantization.recipe import MIXES, Mix, fitting, format_of
from llamay_models.quantization.rules import Place

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
