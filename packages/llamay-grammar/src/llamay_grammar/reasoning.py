"""Reasoning that a model may write before the document that a grammar constrains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llamay_grammar import checks
from llamay_grammar.vocabulary import Vocabulary

__all__ = ["Reasoning"]

_LINES_AFTER = 2


@dataclass(frozen=True, slots=True)
class Reasoning:
    """The marks around a model's reasoning, such as ``<think>`` and ``</think>``.

    Attributes:
        open: the text that begins the reasoning.
        close: the text that ends it.
        begun: whether the prompt has already written `open`; the document then has to close it first.

    Marks are text in which the names of special tokens (`Vocabulary.special_names`) stand for those tokens.

    Raises:
        TypeError: for marks that are no text, and for another `begun` than True or False.
        ValueError: for empty marks.

    """

    open: str
    close: str
    begun: bool = False

    def __post_init__(self) -> None:
        for name in ("open", "close"):
            if not checks.text(name, getattr(self, name)):
                raise ValueError(f"{name} must be a mark of at least one character, not ''")
        object.__setattr__(self, "begun", checks.flag("begun", self.begun))


def spelled(text: str, vocabulary: Vocabulary) -> list[dict[str, Any]]:
    """Return the parts of a layout that write a text; names of special tokens in it become those tokens."""
    names = sorted((n for n in vocabulary.special_names if n and n in text), key=len, reverse=True)
    out: list[dict[str, Any]] = []
    plain = at = 0
    while at < len(text):
        name = next((n for n in names if text.startswith(n, at)), None)
        if name is None:
            at += 1
            continue
        if plain < at:
            out.append({"text": text[plain:at]})
        out.append({"token": vocabulary.special_names[name]})
        plain = at = at + len(name)
    if plain < len(text):
        out.append({"text": text[plain:]})
    return out


def reasoning_part(reasoning: Reasoning, vocabulary: Vocabulary) -> dict[str, Any]:
    """The part of a layout that holds the reasoning: free text up to the closing mark, and empty lines."""
    lines = {"many": {"text": "\n"}, "min": 0, "max": _LINES_AFTER}
    inside = [{"free": [reasoning.close]}, *spelled(reasoning.close, vocabulary), lines]
    if reasoning.begun:
        return {"seq": inside}
    return {"many": {"seq": [*spelled(reasoning.open, vocabulary), *inside]}, "min": 0, "max": 1}
