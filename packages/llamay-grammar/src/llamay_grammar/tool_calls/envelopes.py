"""The formats of tool calls: envelopes by name, and the check of one that a caller makes."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from importlib import resources
from typing import Any

from llamay_grammar import checks

__all__ = ["tool_formats"]


@functools.cache
def tool_formats() -> Mapping[str, Mapping[str, Any]]:
    """Return the envelopes that `compile_tools` knows by name.

    An envelope is data: ``call`` is a list of pieces, each ``{"text": ...}``, ``{"special": name of a special
    token}``, ``{"name": true}``, ``{"arguments": true}``, ``{"id": true}`` (nine letters and digits that the
    model makes up), ``{"count": true}`` (the number of a call), ``{"parameters": {"open": pieces, "close":
    pieces}}`` (arguments that each stand between tags, strings as they are and everything else as JSON;
    ``open`` has a ``{"key": true}``, and behind it perhaps a ``{"typed": [text, text]}`` that says whether
    the value is a string), ``{"optional": pieces}`` or ``{"any": [pieces, ...]}``. All else may be absent:
    ``before``, ``between`` and ``after`` stand around the calls; ``say`` comes before free text and ``then``
    between it and calls; ``stop`` lists the texts that begin a call, which free text before it therefore does
    not contain; ``single`` says that the model makes one call at a time; ``prompted`` is what the end of the
    prompt has already written; ``reasoning`` are the marks around reasoning where they belong to the format;
    ``lenient`` are other ways to write a call (lists of pieces) that some models fall into, to be read but
    never asked for; ``own`` is how the model writes calls of its own accord where that cannot be bound, as an
    envelope with ``before``, ``call``, ``between`` and ``after``, to be read beside ``call``: there ``{"values":
    {"opens": bracket, "assign": text, "quotes": pieces, "escapes": bool}}`` are names and literals up to the closing
    bracket; ``ids`` is how the format names the calls of a conversation, made of ``{name}`` and
    ``{count}``.
    """
    text = resources.files(__package__).joinpath("envelopes.json").read_text("utf-8")
    formats: dict[str, dict[str, Any]] = json.loads(text)
    return formats


def envelope_of(form: object) -> Mapping[str, Any]:
    """Return the envelope of this name, or a caller's own one, checked as far as calls are made of it.

    Raises:
        TypeError: for a part of another type, which is named.
        ValueError: for an unknown name, and a part that is missing or is no text.

    """
    if isinstance(form, str):
        if form not in tool_formats():
            raise ValueError(
                f"format names the unknown tool format {form!r}; known: {', '.join(sorted(tool_formats()))}"
            )
        return tool_formats()[form]
    if not isinstance(form, Mapping):
        raise checks.wrong("format", "the name of a format or an envelope (a mapping)", form)
    if "call" not in form:
        raise ValueError('format must have the pieces of a call under "call"')
    for key in ("call", "before", "between", "after", "say", "then"):
        _check_pieces(f"format[{key!r}]", form.get(key, ()))
    for i, mark in enumerate(_listed("format['stop']", form.get("stop", ()), "texts")):
        checks.text(f"format['stop'][{i}]", mark)
    return form


def _check_pieces(where: str, pieces: object) -> None:
    for i, piece in enumerate(_listed(where, pieces, "pieces")):
        at = f"{where}[{i}]"
        if not isinstance(piece, Mapping):
            raise checks.wrong(at, "a piece (a mapping)", piece)
        for key in ("text", "special"):
            if key in piece:
                checks.text(f"{at}[{key!r}]", piece[key])
        if "optional" in piece:
            _check_pieces(f"{at}['optional']", piece["optional"])
        for n, each in enumerate(_listed(f"{at}['any']", piece.get("any", ()), "lists of pieces")):
            _check_pieces(f"{at}['any'][{n}]", each)
        if "typed" in piece:
            texts = _listed(f"{at}['typed']", piece["typed"], "two texts")
            if len(texts) != 2:
                raise ValueError(f"{at}['typed'] must be a list of two texts, not of {len(texts)}")
            for n, each in enumerate(texts):
                checks.text(f"{at}['typed'][{n}]", each)
        if "parameters" in piece:
            _check_tags(f"{at}['parameters']", piece["parameters"])


def _check_tags(where: str, tags: object) -> None:
    if not isinstance(tags, Mapping):
        raise checks.wrong(where, "a mapping with the pieces of the tags", tags)
    for key in ("open", "close"):
        if key not in tags:
            raise ValueError(f"{where} must have the pieces of a tag under {key!r}")
        _check_pieces(f"{where}[{key!r}]", tags[key])


def _listed(where: str, value: object, of: str) -> list[Any] | tuple[Any, ...]:
    if not isinstance(value, (list, tuple)):
        raise checks.wrong(where, f"a list of {of}", value)
    return value
