"""Prompts for filling in the middle (Bavarian et al. 2022, https://arxiv.org/abs/2207.14255), for models trained to."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from llamay_server.engine.protocol import Model
from llamay_server.http.errors import ApiError
from llamay_server.http.exchange import Exchange

_NEEDED = ("fill_prefix", "fill_suffix", "fill_middle")


class Extra(Struct):
    """A piece of another file, which precedes the gap."""

    text: str
    filename: str = "tmp"


def can_fill(model: Model) -> bool:
    """Return whether a model has the tokens that mark prefix, suffix and middle."""
    return all(role in model.info.fill_tokens for role in _NEEDED)


def fill_prompt(
    model: Model,
    prefix: str,
    suffix: str,
    *,
    begun: str = "",
    extra: Sequence[Extra] = (),
    reserve: int = 0,
    exchange: Exchange | None = None,
) -> list[int]:
    """Return the prompt after which a model writes the middle, in llama.cpp's order: other files, prefix, suffix.

    Where it does not fit beside `reserve` tokens, the text furthest from the gap is left out, with a warning: first of
    the other files, then of prefix and suffix, three to one.

    Args:
        model: has tokens for filling in the middle; a 501 is raised for one that has none.
        prefix: the text before the gap.
        suffix: the text after the gap.
        begun: the beginning of the middle.
        extra: pieces of other files.
        reserve: tokens to leave for the middle.
        exchange: gets the warning.

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
    # The tokens that begin every text of this vocabulary.
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
    if exchange is not None and (cut := wanted - len(before) - len(after) - len(context)):
        exchange.warn(f"{cut} tokens furthest from the gap were left out to fit into the model's context")
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
