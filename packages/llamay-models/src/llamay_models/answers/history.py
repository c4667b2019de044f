"""Conversations with tool calls as a model's template takes them.

Clients send conversations from any source: several calls in one turn, ids of any shape, "" beside calls. Some templates
refuse or silently drop such turns.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from .envelopes import envelope
from .formats import Formats
from .template import format_of
from .tools import listed

Message = Mapping[str, Any]

# Mistral's templates refuse an id that is not nine characters long.
_NINE = re.compile(r"length\s*!=\s*9\b")
_SHORT = re.compile(r"[A-Za-z0-9]{9}")
_NONE = re.compile(r"content['\"\]]*\s+is\s+(?:not\s+)?none")


def checked(messages: Any) -> list[Message]:
    """Return the messages. Raises ChatTemplateError, a ValueError, naming the place that is no conversation."""
    from llamay_models.chat import ChatTemplateError

    try:
        out = listed("messages", messages, "{'role': 'user', 'content': 'Hello'}")
        for number, message in enumerate(out):
            _check(message, f"messages[{number}]")
    except ValueError as e:
        raise ChatTemplateError(str(e)) from None
    return out


def _check(message: Any, where: str) -> None:
    if not isinstance(message, Mapping):
        raise ValueError(f"{where} is a {type(message).__name__}, not an object with 'role' and 'content'")
    if not isinstance(message.get("role"), str):
        raise ValueError(f"{where}.role must be a string such as 'user'")
    if message["role"] == "tool" and message.get("content") is None:
        raise ValueError(f"{where}.content is missing")
    calls = message.get("tool_calls")
    if calls is not None and (not isinstance(calls, Sequence) or isinstance(calls, str)):
        raise ValueError(f"{where}.tool_calls is a {type(calls).__name__}, not a list of calls")
    for n, call in enumerate(calls or ()):
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise ValueError(
                f"{where}.tool_calls[{n}] has no function with a name; give it as "
                "{'function': {'name': ..., 'arguments': ...}}"
            )


def for_template(messages: Sequence[Message], template: str, formats: Formats) -> list[Message]:
    """Return the messages in the form that this template takes; those it takes as they are stay the same objects."""
    out = list(messages)
    if not any(m.get("tool_calls") for m in out):
        return out
    out = list(_in_order(out))
    form = envelope(format_of(template), formats)
    if form.single:
        out = list(_one_by_one(out))
    if _NINE.search(template):
        out = _renamed(out, lambda call, number: _nine(call.get("id") or f"call {number}"), _nine)
    elif form.ids:
        out = _renamed(
            out, lambda call, number: form.ids.format(name=call["function"]["name"], count=number), str
        )
    # A turn that only calls says nothing: templates that ask for none drop its calls where there is a text, and
    # others write "None".
    silent = None if _NONE.search(template) else ""
    return [
        {**m, "content": silent}
        if m.get("tool_calls") and not m.get("content") and m.get("content") != silent
        else m
        for m in out
    ]


def _in_order(messages: Sequence[Message]) -> Iterable[Message]:
    """Yield the results in the order of their calls, by which most templates tell which is whose."""
    at = 0
    while at < len(messages):
        message = messages[at]
        at += 1
        yield message
        if len(calls := message.get("tool_calls") or ()) < 2:
            continue
        end = at
        while end < len(messages) and messages[end]["role"] == "tool":
            end += 1
        place = {call["id"]: n for n, call in enumerate(calls) if call.get("id")}
        yield from sorted(messages[at:end], key=lambda m: place.get(m.get("tool_call_id"), len(place)))
        at = end


def _one_by_one(messages: Sequence[Message]) -> Iterable[Message]:
    """Yield the calls of one turn as turns of their own, each with its result."""
    at = 0
    while at < len(messages):
        message = messages[at]
        at += 1
        calls = message.get("tool_calls") or ()
        if len(calls) < 2:
            yield message
            continue
        results: list[Message] = []
        while at < len(messages) and messages[at]["role"] == "tool":
            results.append(messages[at])
            at += 1
        for n, call in enumerate(calls):
            mine = [r for r in results if r.get("tool_call_id") and r["tool_call_id"] == call.get("id")]
            if not mine and results and not results[0].get("tool_call_id"):
                mine = results[:1]  # without ids they come in the order of the calls
            rest = {} if n == 0 else {"content": ""}
            turn = {**message, **rest, "tool_calls": [call]}
            if n:
                turn.pop("reasoning_content", None)
            yield turn
            yield from mine
            results = [r for r in results if not any(r is m for m in mine)]
        yield from results


def _renamed(
    messages: Sequence[Message], new: Callable[[Message, int], str], other: Callable[[str], str]
) -> list[Message]:
    """Return the messages with ids as a format wants them, the same ones for the same call in every later turn.

    `new` names a call, of which so many came before; `other` an id that no call has.
    """
    out: list[Message] = []
    names: dict[str, str] = {}
    waiting: list[str] = []
    number = 0
    for message in messages:
        if calls := message.get("tool_calls"):
            waiting, renamed = [], []
            for call in calls:
                waiting.append(new(call, number))
                if call.get("id"):
                    names[call["id"]] = waiting[-1]
                renamed.append({**call, "id": waiting[-1]})
                number += 1
            out.append({**message, "tool_calls": renamed})
        elif message["role"] == "tool":
            given = message.get("tool_call_id")
            known = names.get(given) or other(given) if given else waiting[0] if waiting else other("")
            waiting = [w for w in waiting if w != known]
            out.append({**message, "tool_call_id": known})
        else:
            out.append(message)
    return out


def _nine(given: str) -> str:
    return given if _SHORT.fullmatch(given) else hashlib.sha256(given.encode()).hexdigest()[:9]
