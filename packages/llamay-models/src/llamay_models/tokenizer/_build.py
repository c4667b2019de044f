"""Building a tokenizer from the metadata of a file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .. import _native
from ..gguf import GGUFFile, Metadata
from ._errors import TokenizerError, naming
from ._special import SpecialTokens, read_special_tokens
from ._tokenizer import Tokenizer, digest_of

#: Raised when the same file gives other ids than before, so that saved states are not mixed up.
_RULES_VERSION = 1

_KINDS = {"gpt2": "bpe", "gemma4": "bpe", "llama": "spm"}


def from_gguf(file: GGUFFile) -> Tokenizer:
    """Return the tokenizer of a model file. It keeps nothing of the file open.

    Raises:
        GGUFError: a key is missing or has the wrong type.
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
    with naming(file.path):
        special = read_special_tokens(native, metadata, model, size)
        if kind == "bpe":
            tokenizer, pre, adds_bos, space = _bpe(file, native, special, model)
        else:
            tokenizer, pre, adds_bos, space = _spm(native, metadata, special, size)
    prefix, suffix = _ends(file, metadata, special, adds_bos)
    return Tokenizer(
        tokenizer,
        kind=kind,
        pre=pre,
        special=special,
        prefix=prefix,
        suffix=suffix,
        strips_space=space,
        digest=digest_of(_fields(native, metadata, special, prefix, suffix, kind, pre, space)),
    )


def _bpe(
    file: GGUFFile, native: _native.File, special: SpecialTokens, model: str
) -> tuple[_native.Tokenizer, str, bool, bool]:
    pre = "gemma4" if model == "gemma4" else file.metadata.get_str("tokenizer.ggml.pre", "default")
    known = _native.pretokenizer(pre)
    if known is None:
        raise TokenizerError(
            f"{file.path}: unknown pre-tokenizer '{pre}' (tokenizer.ggml.pre); update llamay, or, if it is"
            f" one of {', '.join(_native.pretokenizer_names())} under another name, change that key"
        )
    return _native.Tokenizer.bpe(native, special.attributes, pre), pre, known[1], False


def _spm(
    native: _native.File, metadata: Metadata, special: SpecialTokens, size: int
) -> tuple[_native.Tokenizer, str, bool, bool]:
    space = metadata.get_bool("tokenizer.ggml.add_space_prefix", True)
    scores = _scores(metadata, size)
    tokenizer = _native.Tokenizer.spm(native, special.attributes, scores, special.ids.get("unk"), space)
    return tokenizer, "", True, space


def _scores(metadata: Metadata, size: int) -> Any:
    if "tokenizer.ggml.scores" not in metadata:
        return np.zeros(size, np.float32)
    if metadata.type_of("tokenizer.ggml.scores") == "array of int32":
        return metadata.get_ints("tokenizer.ggml.scores").astype(np.float32)
    return np.ascontiguousarray(metadata.get_floats("tokenizer.ggml.scores"), np.float32)


def _ends(
    file: GGUFFile, metadata: Metadata, special: SpecialTokens, adds_bos: bool
) -> tuple[list[int], list[int]]:
    """Return the tokens before and after a text."""
    adds_bos = metadata.get_bool("tokenizer.ggml.add_bos_token", adds_bos)
    adds_eos = metadata.get_bool("tokenizer.ggml.add_eos_token", False)
    for wanted, role in ((adds_bos, "bos"), (adds_eos, "eos")):
        if wanted and role not in special.ids:
            raise TokenizerError(
                f"{file.path}: tokenizer.ggml.add_{role}_token is set, but there is no such token;"
                f" the file was written by a faulty tool"
            )
    return [special.ids["bos"]] if adds_bos else [], [special.ids["eos"]] if adds_eos else []


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
