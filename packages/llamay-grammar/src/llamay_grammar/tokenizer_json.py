"""Tokens out of a `tokenizer.json`, the file format of Hugging Face's tokenizers."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from llamay_grammar import checks

__all__ = ["read_tokenizer_json"]

_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_MAX_TOKENS = 1 << 24
_SPACE = "\u2581"


def read_tokenizer_json(source: str | Path | Mapping[str, Any]) -> tuple[list[bytes], dict[int, str]]:
    """Return the bytes of every token by id, and the names of the special ones.

    Args:
        source: the file, its text, or the parsed document.

    Raises:
        TypeError: for a source of another type.
        ValueError: it is no tokenizer.json, or its tokens cannot be told as bytes.

    """
    document = _document(source)
    model = document.get("model")
    if not isinstance(model, Mapping) or "vocab" not in model:
        raise _malformed("it has no model with a vocab")
    if model.get("type") == "WordPiece":
        raise ValueError("a WordPiece vocabulary: its tokens do not say which white space is before them")
    spelled = _ids(model["vocab"])
    added = list(_added(document.get("added_tokens")))
    ids = {*spelled, *(token for token, _, _ in added)}
    size = 1 + max(ids, default=-1)
    bytes_of = _spelling(document)
    tokens = [b""] * size
    for token, text in spelled.items():
        tokens[token] = bytes_of(text)
    special = {}
    for token, text, is_special in added:
        tokens[token] = text.encode()
        if is_special:
            special[token] = text
    # An id that the file does not name stands for no text.
    special |= {token: "" for token in range(size) if token not in ids}
    return tokens, special


def _document(source: str | Path | Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(source, Mapping):
        return source
    if not isinstance(source, (str, os.PathLike)):
        raise checks.wrong("source", "a file's path, its text or the parsed document", source)
    text = source if isinstance(source, str) and source.lstrip().startswith("{") else None
    try:
        found = json.loads(Path(source).read_text("utf-8") if text is None else text)
    except (ValueError, RecursionError) as error:
        raise _malformed(str(error)) from None
    if not isinstance(found, Mapping):
        raise _malformed("it is no JSON object")
    return found


def _ids(vocab: Any) -> dict[int, str]:
    if isinstance(vocab, Mapping):  # BPE and WordLevel: text to id
        return {_id(text, token): _text(token, text) for text, token in vocab.items()}
    if not isinstance(vocab, (list, tuple)):
        raise _malformed(f"the vocab of its model must be an object or a list, not {checks.described(vocab)}")
    out = {}
    for token, piece in enumerate(vocab):  # Unigram: pieces with their scores
        if not isinstance(piece, (list, tuple)) or not piece:
            raise _malformed(f"token {token} must be a piece with a score, not {checks.described(piece)}")
        out[_id(piece[0], token)] = _text(token, piece[0])
    return out


def _added(listed: Any) -> Iterator[tuple[int, str, bool]]:
    """The tokens that a file adds to its model's: id, text, and whether it is special."""
    if listed is None:
        return
    if not isinstance(listed, (list, tuple)):
        raise _malformed(f"its added_tokens must be a list, not {checks.described(listed)}")
    for number, each in enumerate(listed):
        if not isinstance(each, Mapping) or "id" not in each or "content" not in each:
            raise _malformed(f"its added_tokens[{number}] must be an object with id and content")
        token = _id(each["content"], each["id"])
        yield token, _text(token, each["content"]), bool(each.get("special"))


def _id(text: Any, token: Any) -> int:
    if not checks.is_integer(token) or not 0 <= token < _MAX_TOKENS:
        raise _malformed(
            f"the id of token {checks.described(text)} must be an integer between 0 and {_MAX_TOKENS - 1}, "
            f"not {checks.described(token)}"
        )
    return int(token)


def _text(token: int, text: Any) -> str:
    if not isinstance(text, str):
        raise _malformed(f"the text of token {token} must be a string, not {checks.described(text)}")
    return checks.text(f"the text of token {token}", text)


def _malformed(reason: str) -> ValueError:
    return ValueError(f"this is not a tokenizer.json: {reason}")


def _parts(component: Any) -> Iterator[Mapping[str, Any]]:
    """A decoder or pre-tokenizer, and the members of a sequence of them."""
    if isinstance(component, Mapping):
        yield component
        for name in ("decoders", "pretokenizers"):
            inner = component.get(name)
            for each in inner if isinstance(inner, list) else ():
                yield from _parts(each)


def _spelling(document: Mapping[str, Any]) -> Any:
    """How this file spells bytes, as a function from a token's text to its bytes."""
    parts = [*_parts(document.get("decoder")), *_parts(document.get("pre_tokenizer"))]
    kinds = {kind for part in parts if isinstance(kind := part.get("type"), str)}
    if "ByteLevel" in kinds:
        table = _byte_letters()
        # Characters that are no such letters were added as they are.
        return lambda text: b"".join(table.get(c) or c.encode() for c in text)
    mark = _SPACE if "Metaspace" in kinds else None
    for part in parts:
        if part.get("type") == "Replace" and part.get("content") == " ":
            pattern = part.get("pattern")
            if isinstance(pattern, Mapping):
                found = pattern.get("String")
                mark = found if isinstance(found, str) else None
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
