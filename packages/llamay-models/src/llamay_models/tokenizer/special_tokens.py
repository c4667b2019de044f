"""The tokens that begin, end and structure a text: ids in a file's metadata, names that many files rely on.

Files often leave out that a token ends generation, or mark it as an ordinary one. The names below are those
that llama.cpp takes for such tokens; engines that do not know them generate past the end of an answer.
"""

# ruff: noqa: RUF001 - DeepSeek writes its tokens with U+FF5C

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import _native
from ..gguf import Metadata
from .errors import BadVocabularyError

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE, STRIP_LEFT, STRIP_RIGHT = (1 << i for i in range(8))

#: GGUF's token_type, from 0 (undefined) to 6 (byte).
_BY_TYPE = np.array([NORMAL, NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE], np.uint8)

_END_OF_TURN = (
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "<｜end▁of▁sentence｜>",
    "<end_of_utterance>",
)
_END_OF_MESSAGE = ("<|eom_id|>",)
_FILL_PREFIX = (
    "<|fim_prefix|>",
    "<fim-prefix>",
    "<fim_prefix>",
    "<｜fim▁begin｜>",
    "<PRE>",
    "▁<PRE>",
    "<|code_prefix|>",
    "<|prefix|>",
)
_FILL_SUFFIX = (
    "<|fim_suffix|>",
    "<fim-suffix>",
    "<fim_suffix>",
    "<｜fim▁hole｜>",
    "<SUF>",
    "▁<SUF>",
    "<|code_suffix|>",
    "<|suffix|>",
)
_FILL_MIDDLE = (
    "<|fim_middle|>",
    "<fim-middle>",
    "<fim_middle>",
    "<｜fim▁end｜>",
    "<MID>",
    "▁<MID>",
    "<|code_middle|>",
    "<|middle|>",
)
_FILL_PAD = ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]")
_FILL_REPO = ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>")
_FILL_FILE = ("<|file_sep|>",)
_ENDS = (
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
)
_OTHERS = ("<|plamo:eos|>", "<mask>", "[MASK]", "<unk>", "<s>")
_NAMES = sorted(
    {
        *_END_OF_TURN,
        *_END_OF_MESSAGE,
        *_FILL_PREFIX,
        *_FILL_SUFFIX,
        *_FILL_MIDDLE,
        *_FILL_PAD,
        *_FILL_REPO,
        *_FILL_FILE,
        *_ENDS,
        *_OTHERS,
    }
)

#: Name here, key in the file, older keys.
_KEYS = {
    "bos": ("bos_token_id",),
    "eos": ("eos_token_id",),
    "eot": ("eot_token_id",),
    "eom": ("eom_token_id",),
    "unk": ("unknown_token_id",),
    "sep": ("seperator_token_id",),
    "pad": ("padding_token_id",),
    "cls": ("cls_token_id",),
    "mask": ("mask_token_id",),
    "fill_prefix": ("fim_pre_token_id", "prefix_token_id"),
    "fill_suffix": ("fim_suf_token_id", "suffix_token_id"),
    "fill_middle": ("fim_mid_token_id", "middle_token_id"),
    "fill_pad": ("fim_pad_token_id",),
    "fill_repo": ("fim_rep_token_id",),
    "fill_file": ("fim_sep_token_id",),
}
_NAMED = {
    "eot": _END_OF_TURN,
    "eom": _END_OF_MESSAGE,
    "fill_prefix": _FILL_PREFIX,
    "fill_suffix": _FILL_SUFFIX,
    "fill_middle": _FILL_MIDDLE,
    "fill_pad": _FILL_PAD,
    "fill_repo": _FILL_REPO,
    "fill_file": _FILL_FILE,
}

#: The defaults of each kind of file.
_DEFAULTS: dict[str, dict[str, int]] = {
    "llama": {"bos": 1, "eos": 2, "unk": 0},
    "gpt2": {"bos": 11, "eos": 11},
    "bert": {"bos": 101, "unk": 100, "sep": 102, "pad": 0, "mask": 103},
    "t5": {"eos": 1, "unk": 2, "pad": 0},
}


@dataclass(slots=True)
class SpecialTokens:
    """The special tokens of a vocabulary.

    Attributes:
        ids: by role, such as "bos" or "fill_prefix"; roles that the vocabulary lacks are absent.
        eog: every token that ends generation.
        attributes: of each token, shape (vocabulary size,), uint8.

    """

    ids: dict[str, int]
    eog: frozenset[int]
    attributes: NDArray[np.uint8] = field(repr=False)


