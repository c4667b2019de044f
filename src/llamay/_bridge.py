"""Where a model and the grammar package meet: neither knows of the other, and only the whole has both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llamay_grammar import Vocabulary
    from llamay_models import Context, Model
    from llamay_models.answers import ContextReader


def reader(
    context: Context, tools: Iterable[Mapping[str, Any]] = (), *, parallel: bool = True
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

    Raises:
        ValueError: for a tool without a name.

    """
    import llamay_grammar
    from llamay_models.answers import ContextReader

    return ContextReader(context, tools, formats=llamay_grammar, parallel=parallel)


def vocabulary(model: Model) -> Vocabulary:
    """Return a model's tokens as the functions of `llamay_grammar` that compile take them.

    Making it takes a moment, and it remembers the masks of all grammars over it: make one for each model and keep it.

    Raises:
        ValueError: for a model without a tokenizer.

    """
    from llamay_grammar import Vocabulary
    from llamay_models.tokenizer import token_table

    if model.tokenizer is None:
        raise ValueError("this model has no tokenizer, so nothing can be said about its text")
    table = token_table(model.tokenizer, model.vocab_size)
    return Vocabulary(table.tokens, special=table.special, end=table.end)
