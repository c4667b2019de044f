"""Prompts of completions and texts to embed, as token ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llamay_server.http.errors import invalid

if TYPE_CHECKING:
    from llamay_server.engine.protocol import Model


def read_prompts(
    value: str | list[Any], model: Model, where: str = "prompt", *, parse_special: bool = True
) -> list[list[int]]:
    """Return the ids of prompts as OpenAI's completions take them: a text, ids, or a list of both mixed.

    `parse_special` says whether control tokens that are written out in a text count as such. Raises a 400 with the path
    of the wrong part.
    """
    if isinstance(value, list) and value and all(isinstance(v, int) for v in value):
        items: list[Any] = [value]
        single = True
    else:
        items, single = (value, False) if isinstance(value, list) else ([value], True)
    if not items:
        raise invalid(f"{where}: it is empty", where)
    prompts = []
    for i, item in enumerate(items):
        at = where if single else f"{where}[{i}]"
        if isinstance(item, str):
            ids = model.encode(item, add_special=True, parse_special=parse_special)
        elif isinstance(item, int):
            raise invalid(
                f"{at}: token ids and texts are mixed in one list; put the ids in a list of their own", at
            )
        else:
            ids = item
            size = model.info.vocab_size
            if bad := [t for t in ids if not 0 <= t < size]:
                raise invalid(f"{at}: {bad[0]} is not a token of this model (0 to {size - 1})", at)
        if not ids:
            raise invalid(f"{at}: it is empty", at)
        prompts.append(list(ids))
    return prompts


def read_native_prompts(
    value: Any, model: Model, where: str = "prompt", *, parse_special: bool = True
) -> list[list[int]]:
    """Return the ids of prompts as llama.cpp takes them: text, ids, both in one list, an object, or a list of such."""
    if isinstance(value, list) and not any(isinstance(v, int) for v in value):
        if not value:
            raise invalid(f"{where}: it is empty", where)
        items = enumerate(value)
        return [_native_prompt(v, model, f"{where}[{i}]", parse_special=parse_special) for i, v in items]
    return [_native_prompt(value, model, where, parse_special=parse_special)]


def _native_prompt(value: Any, model: Model, where: str, *, parse_special: bool) -> list[int]:
    if isinstance(value, dict):
        if value.get("multimodal_data"):
            raise invalid(f"{where}.multimodal_data: this model reads text only", f"{where}.multimodal_data")
        if not isinstance(value := value.get("prompt_string"), str):
            raise invalid(f"{where}.prompt_string: it must be text", f"{where}.prompt_string")
    if not isinstance(value, list) or all(isinstance(v, int) for v in value):
        one = value if value or isinstance(value, str) else [value]
        return read_prompts(one, model, where, parse_special=parse_special)[0]
    ids: list[int] = []
    for i, item in enumerate(value):
        if isinstance(item, str):
            ids += model.encode(item, add_special=i == 0, parse_special=parse_special)
        elif isinstance(item, int):
            ids += read_prompts([item], model, f"{where}[{i}]")[0]
        else:
            raise invalid(f"{where}[{i}]: it must be text or a token id", f"{where}[{i}]")
    return ids
