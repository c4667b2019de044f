"""Tokens out of a `tokenizer.json`, the file format of Hugging Face's tokenizers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

__all__ = ["read_tokenizer_json"]

_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_MAX_TOKENS = 1 << 24
_SPACE = "\u2581"


def read_tokenizer_json(source: str | Path | Mapping[str, Any]) -> tuple[list[bytes], dict[int, str]]:
    """Return the bytes of every token by id, and the names of the special ones.

    Args:
        source: the file, its text, or the parsed document.

    Raises:
        ValueError: it is no tokenizer.json, or its tokens cannot be told as bytes.

    """
    document = _document(source)
    model = document.get("model")
    if not isinstance(model, Mapping) or "vocab" not in model:
        raise ValueError("this is not a tokenizer.json: it has no model with a vocab")
    if model.get("type") == "WordPiece":
        raise ValueError("a WordPiece vocabulary: its tokens do not say which white space is before them")
    spelled = _ids(model["vocab"])
    added = [t for t in document.get("added_tokens") or () if isinstance(t, Mapping)]
    ids = {*spelled, *(int(t["id"]) for t in added)}
    size = 1 + max(ids, default=-1)
    if size > _MAX_TOKENS or min(ids, default=0) < 0:
        raise ValueError(f"a token id of {max(ids, key=abs)}")
    bytes_of = _spelling(document)
    tokens = [b""] * size
    for token, text in spelled.items():
        tokens[token] = bytes_of(text)
    special = {}
    for t in added:
        tokens[int(t["id"])] = str(t["content"]).encode()
        if t.get("special"):
            special[int(t["id"])] = str(t["content"])
    # An id that the file does not name stands for no text.
    special |= {token: "" for token in range(size) if token not in ids}
    return tokens, special


def _document(source: str | Path | Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(source, Mapping):
        return source
    text = source if isinstance(source, str) and source.lstrip().startswith("{") else None
    try:
        found = json.loads(Path(source).read_text("utf-8") if text is None else text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"this is not a tokenizer.json: {error}") from None
    if not isinstance(found, Mapping):
        raise ValueError("this is not a tokenizer.json: it is no JSON object")
    return found


def _ids(vocab: Any) -> dict[int, str]:
    if isinstance(vocab, Mapping):  # BPE and WordLevel: text to id
        return {int(token): str(text) for text, token in vocab.items()}
    return {token: str(piece[0]) for token, piece in enumerate(vocab)}  # Unigram: pieces with their scores


def _parts(component: Any) -> Iterator[Mapping[str, Any]]:
    """A decoder or pre-tokenizer, and the members of a sequence of them."""
    if isinstance(component, Mapping):
        yield component
        for name in ("decoders", "pretokenizers"):
            for inner in component.get(name) or ():
                yield from _parts(inner)


def _spelling(document: Mapping[str, Any]) -> Any:
    """How this file spells bytes, as a function from a token's text to its bytes."""
    parts = [*_parts(document.get("decoder")), *_parts(document.get("pre_tokenizer"))]
    kinds = {part.get("type") for part in parts}
    if "ByteLevel" in kinds:
        table = _byte_letters()
        # Characters that are no such letters were added as they are.
        return lambda text: b"".join(table.get(c) or c.encode() for c in text)
    mark = _SPACE if "Metaspace" in kinds else None
    for part in parts:
        if part.get("type") == "Replace" and part.get("content") == " ":
            pattern = part.get("pattern")
            mark = pattern.get("String") if isinstance(pattern, Mapping) else mark
    fallback = "ByteFallback" in kinds or bool(document["model"].get("byte_fallback"))

    def bytes_of(text: str) -> bytes:
        if fallback and (byte := _BYTE.fullmatch(text)):
            return bytes([int(byte[1], 16)])
        return (text.replace(mark, " ") if mark else text).encode()

    return bytes_of


def _byte_letters() -> dict[str, bytes]:
    """GPT-2's letters for bytes: printable Latin-1 for itself, and from U+0100 on for the others in order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    table = {chr(b): bytes([b]) for b in printable}
    return table | {chr(0x100 + n): bytes([b]) for n, b in enumerate(others)}
