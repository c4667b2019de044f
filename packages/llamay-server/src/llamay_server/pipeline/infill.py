"""Prompts for filling in the middle, of models that have tokens for it."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from llamay_server.engine.protocol import Model
from llamay_server.http.call import Call
from llamay_server.http.errors import ApiError

_NEEDED = ("fill_prefix", "fill_suffix", "fill_middle")


class Extra(Struct):
    """A piece of another file."""

    text: str
    filename: str = "tmp"


def can_fill(model: Model) -> bool:
    """Whether a model has the tokens that prefix, suffix and middle are marked with."""
    return all(role in model.info.fill_tokens for role in _NEEDED)


def fill_prompt(
    model: Model,
    prefix: str,
    suffix: str,
    *,
    begun: str = "",
    extra: Sequence[Extra] = (),
    reserve: int = 0,
    call: Call | None = None,
) -> list[int]:
    """The prompt after which a model writes the middle, in the order that llama.cpp has: other files, prefix, suffix.

    Where that does not fit beside `reserve` tokens, the far ends go: first of the other files, then of prefix and
    suffix, three to one. The call is then told. Raises a 501 for a model without tokens for it.
    """
    special = model.info.fill_tokens
    if not can_fill(model):
        lacking = ", ".join(role.removeprefix("fill_") for role in _NEEDED if role not in special)
        raise ApiError(
            "not_supported",
            f"This model was not made to fill in the middle: it has no token for the {lacking}.",
            param="suffix",
            retry=False,
        )

    def tokens(text: str) -> list[int]:
        return model.encode(text, add_special=False, parse_special=False) if text else []

    before, after, middle = tokens(prefix), tokens(suffix), tokens(begun)
    context: list[int] = []
    if "fill_repo" in special and extra:
        context += [special["fill_repo"], *tokens("myproject\n")]
    for piece in extra:
        if "fill_file" in special:
            context += [special["fill_file"], *tokens(piece.filename + "\n"), *tokens(piece.text)]
        else:
            context += tokens("\n\n--- snippet ---\n\n" + piece.text)
    if "fill_file" in special and extra:
        context += [special["fill_file"], *tokens("filename\n")]
    # A text of nothing but what goes before every text.
    begin = model.encode("", add_special=True, parse_special=False)
    room = model.info.context_length - reserve - len(begin) - len(middle) - len(_NEEDED)
    room = max(room, 0)
    wanted = len(before) + len(after) + len(context)
    if len(before) + len(after) > room:
        last = min(len(after), max(room // 4, room - len(before)))
        after = after[:last]
        before = before[len(before) - min(len(before), room - last) :]
    left = room - len(before) - len(after)
    context = context[len(context) - min(len(context), left) :]
    if call is not None and (cut := wanted - len(before) - len(after) - len(context)):
        call.warn(f"{cut} tokens furthest from the gap were left out to fit into the model's context")
    return [
        *begin,
        *context,
        special["fill_prefix"],
        *before,
        *middle,
        special["fill_suffix"],
        *after,
        special["fill_middle"],
    ]