def read_special_tokens(native: _native.File, metadata: Metadata, model: str, size: int) -> SpecialTokens:
    """Work out the special tokens of a file.

    Raises:
        GGUFError: a key has the wrong type.
        BadVocabularyError: an id is outside the vocabulary, or token types are missing for some tokens.

    """
    attributes = _attributes(metadata, size)
    named = _native.find_tokens(native, _NAMES)
    ids = {role: i for role, i in _DEFAULTS.get(model, {}).items() if i < size}
    if metadata.get_str("tokenizer.ggml.pre", "") in ("chatglm-bpe", "glm4", "glm5"):
        ids.pop("bos", None)
    for role, keys in _KEYS.items():
        for key in keys:
            _read_id(metadata, f"tokenizer.ggml.{key}", role, size, ids)
    for role, names in _NAMED.items():
        found = next((named[n] for n in names if n in named), None)
        if role not in ids and found is not None:
            ids[role] = found
            attributes[found] |= CONTROL
    ends = {named[n] for n in _ENDS if n in named}
    if "</s>" in named and attributes[named["</s>"]] & USER_DEFINED:
        ends.discard(named["</s>"])  # the HTML tag, as in Gemma's vocabulary
    for token in ends:
        attributes[token] |= CONTROL
    ends |= {ids[r] for r in ("fill_pad", "fill_repo", "fill_file", "eos", "eot", "eom") if r in ids}
    _except_lookalikes(ends, named, attributes)
    _set_stripping(metadata, named, attributes)
    return SpecialTokens(ids, frozenset(ends), attributes)


def _attributes(metadata: Metadata, size: int) -> NDArray[np.uint8]:
    types: Any = metadata.get_ints("tokenizer.ggml.token_type", None)
    if types is None:
        return np.full(size, NORMAL, np.uint8)
    if len(types) != size:
        raise BadVocabularyError(
            f"there are {size} tokens but {len(types)} token types; the vocabulary is damaged"
        )
    known = (types >= 0) & (types < len(_BY_TYPE))
    return np.where(known, _BY_TYPE[np.where(known, types, 0)], np.uint8(NORMAL))


def _read_id(metadata: Metadata, key: str, role: str, size: int, ids: dict[str, int]) -> None:
    value = metadata.get_int(key, None)
    if value is None:
        return
    if value in (-1, 0xFFFFFFFF):  # "none", as converters write it
        ids.pop(role, None)
        return
    if not 0 <= value < size:
        raise BadVocabularyError(
            f"{key} is {value}, but there are only {size} tokens; the file was written by a faulty tool"
        )
    ids[role] = value


def _except_lookalikes(ends: set[int], named: dict[str, int], attributes: NDArray[np.uint8]) -> None:
    """Drop names that mean something else in some vocabularies."""
    harmony = {"<|return|>", "<|call|>", "<|end|>"} <= named.keys()
    solar = {"<|flush|>", "<|calls|>", "<|end|>"} <= named.keys()
    if harmony or solar:  # here <|end|> closes a message, not the answer
        ends.discard(named["<|end|>"])
    if "</s>" in named and ("<|tool_response>" in named or "<|plamo:eos|>" in named):
        ends.discard(named["</s>"])  # here </s> is an HTML tag
        attributes[named["</s>"]] = NORMAL


def _set_stripping(metadata: Metadata, named: dict[str, int], attributes: NDArray[np.uint8]) -> None:
    """Say which tokens take the white space beside them; files do not, so it goes by the model's name."""
    pre = metadata.get_str("tokenizer.ggml.pre", "")
    name = metadata.get_str("general.name", "").lower()
    architecture = metadata.get_str("general.architecture", "")
    if pre in ("jina-v2-de", "jina-v2-es", "jina-v2-code") or architecture in (
        "nomic-bert-moe",
        "jina-bert-v3",
    ):
        if "<mask>" in named:
            attributes[named["<mask>"]] |= STRIP_LEFT
    elif "phi-3" in name or "phi3" in name:
        attributes[(attributes & (CONTROL | USER_DEFINED | UNKNOWN)) != 0] |= STRIP_RIGHT
        for token in ("<unk>", "<s>", "<|endoftext|>"):
            if token in named:
                attributes[named[token]] &= ~np.uint8(STRIP_RIGHT)
        if "</s>" in named:
            attributes[named["</s>"]] |= STRIP_RIGHT
    elif "modern-bert" in name and "[MASK]" in named:
        attributes[named["[MASK]"]] |= STRIP_LEFT
