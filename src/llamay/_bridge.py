"""Functions that need a model and the grammar package: neither imports the other, and this package has both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from llamay_grammar import Matcher, Vocabulary
    from llamay_models import Context, Model
    from llamay_models.answers import ContextReader


def reader(
    context: Context,
    tools: Iterable[Mapping[str, Any]] = (),
    *,
    parallel: bool = True,
    bound: bool = False,
) -> ContextReader:
    """Return what takes apart what the model writes next in a context: reasoning, text and calls of these tools.

    Make it before anything is generated, and hand its `special` to `generate`:

        reader = llamay.reader(context, tools)
        answer = reader.answer(context.generate(special=reader.special, max_tokens=256))

    `reader.answer` waits for the whole; `reader.events` yields what is certain while it is written. Calls are read in
    the format that the model's chat template speaks (`llamay_grammar.tool_formats` lists them).

    Args:
        context: ends where the answer begins.
        tools: what may be called, in OpenAI's form (``{"type": "function", "function": {...}}``) or plain
            (``{"name": ..., "parameters": schema}``).
        parallel: whether there may be several calls.
        bound: whether a constraint of these tools (`constraint`) binds what is generated. Calls then come in parts,
            where the format allows it: `events` yields their arguments while they are written.

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


def constraint(
    source: Model | Context,
    *,
    schema: Mapping[str, Any] | bool | str | None = None,
    regex: str | None = None,
    grammar: str | None = None,
    tools: Iterable[Mapping[str, Any]] | None = None,
    choice: str | None = None,
    parallel: bool | None = None,
    answer: Mapping[str, Any] | bool | None = None,
    format: str | None = None,  # noqa: A002 - the word of llamay_grammar
    reasoning: bool = False,
    free_form: bool = False,
    strict: bool = True,
) -> Matcher:
    """Return a constraint for `generate`: only text that fits is ever written.

        matcher = llamay.constraint(context, tools=tools, choice="required", reasoning=True)
        answer = reader.answer(context.generate(constraint=matcher, special=reader.special))

    Give one of `schema`, `regex`, `grammar` and `tools`. A constraint serves one text; `fork()` makes another, and a
    second call with the same arguments compiles nothing anew. What was left out (`strict=False`) is in
    `matcher.grammar.warnings`.

    Args:
        source: a model, or a context of it, which ends where the text begins.
        schema: a JSON Schema: a mapping, true or false, or JSON text. The text is JSON that is valid under it.
        regex: a regular expression (ECMA-262) that the text matches from end to end.
        grammar: GBNF; the text is a sentence of it.
        tools: what may be called, in OpenAI's form or plain. The text is calls in the format that the model's chat
            template speaks; arguments have no names but those that a schema describes, unless it says otherwise.
        choice: of tools: "auto" (the default) lets the model write text, calls, or text and then calls; "required"
            demands a call; the name of a tool demands that one.
        parallel: whether several tools may be called; by default they may.
        answer: a JSON Schema for the text where no tool is called.
        format: the format of calls, a name in `llamay_grammar.tool_formats()`; None takes that of the chat template.
        reasoning: whether reasoning may come before a document or calls, where the model's chat template knows any.
            Needs a context, whose end says whether the prompt has opened it.
        free_form: a document under a schema may be written in any of its forms. By default it is written in one form,
            as calls always are: members in the schema's order, one space after ``,`` and ``:`` and no other whitespace,
            each character of a string in one way. Models come to the end of it sooner, and no value is excluded.
        strict: refuse what cannot be enforced to the letter.

    Raises:
        TypeError: for what is neither a model nor a context.
        ValueError: for none or several of the four, for an option that does not go with it, a model without a
            tokenizer, and `llamay_grammar.CompileError`, which names the keyword and where it stands.

    """
    import llamay_grammar
    from llamay_models.constraints import compile_constraint

    if not hasattr(source, "model"):
        _expect("model", source, "tokenizer", "a model, as llamay.load() returns it, or a context")
    compiled = compile_constraint(
        source,
        llamay_grammar,
        schema=schema,
        regex=regex,
        grammar=grammar,
        tools=tools,
        choice=choice,
        parallel=parallel,
        answer=answer,
        format=format,
        reasoning=reasoning,
        free_form=free_form,
        strict=strict,
    )
    return cast("Matcher", compiled.matcher())


def vocabulary(model: Model) -> Vocabulary:
    """Return a model's tokens as the functions of `llamay_grammar` that compile take them.

    Made when it is first asked for, which takes a moment, and kept as long as the model's tokenizer.

    Raises:
        TypeError: for what is no model.
        ValueError: for a model without a tokenizer.

    """
    import llamay_grammar
    from llamay_models import constraints

    found: Vocabulary = constraints.vocabulary(model, llamay_grammar)
    return found


def _expect(what: str, value: object, attribute: str, wanted: str) -> None:
    """Raise TypeError for what is not of the kind that has this attribute, saying what to give instead."""
    if not hasattr(value, attribute):
        kind = "None" if value is None else f"a {type(value).__name__}"
        raise TypeError(f"{what} is {kind}; give {wanted}")
