"""Tokenizers, built from a GGUF file alone.

Byte-level BPE with the pre-tokenizer that the file names, and SentencePiece BPE with byte fallback.
"""

from ._build import from_gguf
from ._errors import TokenizerError
from ._tokenizer import StreamDecoder, Tokenizer

__all__ = ["StreamDecoder", "Tokenizer", "TokenizerError", "from_gguf"]
