"""The parsers of `llamay_models.answers` with the formats of `llamay_grammar`: neither package imports the other."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from llamay_models import answers


def _formats() -> answers.Formats:
    import llamay_grammar

    return llamay_grammar


def answer_format(template: str | None) -> answers.AnswerFormat:
    """Return the way in which a model with this template writes calls, and the marks around its reasoning."""
    return answers.answer_format(template, _formats())


def prepared(
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]],
    template: str | None,
    *,
    takes_tools: bool,
    offered: bool,
) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]] | None]:
    """Return a conversation and its tools in the form that a template takes."""
    return answers.prepared(messages, tools, template, _formats(), takes_tools=takes_tools, offered=offered)


def reader(
    schemas: Mapping[str, Mapping[str, Any]],
    *,
    form: str = answers.DEFAULT,
    index: int = 0,
    parallel: bool = True,
    thinks: bool = False,
    in_reasoning: bool = False,
    reasoning: tuple[str, str] = answers.THINK,
    prompted: bool = False,
    known_ids: Collection[str] = (),
    bound: bool = False,
) -> answers.Reader:
    """Return the parser of one choice's text; `schemas` has the arguments' schema of each tool that may be called."""
    return answers.Reader(
        schemas,
        formats=_formats(),
        form=form,
        index=index,
        parallel=parallel,
        thinks=thinks,
        in_reasoning=in_reasoning,
        reasoning=reasoning,
        prompted=prompted,
        known_ids=known_ids,
        bound=bound,
    )
