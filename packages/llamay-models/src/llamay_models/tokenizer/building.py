"""Building a tokenizer from the metadata of a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from .. import _native
from ..errors import TokenizerError
from ..gguf import GGUFFile, Metadata
from .errors import BadVocabularyError, naming
from .special_tokens import SpecialTokens, read_special_tokens
from .tokenizer import Tokenizer, digest_of

#: Raised when the same file gives other ids than before, so that saved states are not mixed up.
_RULES_VERSION = 1

_KINDS = {"gpt2": "bpe", "gemma4": "bpe", "llama": "spm", "bert": "wpm", "t5": "ugm", "rwkv": "rwkv"}


def from_gguf(file: GGUFFile) -> Tokenizer:
    """Return the tokenizer of a model file. It keeps nothing of the file open.

    Raises:
        GGUFError: a key is missing or has the wrong type, or the file was changed since it was opened.
        TokenizerError: the kind of tokenizer or the pre-tokenizer is not known, or the vocabulary is damaged.

    """
    metadata = file.metadata
    native = metadata.native
    model = metadata.get_str("tokenizer.ggml.model")
    kind = _KINDS.get(model)
    if kind is None:
        raise TokenizerError(
            f"{file.path}: the tokenizer is of kind '{model}', which is not supported;"
            f" those that are: {', '.join(_KINDS)}"
        )
    size = len(metadata.get_strings("tokenizer.ggml.tokens"))
    try:
        with naming(file.path):
            special = read_special_tokens(native, metadata, model, size)
            made = _MAKERS[kind](metadata, special, size)
    except TokenizerError:
        file.check_unchanged()  # a file that was written to meanwhile is not damaged
        raise
    prefix, suffix = _ends(file, metadata, special, made)
    return Tokenizer(
        made.native,
        kind=kind,
        pre=made.pre,
        special=special,
        prefix=prefix,
        suffix=suffix,
        strips_space=made.strips_space,
        digest=digest_of(_fields(native, metadata, special, prefix, suffix, kind, *made[1:])),
    )


class _Made(NamedTuple):
    """A native tokenizer, and the defaults of its kind."""

    native: _native.Tokenizer
    pre: str = ""
    prefix: str | None = None
    suffix: str | None = None
    strips_space: bool = False
    options: tuple[bool, ...] = ()


def _bpe(metadata: Metadata, special: SpecialTokens, size: int) -> _Made:
    model = metadata.get_str("tokenizer.ggml.model")
    pre = "gemma4" if model == "gemma4" else metadata.get_str("tokenizer.ggml.pre", "default")
    known = _native.pretokenizer(pre)
    if known is None:
        raise BadVocabularyError(
            f"unknown pre-tokenizer '{pre}' (tokenizer.ggml.pre); update llamay, or, if it is"
            f" one of {', '.join(_native.pretokenizer_names())} under another name, change that key"
        )
    metadata.get_strings("tokenizer.ggml.merges")
    tokenizer = _native.Tokenizer.bpe(metadata.native, special.attributes, pre)
    return _Made(tokenizer, pre, prefix="bos" if known[1] else None)


def _spm(metadata: Metadata, special: SpecialTokens, size: int) -> _Made:
    space = metadata.get_bool("tokenizer.ggml.add_space_prefix", True)
    scores = _scores(metadata, size)
    tokenizer = _native.Tokenizer.spm(
        metadata.native, special.attributes, scores, special.ids.get("unk"), space
    )
    return _Made(tokenizer, prefix="bos", strips_space=space)


def _wpm(metadata: Metadata, special: SpecialTokens, size: int) -> _Made:
    lowercase = metadata.get_bool("tokenizer.ggml.normalizer.lowercase", True)
    accents = metadata.get_bool("tokenizer.ggml.normalizer.strip_accents", lowercase)
    tokenizer = _native.Tokenizer.wpm(
        metadata.native, special.attributes, special.ids.get("unk"), lowercase, accents
    )
    first = "cls" if "cls" in special.ids else "bos"
    return _Made(tokenizer, prefix=first, suffix="sep", strips_space=True, options=(lowercase, accents))


def _ugm(metadata: Metadata, special: SpecialTokens, size: int) -> _Made:
    space = metadata.get_bool("tokenizer.ggml.add_space_prefix", True)
    merge = metadata.get_bool("tokenizer.ggml.remove_extra_whitespaces", False)
    scores = _scores(metadata, size)
    tokenizer = _native.Tokenizer.ugm(
        metadata.native, special.attributes, scores, special.ids.get("unk"), space, merge
    )
    return _Made(tokenizer, suffix="eos", strips_space=space, options=(merge,))


def _rwkv(metadata: Metadata, special: SpecialTokens, size: int) -> _Made:
    return _Made(_native.Tokenizer.rwkv(metadata.native, special.attributes, special.ids.get("unk")))


_MAKERS: dict[str, Callable[[Metadata, SpecialTokens, int], _Made]] = {
    "bpe": _bpe,
    "spm": _spm,
    "wpm": _wpm,
    "ugm": _ugm,
    "rwkv": _rwkv,
}


def _scores(metadata: Metadata, size: int) -> Any:
    if "tokenizer.ggml.scores" not in metadata:
        return np.zeros(size, np.float32)
    if metadata.type_of("tokenizer.ggml.scores") == "array of int32":
        return metadata.get_ints("tokenizer.ggml.scores").astype(np.float32)
    return np.ascontiguousarray(metadata.get_floats("tokenizer.ggml.scores"), np.float32)


def _ends(
    file: GGUFFile, metadata: Metadata, special: SpecialTokens, made: _Made
) -> tuple[list[int], list[int]]:
    """Return the tokens before and after a text."""
    sides: list[list[int]] = []
    for key, usual, role in (("bos", made.prefix, "bos"), ("eos", made.suffix, "eos")):
        wanted = metadata.get_bool(f"tokenizer.ggml.add_{key}_token", usual is not None)
        role = usual or role
        if wanted and role not in special.ids:
            raise TokenizerError(
                f"{file.path}: a '{role}' token is to be added to every text, but there is no such token;"
                f" the file was written by a faulty tool"
            )
        sides.append([special.ids[role]] if wanted else [])
    return sides[0], sides[1]


def _fields(
    native: _native.File, metadata: Metadata, special: SpecialTokens, *settings: Any
) -> Iterator[tuple[str, Any]]:
    yield "rules", _RULES_VERSION
    yield "settings", settings
    yield "roles", sorted(special.ids.items())
    yield "attributes", special.attributes
    for key in ("tokens", "merges", "scores", "precompiled_charsmap"):
        full = f"tokenizer.ggml.{key}"
        if full in metadata:
            yield key, native.raw(full)
