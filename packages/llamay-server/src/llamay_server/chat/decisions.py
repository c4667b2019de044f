"""How likely a model finds each of several answers to a question: what stands behind decisions and systemone.

Nothing is generated. Input and question are written as a chat turn that lists the options under one-token keys, and an
answer is the model's own probability of each key as the next token, normalized over the keys. What all questions begin
with is read once, and every question reads the rest on a fork of it.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from llamay_server.chat.run import ChatRequest, Message, common, render
from llamay_server.engine.protocol import Model, Progress, PromptTooLong
from llamay_server.http.errors import invalid


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, and the options, each with its description."""

    instructions: str
    options: Sequence[tuple[str, str | None]]

    def text(self, keys: Sequence[str]) -> str:
        """The question as the model reads it."""
        lines = [
            f"{key}: {label}" + (f" ({about})" if about else "")
            for key, (label, about) in zip(keys, self.options, strict=False)
        ]
        return f"{self.instructions}\n\n" + "\n".join(lines) + "\n\nAnswer with the one key that fits best."


@dataclass(frozen=True, slots=True)
class Judged:
    """Probabilities of each question's options, and tokens: of the input once and all questions, and found computed."""

    answers: list[list[float]]
    input_tokens: int
    cached_tokens: int


def option_keys(model: Model, count: int) -> list[tuple[str, list[int]]]:
    """Short keys that this vocabulary has as one token, each with its tokens (bare, and after a space)."""
    found: list[tuple[str, list[int]]] = []
    used: set[int] = set()
    for key in _candidates():
        tokens: list[int] = []
        for spelled in (key, f" {key}"):
            ids = model.encode(spelled, add_special=False, parse_special=False)
            if len(ids) == 1 and ids[0] not in tokens:
                tokens += ids
        if tokens and used.isdisjoint(tokens):
            used.update(tokens)
            found.append((key, tokens))
            if len(found) == count:
                return found
    raise invalid(
        f"questions: this model's vocabulary has keys for {len(found)} options, not for {count}", "questions"
    )


def _candidates() -> Iterator[str]:
    yield from string.ascii_uppercase
    yield from string.ascii_lowercase
    yield from string.digits
    for pair in product(string.ascii_uppercase + string.digits, repeat=2):
        yield "".join(pair)


def _prompt(model: Model, messages: Sequence[Message], question: str) -> list[int]:
    """The conversation with the question at its end, up to where the answer begins."""
    if model.info.chat_template is None:
        said = "\n\n".join(m["content"] or "" for m in messages)
        return model.encode(f"{said}\n\n{question}\nAnswer:", add_special=True, parse_special=False)
    *earlier, last = messages
    # Templates want turns to alternate, so a question about what the user said stands in the same turn.
    if last["role"] == "user":
        turns = [*earlier, {**last, "content": f"{last['content']}\n\n{question}"}]
    else:
        turns = [*messages, {"role": "user", "content": question}]
    return render(model, ChatRequest(messages=turns, sampling={}, think=False)).prompt.tokens


def judge(
    model: Model, messages: Sequence[Message], questions: Sequence[Question], tenant: str
) -> Callable[[Progress], Judged]:
    """The blocking work of answering. Raises a 400, `PromptTooLong`."""
    keys = option_keys(model, max(len(q.options) for q in questions))
    names = [key for key, _ in keys]
    prompts = [_prompt(model, messages, q.text(names)) for q in questions]
    if (longest := max(len(ids) for ids in prompts)) > model.info.context_length:
        raise PromptTooLong(longest, model.info.context_length)
    shared = min(min(common(prompts[0], ids) for ids in prompts), min(len(ids) for ids in prompts) - 1)

    def work(progress: Progress) -> Judged:
        base = model.context(prompts[0][:shared], tenant=tenant, progress=progress)
        answers, read = [], shared
        try:
            for question, ids in zip(questions, prompts, strict=True):
                fork = base.fork(1)[0]
                try:
                    fork.extend(ids[shared:], progress=progress)
                    chances = fork.chances([token for _, tokens in keys for token in tokens])
                finally:
                    fork.close()
                read += len(ids) - shared
                each = iter(chances)
                weights = [sum(next(each) for _ in tokens) for _, tokens in keys][: len(question.options)]
                total = sum(weights)
                # All of them impossible in this arithmetic: nothing speaks for one of them more than for another.
                answers.append([w / total if total else 1 / len(weights) for w in weights])
            return Judged(answers, read, base.cached_tokens)
        finally:
            base.close()

    return work
