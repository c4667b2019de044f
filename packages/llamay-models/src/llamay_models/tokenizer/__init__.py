"""Tokenizers, built from a GGUF file alone.

Byte-level BPE with the pre-tokenizer that the file names, SentencePiece BPE with byte fallback, SentencePiece's
unigram model, WordPiece, and RWKV's World tokenizer.
"""

from .._native import pretokenizer_names
from ..errors import TokenizerError
from .building import from_gguf
from .table import TokenTable, token_table
from .tokenizer import StreamDecoder, Tokenizer

__all__ = [
    "StreamDecoder",
    "TokenTable",
    "Tokenizer",
    "TokenizerError",
    "from_gguf",
    "pretokenizer_names",
    "token_table",
]
