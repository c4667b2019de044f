"""The profile of a created model, added to requests of OpenAI's, Anthropic's and llama.cpp's routes.

The request takes precedence: a setting of the profile applies where the request has none, and a conversation keeps its
own system message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from llamay_server.pipeline.sampling import SamplingFields

if TYPE_CHECKING:
    from llamay_server.chat.conversation import Message
    from llamay_server.store import Profile

Fields = TypeVar("Fields", bound=SamplingFields)


def fill_from_profile(fields: Fields, profile: Profile) -> Fields:
    """Set the fields that the request leaves open to the profile's settings."""
    for name, value in profile.parameters.items():
        if name in SamplingFields.__struct_fields__ and getattr(fields, name) is None:
            # -1 is Ollama's way to say that each answer has a seed of its own.
            setattr(fields, name, None if (name, value) == ("seed", -1) else value)
    return fields


def profile_stop(profile: Profile) -> list[str] | None:
    """Return the profile's stop strings."""
    value = profile.parameters.get("stop")
    return [value] if isinstance(value, str) else None if value is None else list(value)


def profile_max_tokens(profile: Profile) -> int | None:
    """Return the profile's limit of tokens; None for no limit."""
    value = profile.parameters.get("num_predict")
    return value if isinstance(value, int) and value >= 0 else None


def behind_profile(messages: Sequence[Message], profile: Profile) -> list[Message]:
    """Return the conversation behind the profile's own messages and system prompt."""
    own = [{**m, "content": m.get("content")} for m in profile.messages]
    has_system = any(m["role"] == "system" for m in (*own[:1], *messages[:1]))
    if profile.system and not has_system:
        own.insert(0, {"role": "system", "content": profile.system})
    elif own and messages and messages[0]["role"] == "system":
        # The request's system message still comes first.
        return [messages[0], *(m for m in own if m["role"] != "system"), *messages[1:]]
    return [*own, *messages]
