"""GGUF model files: a strict, memory-mapped reader and a streaming writer.

Source: the GGUF specification, versions 2 and 3 (ggml, docs/gguf.md).
"""

from ._errors import GGUFError
from ._file import GGUFFile, TensorInfo, open  # noqa: A004 - see open
from ._formats import FORMATS, TensorFormat
from ._metadata import Metadata, StringArray, Value
from ._writer import TensorData, write

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
