"""GGUF model files: a strict, memory-mapped reader and a streaming writer.

Source: the GGUF specification, versions 2 and 3 (ggml, docs/gguf.md).
"""

from ..errors import GGUFError
from .file import GGUFFile, TensorInfo, open  # noqa: A004 - see open
from .formats import FORMATS, TensorFormat
from .metadata import Metadata, StringArray, Value
from .writer import TensorData, write

__all__ = [
    "FORMATS",
    "GGUFError",
    "GGUFFile",
    "Metadata",
    "StringArray",
    "TensorData",
    "TensorFormat",
    "TensorInfo",
    "Value",
    "open",
    "write",
]
