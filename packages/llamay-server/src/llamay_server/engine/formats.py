"""Where the reading of answers meets the formats of calls: the one knows nothing of the other's package."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from llamay_models import answers

if TYPE_CHECKING:
    from llamay_server.chat.tools import Toolbox


def _formats() -> answers.Formats:
    import llamay_grammar

    return llamay_grammar


def envelope(name: str) -> answers.Envelope:
    """The format of this name."""
    return answers.envelope(name, _formats())


def reasoning_of(template: str | None) -> tuple[str, str] | None:
    """The marks around the thoughts of a model with this template; None where it does not think first."""
    return answers.reasoning_of(template, _formats())


def prepared(
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]],
    template: str | None,
    *,
    takes_tools: bool,
    offered: bool,
) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]] | None]:
    """A conversation and its tools in the form that a template takes."""
    return answers.prepared(messages, tools, template, _formats(), takes_tools=takes_tools, offered=offered)


def reader(
    box: Toolbox,
    *,
    form: str = answers.DEFAULT,
    index: int = 0,
    thinks: bool = False,
    in_thought: bool = False,
    reasoning: tuple[str, str] = answers.THINK,
    prompted: bool = False,
    known_ids: Collection[str] = (),
    bound: bool = False,
) -> answers.Reader:
    """What takes an answer apart in which the tools of a request may be called."""
    return answers.Reader(
        {tool.name: tool.parameters for tool in box.tools} if box.active else {},
        formats=_formats(),
        form=form,
        index=index,
        parallel=box.parallel,
        thinks=thinks,
        in_thought=in_thought,
        reasoning=reasoning,
        prompted=prompted,
        known_ids=known_ids,
        bound=bound,
    )
