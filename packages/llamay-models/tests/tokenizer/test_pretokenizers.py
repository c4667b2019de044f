"""The hand-written pre-tokenizers against the regular expressions that they stand for.

The expressions are those of the models' tokenizer.json files, run by the `tokenizers` library.
"""

# ruff: noqa: RUF001 - signs that look alike are the point

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from llamay_models import _native

hf = pytest.importorskip("tokenizers")

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
SIGNS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
CASED = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+@?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*@?"
)
CASED_SIGNS = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"
DEEPSEEK3 = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    r"""| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
)
BLOOM = r" ?[^(\s|.,!?…。，、।۔،)]+"
CJK_AND_KANA = "[一-龥぀-ゟ゠-ヿ]+"
HAN = r"[\p{Han}]+"
KIMI = "|".join(
    [
        HAN,
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+@?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*@?",
        r"\p{N}{1,3}",
        SIGNS,
        SPACES,
    ]
).replace("@", CONTRACTIONS)


def gpt4(numbers: str, signs: str = SIGNS, word: str = WORD, contractions: bool = True) -> str:
    parts = [CONTRACTIONS] if contractions else []
    return "|".join([*parts, word, numbers, signs, SPACES])


def gpt4o(numbers: str, contractions: str = CONTRACTIONS) -> str:
    words = CASED.replace("@?", contractions + "?" if contractions else "")
    return "|".join([words, numbers, CASED_SIGNS, SPACES])


#: Name of a pre-tokenizer, and its steps: every match of a step becomes a piece, what lies between as well.
PATTERNS: dict[str, list[str]] = {
    "gpt-2": [GPT2],
    "smollm": [r"\p{N}", GPT2],
    "starcoder": [r"\p{N}", GPT2],
    "falcon": [r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"],
    "default": [r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"],
    "llama-bpe": [gpt4(r"\p{N}{1,3}")],
    "qwen2": [gpt4(r"\p{N}")],
    "qwen35": [gpt4(r"\p{N}", r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*", r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+")],
    "seed-coder": [gpt4(r"\p{N}{1}", r" ?[^\s\p{L}\p{N}\r\n]+")],
    "bailingmoe": [
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*"
        r"|\s*[\r\n]|\s+(?!\S)|\s+"
    ],
    "ufakzeka": [gpt4(r"\p{N}", contractions=False)],
    "minicpm5": [r"\p{N}{1,3}", gpt4(r"\p{N}+")],
    "laguna": [r"[^\n]+|[\n]+", gpt4(r"\p{N}")],
    "exaone-moe": [
        CONTRACTIONS
        + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?"
        r"|\s*[\r\n]|\s+(?!\S)|\s+"
    ],
    "jais-2": [
        CONTRACTIONS
        + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)"
        r"|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)"
        r"|\s{1,2}(?!\S)|\s{1}"
    ],
    "gpt-4o": [gpt4o(r"\p{N}{1,3}")],
    "tekken": [gpt4o(r"\p{N}", "")],
    "deepseek-coder": [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-\ud7ff]+", r"\p{N}"],
    "deepseek-v3": [r"\p{N}{1,3}", CJK_AND_KANA, DEEPSEEK3],
    "bloom": [BLOOM],
    "viking": [BLOOM, r"\p{N}"],
    "kimi-k2": [KIMI],
    "superbpe": [r"\p{N}+", r"(?=(\d{3})+(?!\d))"],
    "tiny_aya": [r"\d{1,3}(?=(?:\d{3})*\b)", gpt4o(r"\p{N}{1,3}")],
    "youtu": [
        "[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-\u303f︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+",
        gpt4o(r"\p{N}"),
    ],
    "afmoe": [
        r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))",
        "[一-鿿㐀-䶿豈-\ufaff぀-ゟ゠-ヿ･-ﾟ⼀-\u2fdfเ-\u0e7f\u0e80-\u0effក-\u17ffက-႟ꩠ-ꩿ\ua9e0-\ua9ff가-\ud7afᄀ-ᇿ]+",
        DEEPSEEK3,
    ],
    "spark2_5": [
        r"\p{N}{1,3}",
        CJK_AND_KANA,
        DEEPSEEK3.replace(r"[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+", r"[\p{P}\p{S}]+|[\r\n]"),
        r"\p{N}",
    ],
    "chameleon": [
        "<sentinel:[0-9]+>",
        "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
        "([\\t\\n]|    |  )",
        r"\p{N}",
        r"[\p{P}!-/:-@\[-`{-~]",
        GPT2,
    ],
    "whole lines": [r"[^\n]+|[\n]+"],
}
SAME = {"whole lines": "gemma4"}

TEXTS = st.lists(
    st.one_of(
        st.sampled_from(
            ["'s", "'LL", "'re", "'Ve", " 'd", "'ſ", "don't", "I'M", "x's", "  ", " \n ", "\r\n", "\t\t"]
        ),
        st.sampled_from(["12345678", "1", " 42", "٣٤٥", "½", "Ⅷ", "1,234.5", "x1y22z333"]),
        st.sampled_from(
            ["Hello", " World", "camelCaseWORDHere", "ÉCOLE", "straße", "ǅungla", "日本語テキスト", "한국어"]
        ),
        st.sampled_from(
            ["e\u0301", "\u0301", "ก็", "हिन्दी", "\u200d", "\u00a0", "\u3000", "\u2028", "\u0085", "ﷺ"]
        ),
        st.sampled_from(
            [
                "!?",
                "...",
                " <|x|>",
                "$+<=>^~`|",
                "/\n",
                "\\/",
                "。，、",
                "(a)",
                "<sentinel:12>",
                "IMGIMGABZ",
                "IMGIMGABCDEZ",
                "👩\u200d🚀",
                "\x00",
                "\x7f",
            ]
        ),
        st.text(alphabet=st.characters(max_codepoint=0x2FFF, exclude_categories=["Cs", "Cn"]), max_size=6),
        st.text(alphabet=" \n\t\r'aZé1!", max_size=12),
    ),
    max_size=8,
).map("".join)


def expected(name: str, text: str) -> list[str]:
    steps: list[Any] = [hf.pre_tokenizers.Split(hf.Regex(pattern), "isolated") for pattern in PATTERNS[name]]
    return [piece for piece, _ in hf.pre_tokenizers.Sequence(steps).pre_tokenize_str(text)]


@pytest.mark.parametrize("name", PATTERNS)
@settings(max_examples=250, deadline=None)
@given(text=TEXTS)
@example(text="   ")
@example(text="a \n\n b")
@example(text=" " * 700 + "x" + " " * 1100)
def test_pieces_are_those_of_the_regular_expression(name: str, text: str) -> None:
    pieces = _native.pretokenize(SAME.get(name, name), text)
    assert [p.decode() for p in pieces] == expected(name, text)


@pytest.mark.parametrize("name", _native.pretokenizer_names())
@settings(max_examples=60, deadline=None)
@given(text=TEXTS, noise=st.binary(max_size=20))
def test_pieces_join_to_the_text_and_none_is_empty(name: str, text: str, noise: bytes) -> None:
    raw = text.encode() + noise + text.encode()
    pieces = _native.pretokenize(name, raw)
    assert b"".join(pieces) == raw
    assert all(pieces)


@pytest.mark.parametrize("name", _native.pretokenizer_names())
def test_hostile_repetition_takes_linear_time(name: str) -> None:
    for unit in ["a", "A", " ", "\n", " \n", "1", "!", "'", "日", "aB", "\u0301", "\xa0x", "<sentinel:1"]:
        text = unit * (200_000 // len(unit))
        start = time.perf_counter()
        _native.pretokenize(name, text)
        assert time.perf_counter() - start < 1, unit
