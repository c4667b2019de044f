"""The probability of each of several answers to a question: the computation of decisions and systemone.

Nothing is generated. Input and question become a chat turn that lists the options under keys of one token, and the
answer is the model's own probability of each key as the next token, normalized over the keys. The common beginning of
all questions is prefilled once, and every question prefills the rest on a fork of it.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from llamay_models.errors import PromptTooLongError
from llamay_server.chat.conversation import Conversation, Message, common_prefix, render
from llamay_server.http.errors import invalid

if TYPE_CHECKING:
    from llamay_server.engine.protocol import Context, Model, Progress


MAX_OPTIONS = 255
MAX_QUESTIONS = 400


@dataclass(frozen=True, slots=True)
class Question:
    """A question, and its options with their descriptions."""

    instructions: str
    options: Sequence[tuple[str, str | None]]

    def text(self, keys: Sequence[str]) -> str:
        """Return the question as the model reads it, with a key for each option."""
        lines = [
            f"{key}: {label}" + (f" ({about})" if about else "")
            for key, (label, about) in zip(keys, self.options, strict=False)
        ]
        return f"{self.instructions}\n\n" + "\n".join(lines) + "\n\nAnswer with the one key that fits best."


@dataclass(frozen=True, slots=True)
class Decisions:
    """The probabilities of each question's options, and token counts.

    Attributes:
        answers: one list of probabilities for each question.
        input_tokens: the tokens of the common beginning, counted once, and of all questions.
        cached_tokens: how many of these tokens were found in the prefix cache.

    """

    answers: list[list[float]]
    input_tokens: int
    cached_tokens: int


def decide(
    model: Model, messages: Sequence[Message], questions: Sequence[Question], tenant: str
) -> Callable[[Progress], Decisions]:
    """Return the blocking work of answering questions about a conversation. Raises a 400, `PromptTooLongError`."""
    keys = option_keys(model, max(len(q.options) for q in questions))
    names = [key for key, _ in keys]
    prompts = [_prompt(model, messages, q.text(names)) for q in questions]
    if (longest := max(len(ids) for ids in prompts)) > model.info.context_length:
        raise PromptTooLongError(longest, model.info.context_length)
    shortest = min(len(ids) for ids in prompts)
    shared = min(min(common_prefix(prompts[0], ids) for ids in prompts), shortest - 1)

    def work(progress: Progress) -> Decisions:
        base = model.context(prompts[0][:shared], tenant=tenant, progress=progress)
        answers, computed = [], shared
        try:
            for question, ids in zip(questions, prompts, strict=True):
                fork = base.fork()
                try:
                    fork.extend(ids[shared:], progress=progress)
                    chances = next_probabilities(fork, [token for _, tokens in keys for token in tokens])
                finally:
                    fork.close()
                computed += len(ids) - shared
                each = iter(chances)
                weights = [sum(next(each) for _ in tokens) for _, tokens in keys][: len(question.options)]
                total = sum(weights)
                # Where the probabilities of all keys underflow, no key is likelier than another.
                answers.append([w / total if total else 1 / len(weights) for w in weights])
            return Decisions(answers, computed, base.cached_tokens)
        finally:
            base.close()

    return work


def option_keys(model: Model, count: int) -> list[tuple[str, list[int]]]:
    """Return short keys that this vocabulary has as one token, each with its tokens: bare, and after a space."""
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


def next_probabilities(context: Context, tokens: Sequence[int]) -> list[float]:
    """Return the probability of each of these tokens as the next one (blocking)."""
    logits = context.logits.astype(np.float64)
    weights = np.exp(logits - logits.max())
    found: list[float] = (weights[np.asarray(tokens, np.intp)] / weights.sum()).tolist()
    return found


def _prompt(model: Model, messages: Sequence[Message], question: str) -> list[int]:
    """Return the tokens of the conversation with the question at its end, up to where the answer begins."""
    if model.info.chat_template is None:
        said = "\n\n".join(m["content"] or "" for m in messages)
        return model.encode(f"{said}\n\n{question}\nAnswer:", add_special=True, parse_special=False)
    *earlier, last = messages
    # Templates expect alternating turns, so a question about a user's message is appended to the same turn.
    if last["role"] == "user":
        turns = [*earlier, {**last, "content": f"{last['content']}\n\n{question}"}]
    else:
        turns = [*messages, {"role": "user", "content": question}]
    return render(model, Conversation(turns, think=False)).prompt.tokens


def best(chances: Sequence[float]) -> int:
    """Return the index of the likeliest option."""
    return max(range(len(chances)), key=chances.__getitem__)


def expected(chances: Sequence[float]) -> float:
    """Return the expected level of a scale, counted from 0."""
    return sum(i * p for i, p in enumerate(chances))


def as_text(value: Any) -> str:
    """Return a text as it is, any other value as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
