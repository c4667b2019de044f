"""A conversation and the context that holds it: the chat without its terminal.

Each turn renders the whole conversation with the model's template and keeps the longest prefix that is
computed already, so that only the new turn is prefilled, also with a template that rewrites earlier turns.
A branch is a fork of the context with its own list of messages.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import CliError
from .prefill import Prefill
from .reasoning import reasoning_splitter, template_options, visible_tokens

if TYPE_CHECKING:
    from llamay_models import Context, Generation, Model
    from llamay_models.answers import ReasoningSplitter

    from ..console.progress import Report

Message = Mapping[str, str]


@dataclass
class Branch:
    """One line of a conversation."""

    messages: list[Message] = field(default_factory=list)
    context: Context | None = None
    opaque: bool = False
    """Whether the context began as a snapshot, whose messages are not known."""
    before_turn: BeforeTurn | None = None
    """A fork from before the last turn, for `again`."""

    def close(self) -> None:
        """Give the pages of the branch back."""
        if self.context is not None:
            self.context.close()
        if self.before_turn is not None:
            self.before_turn.close()


@dataclass(frozen=True)
class BeforeTurn:
    """A context as it was before a turn; None before the first."""

    context: Context | None

    def close(self) -> None:
        """Give its pages back."""
        if self.context is not None:
            self.context.close()


class Session:
    """A chat with one model, in branches."""

    def __init__(
        self,
        model: Model,
        *,
        raw: bool = False,
        system: str | None = None,
        opening: Sequence[Message] = (),
        think: bool | None = None,
    ) -> None:
        self.model = model
        self.raw = raw or model.chat_template is None
        self.system = system
        self.think = think
        """Whether the model is asked to reason first; None leaves the choice to the template."""
        self.splitter: ReasoningSplitter | None = None
        """The splitter of reasoning and text for the running answer."""
        self.opening = list(opening)
        """Messages that every conversation with this model begins with."""
        self.branches: dict[str, Branch] = {"main": Branch()}
        self.name = "main"
        self.prefill = Prefill(0, 0, 0.0)
        if system and self.raw:
            raise CliError(
                "a system prompt needs a chat template" + ("" if raw else ", and this model has none"),
                "put it into the prompt instead",
            )

    @property
    def branch(self) -> Branch:
        """The branch that the conversation is on."""
        return self.branches[self.name]

    def ask(self, text: str, sampling: Any, report: Report | None = None, **options: Any) -> Generation:
        """Send `text` and return the running answer; afterwards call `answered` with the text that was written.

        Raises PromptError (and forgets `text`) when it does not fit.
        """
        branch = self.branch
        before = BeforeTurn(branch.context.fork() if branch.context is not None else None)
        branch.messages.append({"role": "user", "content": text})
        try:
            context = self._prefill(text, report)
            # A constraint holds from the first character on, so reasoning cannot come first.
            free = not self.raw and options.get("constraint") is None
            self.splitter = reasoning_splitter(self.model, context.tokens) if free else None
            if special := visible_tokens(self.model, self.splitter):
                options["special"] = special
            generation = context.generate(sampling, **options)
        except BaseException:
            branch.messages.pop()
            before.close()
            raise
        if branch.before_turn is not None:
            branch.before_turn.close()
        branch.before_turn = before
        return generation

    def answered(self, text: str, reasoning: str = "") -> None:
        """Note the answer, whole or cut short, and the reasoning before it, as the model's turn."""
        said = {"role": "assistant", "content": text}
        self.branch.messages.append(said | {"reasoning_content": reasoning} if reasoning else said)

    def again(self) -> str:
        """Take back the last turn and return the user's message of it."""
        branch = self.branch
        if not branch.messages or branch.before_turn is None:
            raise CliError("there is no turn to take back")
        while branch.messages[-1]["role"] == "assistant":
            branch.messages.pop()
        text = branch.messages.pop()["content"]
        if branch.context is not None:
            branch.context.close()
        branch.context, branch.before_turn = branch.before_turn.context, None
        return text

    def clear(self) -> None:
        """Forget the conversation on this branch."""
        self.branch.close()
        self.branches[self.name] = Branch()

    def fork(self, name: str | None = None) -> str:
        """Begin a branch that shares everything up to here, move to it, and return its name."""
        name = name or next(n for i in range(1, 1 << 30) if (n := f"branch-{i}") not in self.branches)
        if name in self.branches:
            raise CliError(f"there is a branch {name} already", f"/switch {name} goes to it")
        old = self.branch
        context = old.context.fork() if old.context is not None else None
        self.branches[name] = Branch(list(old.messages), context, old.opaque)
        self.name = name
        return name

    def switch(self, name: str) -> None:
        """Go on with another branch."""
        if name not in self.branches:
            raise CliError(f"there is no branch {name}", f"there are {', '.join(self.branches)}")
        self.name = name

    def set_system(self, text: str | None) -> None:
        """Change the system prompt, from the next turn on."""
        if self.raw:
            raise CliError("a system prompt needs a chat template")
        if self.branch.opaque:
            raise CliError("the system prompt of a loaded context cannot be changed", "/clear begins anew")
        self.system = text or None

    def save(self, path: Path, report: Report | None = None) -> None:
        """Write the context to a snapshot file."""
        if self.branch.context is None:
            raise CliError("there is nothing to save yet")
        self.branch.context.save(path, progress=report)

    def load(self, path: Path, report: Report | None = None) -> int:
        """Go on from a snapshot file; return its tokens. The branch is as before when the file is refused."""
        context = self.model.restore(path, progress=report)
        self.clear()
        self.branches[self.name] = Branch(context=context, opaque=True)
        return len(context)

    def close(self) -> None:
        """Give every branch's pages back."""
        for branch in self.branches.values():
            branch.close()

    def _prefill(self, text: str, report: Report | None) -> Context:
        branch = self.branch
        if self.raw:
            if branch.context is None:
                branch.context = self._begin(self.model.encode(text), report)
            else:
                self._extend(branch.context, self.model.encode(text, add_special=False), report)
            return branch.context
        if branch.opaque:
            assert branch.context is not None
            self._extend(branch.context, next_turn(self.model, branch.context.tokens, text), report)
            return branch.context
        ids = encode(self.model, self._conversation(), **template_options(self.think))
        if branch.context is not None:
            kept = min(common_prefix(branch.context.tokens, ids), len(ids) - 1)
            if self._go_back(branch.context, kept):
                self._extend(branch.context, ids[kept:], report)
                return branch.context
            branch.context.close()
        branch.context = self._begin(ids, report)
        return branch.context

    def _begin(self, ids: list[int], report: Report | None) -> Context:
        began = time.perf_counter()
        context = self.model.context(ids, progress=report)
        self.prefill = Prefill(len(ids), 0, time.perf_counter() - began)
        return context

    def _extend(self, context: Context, ids: list[int], report: Report | None) -> None:
        began, known = time.perf_counter(), len(context)
        context.extend(ids, progress=report)
        self.prefill = Prefill(len(ids), known, time.perf_counter() - began)

    def _go_back(self, context: Context, length: int) -> bool:
        """Truncate the context to `length`; False where a sliding window has dropped positions that it needs."""
        from llamay_models.errors import ContextError

        if length == len(context):
            return True
        try:
            context.truncate(length)
        except ContextError:
            return False
        return True

    def _conversation(self) -> list[Message]:
        system = [{"role": "system", "content": self.system}] if self.system else []
        return [*system, *self.opening, *self.branch.messages]


