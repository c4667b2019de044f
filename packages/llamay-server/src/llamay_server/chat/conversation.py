"""Conversations in no dialect, and the prompts that a model's chat template makes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from llamay_models.errors import PromptTooLongError
from llamay_server.chat.tools import Toolbox
from llamay_server.engine.formats import answer_format, prepared
from llamay_server.http.errors import invalid

if TYPE_CHECKING:
    from llamay_server.engine.protocol import Model, Prompt

Message = dict[str, Any]
"""Holds role and content (text or None), and where it has them reasoning_content, tool_calls (with arguments as
objects), tool_call_id and name."""
# The template variables that a client may set. The server alone sets all others (J-08).
TEMPLATE_OPTIONS: Mapping[str, tuple[type, str]] = {
    "enable_thinking": (bool, "true or false"),
    "thinking": (bool, "true or false"),
    "reasoning_effort": (str, "text"),
    "thinking_budget": (int, "a whole number"),
    "date_string": (str, "text"),
    "documents": (list, "a list"),
}
"""The options for the template that a client may set, each with its type and the type's name for people."""


@dataclass(slots=True)
class Conversation:
    """The messages and tools of a chat request, and how the model's template is to write them.

    Attributes:
        messages: in no dialect; see `Message`.
        toolbox: the tools that are offered.
        think: whether the model is to reason first; None leaves the choice to its template.
        template_options: variables of the template beside messages and tools.
        continue_final: whether the last message, the assistant's, is continued.
        open_turn: whether the prompt ends with the beginning of the assistant's turn.
        drop_turns: whether the oldest turns are dropped where the conversation is longer than the model's context.

    """

    messages: list[Message]
    toolbox: Toolbox = field(default_factory=Toolbox)
    think: bool | None = None
    template_options: dict[str, Any] = field(default_factory=dict)
    continue_final: bool = False
    open_turn: bool = True
    drop_turns: bool = False


@dataclass(slots=True)
class Rendered:
    """A prompt, and the facts about it that the parser of the answer needs.

    Attributes:
        prompt: text and ids.
        in_reasoning: whether the prompt ends with the mark that opens the reasoning.
        prompted: whether the prompt ends with the text that begins every answer in the model's tool-call format.
        dropped: how many messages were dropped to make the prompt fit.

    """

    prompt: Prompt
    in_reasoning: bool = False
    prompted: bool = False
    dropped: int = 0


def render(model: Model, conversation: Conversation) -> Rendered:
    """Return the prompt of a conversation (blocking). Raises a 400 without messages, the template's `PromptError`."""
    messages, box = conversation.messages, conversation.toolbox
    if not messages:
        raise invalid("messages: it is empty; send at least one message", "messages")
    options = dict(conversation.template_options)
    if conversation.think is not None:
        options["enable_thinking"] = conversation.think
    template = model.info.chat_template
    turns, tools = prepared(
        messages,
        [tool.as_openai() for tool in box.tools],
        template,
        takes_tools=model.info.template_takes_tools,
        offered=box.mode != "none",
    )
    prompt = model.render(
        turns,
        tools=tools,
        add_generation_prompt=conversation.open_turn and not conversation.continue_final,
        continue_final=conversation.continue_final,
        options=options,
    )
    written = answer_format(template)
    return Rendered(
        prompt, in_reasoning=written.in_reasoning(prompt.text), prompted=written.prompted(prompt.text)
    )


def fit(model: Model, conversation: Conversation) -> Rendered:
    """Render a conversation as `render` does, and drop its oldest turns if it is too long and allows that.

    System messages and the last turn stay. Raises `PromptTooLongError` where the rest is still too long.
    """
    limit = model.info.context_length
    rendered = render(model, conversation)
    dropped = 0
    while len(rendered.prompt.tokens) >= limit:
        turns = [i for i, m in enumerate(conversation.messages) if m["role"] != "system"]
        if not conversation.drop_turns or len(turns) < 2:
            raise PromptTooLongError(len(rendered.prompt.tokens), limit)
        # Dropping half of the excess at a time takes a handful of renders for a conversation of any length.
        excess = len(rendered.prompt.tokens) - limit
        share = max(1, min(len(turns) - 1, excess * len(turns) // (2 * len(rendered.prompt.tokens))))
        gone = set(turns[:share])
        rest = [m for i, m in enumerate(conversation.messages) if i not in gone]
        while len(rest) > 1 and rest[0]["role"] == "tool":
            rest.pop(0)
        dropped += len(conversation.messages) - len(rest)
        conversation.messages = rest
        rendered = render(model, conversation)
    rendered.dropped = dropped
    return rendered


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """Return how many tokens two sequences have in common from their start."""
    n = min(len(a), len(b))
    if list(a[:n]) == list(b[:n]):
        return n
    return next(i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y)


def template_options(value: Mapping[str, Any] | None, where: str = "chat_template_kwargs") -> dict[str, Any]:
    """Return a client's options for the template. Raises a 400 for one that a client may not set."""
    given = {key: each for key, each in (value or {}).items() if each is not None}
    for key, each in given.items():
        if key not in TEMPLATE_OPTIONS:
            allowed = ", ".join(sorted(TEMPLATE_OPTIONS))
            raise invalid(
                f"{where}.{key[:60]}: it cannot be set; allowed are {allowed}", f"{where}.{key[:60]}"
            )
        kind, wanted = TEMPLATE_OPTIONS[key]
        # A boolean is an int in Python.
        if not isinstance(each, kind) or (kind is int and isinstance(each, bool)):
            raise invalid(f"{where}.{key}: it must be {wanted}", f"{where}.{key}", "invalid_type")
    return given
