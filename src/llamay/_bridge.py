"""Where a model and the grammar package meet: neither knows of the other, and only the whole has both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llamay_grammar import Vocabulary
    from llamay_models import Context, Model
    from llamay_models.answers import ContextReader


def reader(
    context: Context,
    tools: Iterable[Mapping[str, Any]] = (),
    *,
    parallel: bool = True,
    bound: bool = False,
) -> ContextReader:
    """Return what takes apart the model's next words in a context: thoughts, text and calls of these tools.

    Make it when the prompt has been read, before anything is generated, and hand its `special` to `generate`:

        reader = llamay.reader(context, tools)
        answer = reader.answer(context.generate(special=reader.special, max_tokens=256))

    `reader.answer` waits for the whole; `reader.events` yields what is certain while it is written. Calls are read in
    the format that the model's chat template speaks (`llamay_grammar.tool_formats` lists them).

    Args:
        context: ends where the answer begins.
        tools: what may be called, in OpenAI's form (``{"type": "function", "function": {...}}``) or plain
            (``{"name": ..., "parameters": schema}``).
        parallel: whether there may be several calls.
        bound: whether what is generated is bound by a grammar of these tools in this format
            (`llamay_grammar.compile_tools`). Calls then come in parts, where the format allows it: `events` yields
            their arguments while they are written.

    Raises:
        TypeError: for what is no context.
        ValueError: for what is no list of tools, and for a tool without a name.

    """
    import llamay_grammar
    from llamay_models.answers import ContextReader

    _expect("context", context, "model", "a context, as model.context() makes it")
    return ContextReader(context, tools, formats=llamay_grammar, parallel=parallel, bound=bound)


def prompt(
    model: Model,
    messages: Sequence[Mapping[str, Any]],
    tools: Iterable[Mapping[str, Any]] = (),
    **options: Any,
) -> list[int]:
    """Return the tokens of a conversation with tools, calls and their results, up to where the answer begins.

    As `Model.render`, in the form that the model's chat template takes: ids of calls as it wants them, one call to a
    turn where it takes one, and tools, calls and results in words where it has no place for them.

    Args:
        model: has a chat template.
        messages: in OpenAI's form (``tool_calls``; ``role: tool`` with a ``tool_call_id``).
        tools: as for `reader`.
        options: of the template, such as ``enable_thinking``.

    Raises:
        TypeError: for what is no model.
        PromptError: for a model without a chat template.
        ChatTemplateError: where the template refuses the conversation, or it is none (a ValueError, too).
        ValueError: for what is no list of tools, and for a tool without a name.

    """
    import llamay_grammar
    from llamay_models.answers import openai_tools, prepared

    _expect("model", model, "chat_template", "a model, as llamay.load() returns it")
    template = model.chat_template.source if model.chat_template is not None else None
    turns, described = prepared(messages, openai_tools(tools), template, llamay_grammar)
    return model.render(turns, tools=described, **options)


def vocabulary(model: Model) -> Vocabulary:
    """Return a model's tokens as the functions of `llamay_grammar` that compile take them.

    Making it takes a moment, and it remembers the masks of all grammars over it: make one for each model and keep it.

    Raises:
        TypeError: for what is no model.
        ValueError: for a model without a tokenizer.

    """
    from llamay_grammar import Vocabulary
    from llamay_models.tokenizer import token_table

    _expect("model", model, "tokenizer", "a model, as llamay.load() returns it")
    if model.tokenizer is None:
        raise ValueError("this model has no tokenizer, so nothing can be said about its text")
    table = token_table(model.tokenizer, model.vocab_size)
    return Vocabulary(table.tokens, special=table.special, end=table.end)


def _expect(what: str, value: object, attribute: str, wanted: str) -> None:
    """Raise TypeError for what is not of the kind that has this attribute, saying what to give instead."""
    if not hasattr(value, attribute):
        kind = "None" if value is None else f"a {type(value).__name__}"
        raise TypeError(f"{what} is {kind}; give {wanted}")