def encode(model: Model, messages: Sequence[Message], *, generate: bool = True, **options: Any) -> list[int]:
    """Return the ids of a conversation as the model's template writes it."""
    return list(model.render(messages, add_generation_prompt=generate, **options))


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """Return how many tokens two sequences begin with alike."""
    length = min(len(a), len(b))
    same = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), length)
    return min(same, length)


def next_turn(model: Model, tokens: Sequence[int], text: str) -> list[int]:
    """Return the ids that say `text` after a context whose messages are not known.

    The text of one more turn is the difference between the rendered conversations with it and without it;
    the end of the model's own turn may be in the context already, wholly or in part.
    """
    before: list[Message] = [{"role": "user", "content": "a"}]
    answer: Message = {"role": "assistant", "content": "b"}
    opened = encode(model, before)
    said = encode(model, [*before, answer], generate=False)
    longer = encode(model, [*before, answer, {"role": "user", "content": text}])
    if said[: len(opened)] != opened or longer[: len(said)] != said:
        raise CliError(
            "this model's template rewrites earlier turns, so a loaded context cannot be continued as a chat"
        )
    body = model.encode("b", add_special=False)
    tail = (
        said[len(opened) + len(body) :]
        if said[len(opened) :][: len(body)] == list(body)
        else said[len(opened) :]
    )
    there = next((n for n in range(len(tail), 0, -1) if list(tokens[-n:]) == tail[:n]), 0)
    return [*tail[there:], *longer[len(said) :]]
