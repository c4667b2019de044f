"""`compile_constraint`: compiles a schema, a pattern, a grammar or tools for a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

from llamay_models.constraints.tokens import vocabulary
from llamay_models.constraints.tools import closed_tools

if TYPE_CHECKING:
    from llamay_models.constraints.interface import Compiled, Compiler
    from llamay_models.engine import Context
    from llamay_models.engine.contexts.protocols import ContextModel

Marks = tuple[str, str, bool]
"""The marks that open and close a model's reasoning, and whether the prompt has opened it already."""

_ONE_FORM = {"whitespace": "spaced", "property_order": "schema", "canonical_escapes": True}
"""The options of the compiler by which each value is written in one form."""
_KINDS = ("schema", "regex", "grammar", "tools")


def compile_constraint(
    source: ContextModel | Context,
    compiler: Compiler,
    *,
    schema: Mapping[str, Any] | bool | str | None = None,
    regex: str | None = None,
    grammar: str | None = None,
    tools: Iterable[Mapping[str, Any]] | None = None,
    choice: str | None = None,
    parallel: bool | None = None,
    answer: Mapping[str, Any] | bool | None = None,
    format: str | None = None,  # noqa: A002 - the word of llamay_grammar
    reasoning: bool | Marks = False,
    free_form: bool = False,
    strict: bool = True,
) -> Compiled:
    """Compile a constraint on the text of a model. Its `matcher()` is a constraint for `generate`.

    Args:
        source: a model, or a context of it, which ends where the text begins.
        compiler: `llamay_grammar`.
        schema: a JSON Schema: a mapping, true or false, or JSON text. The text is JSON that is valid under it.
        regex: a regular expression (ECMA-262) that the text matches from end to end.
        grammar: GBNF; the text is a sentence of it.
        tools: the functions that may be called, in OpenAI's form or plain. The text is calls in the format that the
            model's chat
            template speaks; arguments have no names but those that a schema describes, unless it says otherwise.
        choice: of tools: "auto" (the default) lets the model write text, calls, or text and then calls; "required"
            demands a call; the name of a tool demands that one.
        parallel: whether several tools may be called; by default they may.
        answer: a JSON Schema for the text where no tool is called.
        format: the format of calls, a name in `tool_formats`; None takes that of the chat template.
        reasoning: whether reasoning may come first, where the model's chat template knows any. Whether the prompt has
            opened it is seen at the end of a context; the marks may also be given.
        free_form: a document under a schema may be written in any of its forms. By default it is written in one form,
            as calls always are: members in the schema's order, one space after ``,`` and ``:`` and no other whitespace,
            each character of a string in one way. Models come to the end of it sooner, and no value is excluded.
        strict: refuse a keyword that cannot be enforced to the letter. Otherwise it is left out, and listed in
            `warnings`.

    Raises:
        TypeError: for a value that is neither a model nor a context.
        ValueError: for none or several of schema, regex, grammar and tools, for an option that does not go with it, a
            model without a tokenizer, and the errors of the compiler (`llamay_grammar.CompileError`, which names the
            keyword and where it stands).
        InterfaceError: for a compiler of another version.

    """
    texts = dict(zip(_KINDS, (schema, regex, grammar, tools), strict=True))
    given = [kind for kind, value in texts.items() if value is not None]
    if len(given) != 1:
        raise ValueError(f"give one of {', '.join(_KINDS)}, not {' and '.join(given) or 'none'}")
    kind = given[0]
    of_tools = {"choice": choice, "parallel": parallel, "answer": answer, "format": format}
    for name, value in of_tools.items():
        if value is not None and kind != "tools":
            raise ValueError(f"{name} goes with tools, not with {kind}")
    if free_form and kind != "schema":
        raise ValueError(f"free_form goes with schema, not with {kind}")
    if reasoning and kind not in ("schema", "tools"):
        raise ValueError(f"reasoning may come before a schema or tools, not before {kind}")

    model = _model(source)
    tokens = vocabulary(model, compiler)
    found: Compiled
    if regex is not None:
        found = compiler.compile_regex(regex, tokens, whole=True)
        return found
    if grammar is not None:
        found = compiler.compile_gbnf(grammar, tokens)
        return found
    marks = _marks(source, reasoning, compiler)
    options: dict[str, Any] = {"reasoning": compiler.Reasoning(*marks) if marks is not None else None}
    if tools is None:
        subject: Any = schema
        compile_it: Callable[..., Any] = compiler.compile_json_schema
        if not free_form:
            options |= _ONE_FORM
    else:
        subject = closed_tools(tools)
        compile_it = compiler.compile_tools
        options |= {
            "format": format if format is not None else _format(model, compiler),
            "choice": "auto" if choice is None else choice,
            "parallel": parallel is not False,
            "answer": answer,
            # The replay of a call in a later turn is then the text that was generated.
            **_ONE_FORM,
        }
    try:
        found = compile_it(subject, tokens, **options)
    except ValueError:
        if strict:
            raise
        found = compile_it(subject, tokens, mode="approximate", **options)
    return found


def _model(source: ContextModel | Context) -> ContextModel:
    return cast("ContextModel", source.model if hasattr(source, "model") else source)


def _marks(source: ContextModel | Context, reasoning: bool | Marks, compiler: Compiler) -> Marks | None:
    """Return the marks around the reasoning that may come first; None where none may, or the model has none."""
    if isinstance(reasoning, tuple):
        return reasoning
    if not reasoning:
        return None
    if not hasattr(source, "model"):
        raise ValueError(
            "whether a prompt has opened the reasoning is seen at its end: give the context instead of the model"
        )
    from llamay_models.answers import answer_format_of, prompt_end

    context = cast("Context", source)
    written = answer_format_of(context.model, compiler)
    if written.reasoning is None:
        return None
    return *written.reasoning, written.in_reasoning(prompt_end(context.model, context.tokens))


def _format(model: ContextModel, compiler: Compiler) -> str:
    """Return the format of calls that the model's chat template speaks."""
    from llamay_models.answers import answer_format_of

    return answer_format_of(model, compiler).name
