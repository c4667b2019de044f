"""A model that is a function: its logits are a hash of the tokens. Exact, tiny, and breakable on purpose."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import numpy as np

from llamay_models import Sampling
from llamay_models.engine import Piece, Timings, Usage
from llamay_models.errors import ContextError, PromptTooLongError, SnapshotError

VOCABULARY = 256
END = 0
USER, ASSISTANT, SYSTEM, STOP = 1, 2, 3, 4
Fault = Callable[[str, Any], Any]


def logits_of(tokens: Sequence[int]) -> np.ndarray:
    """Logits after `tokens`: a hash of all of them."""
    digest = hashlib.shake_256(bytes(str(list(tokens)), "ascii")).digest(4 * VOCABULARY)
    return (np.frombuffer(digest, np.uint32) / np.float32(2**31) - 1).astype(np.float32)


class FakeGeneration:
    """Says what it is told to, piece by piece."""

    def __init__(self, context: FakeContext, tokens: list[int], sampling: Sampling, reason: str) -> None:
        self.context, self._tokens, self.sampling = context, tokens, sampling
        self.finish_reason: str | None = reason
        self.stop_sequence: str | None = None
        self.error = None
        self.cancelled = False
        self.given: list[int] = []
        self.interrupt_after: int | None = context.model.interrupt_after
        self.usage = Usage(len(context), len(context), len(tokens))
        self.timings = Timings(0.0, 0.01, 0.5)

    def __iter__(self) -> Iterator[Piece]:
        for i, token in enumerate(self._tokens[len(self.given) :]):
            if self.interrupt_after is not None and i == self.interrupt_after:
                raise KeyboardInterrupt
            if self.cancelled:
                self.finish_reason = "cancelled"
                return
            self.given.append(token)
            self.context._tokens.append(token)
            yield Piece(self.context.model.decode([token]), (token,), ())

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self)

    @property
    def tokens(self) -> tuple[int, ...]:
        for _ in self:
            pass
        return tuple(self.given)

    def cancel(self) -> None:
        self.cancelled = True
        self.finish_reason = "cancelled"

    def wait(self, timeout: float | None = None) -> bool:
        if not self.cancelled:
            list(self)
        return True


class FakeContext:
    """Tokens."""

    def __init__(self, model: FakeModel, tokens: Sequence[int], way: str) -> None:
        self.model, self._tokens, self.way = model, list(tokens), way
        self.closed = False
        self.last_sampling: Sampling | None = None
        model.open.append(self)

    def __len__(self) -> int:
        return len(self._tokens)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()

    @property
    def tokens(self) -> list[int]:
        return list(self._tokens)

    @property
    def text(self) -> str:
        return self.model.decode(self._tokens)

    @property
    def logits(self) -> np.ndarray:
        return self.model.fault(self.way, logits_of(self._tokens))

    def fork(self, n: int | None = None) -> Any:
        forks = [FakeContext(self.model, self._tokens, "fork") for _ in range(1 if n is None else n)]
        return forks[0] if n is None else forks

    def extend(self, more: str | Sequence[int], *, progress: Any = None) -> FakeContext:
        tokens = self.model.encode(more, add_special=False) if isinstance(more, str) else list(more)
        self.model.reads.append(len(tokens))
        self.model.check(len(self) + len(tokens))
        self._tokens += tokens
        if self.way != "fork":
            self.way = "extended"
        return self

    def truncate(self, n: int) -> FakeContext:
        if self.model.window and n < len(self) - self.model.window:
            raise ContextError("behind the window")
        del self._tokens[n:]
        return self

    def generate(
        self,
        sampling: Sampling | None = None,
        *,
        max_tokens: int | None = None,
        stop: Sequence[str] = (),
        constraint: Any = None,
        ignore_eos: bool = False,
        special: Sequence[int] = (),
    ) -> FakeGeneration:
        sampling = (sampling or self.last_sampling or Sampling()).seeded()
        self.last_sampling = sampling
        self.model.sampled.append(sampling)
        if self.model.script:
            tokens = [*self.model.encode(self.model.script.pop(0), add_special=False), STOP]
            reason = "stop"
            if max_tokens is not None and max_tokens < len(tokens):
                tokens, reason = tokens[:max_tokens], "length"
        else:
            tokens, reason = [], "length"
            for _ in range(8 if max_tokens is None else max_tokens):
                tokens.append(int(np.argmax(logits_of([*self._tokens, *tokens]))))
            tokens = self.model.fault(f"tokens {self.way}", tokens)
        return FakeGeneration(self, tokens, sampling, reason)

    def save(self, path: Path, *, progress: Any = None) -> None:
        Path(path).write_text(json.dumps({"sha256": self.model.sha256, "tokens": self._tokens}))

    def close(self) -> None:
        self.closed = True


class FakeEngine:
    def __init__(self, model: FakeModel) -> None:
        self.stats = SimpleNamespace(steps=0, rows=0)
        self.model = model

    def call(self, function: Callable[[], Any]) -> Any:
        self.stats.steps += 16
        self.stats.rows += 16 * (8 if self.model.batches else 1)
        for context in self.model.open:
            context.way = "batch" if context.way == "read" else context.way
        return function()

    def check_writes(self) -> None:
        """A fake model writes text: nothing is raised."""


class FakeModel:
    """What the command sees of llamay_models.Model."""

    def __init__(self, path: Any = "fake.gguf", *, fault: Fault | None = None, **options: Any) -> None:
        self.path, self.options = Path(path), options
        self.name, self.architecture, self.sha256 = "Fake 1B", "fake", "f" * 64
        self.vocab_size, self.n_parameters, self.nbytes, self.threads = VOCABULARY, 10**9, 10**8, 2
        self.context_length = self.context_size = options.get("ctx_size") or 4096
        self.tokenizer: Any = object()
        self.chat_template: Any = SimpleNamespace(source="")
        self.asked: list[dict[str, Any]] = []
        self.metadata: dict[str, Any] = {}
        self.window = 0
        self.batches = True
        self.pool = SimpleNamespace(layout=SimpleNamespace(groups=[SimpleNamespace(window=0)]))
        self.engine = FakeEngine(self)
        self.fault: Fault = fault or (lambda way, value: value)
        self.script: list[str] = []
        self.open: list[FakeContext] = []
        self.reads: list[int] = []
        self.sampled: list[Sampling] = []
        self.rendered: list[Any] = []
        self.interrupt_after: int | None = None
        self.template: str | None = None
        self.closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()

    def use_template(self, source: str) -> None:
        self.template = source

    def close(self) -> None:
        self.closed = True

    def check(self, length: int) -> None:
        if length > self.context_size:
            raise PromptTooLongError(length, self.context_size)

    def encode(self, text: str, *, add_special: bool = True, parse_special: bool = False) -> list[int]:
        return [*([END] if add_special else []), *(min(ord(c), 255) for c in text)]

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(chr(token) for token in tokens if token > STOP)

    def render(self, messages: Any, *, add_generation_prompt: bool = True, **options: Any) -> list[int]:
        self.rendered.append([dict(message) for message in messages])
        self.asked.append(options)
        roles = {"user": USER, "assistant": ASSISTANT, "system": SYSTEM}
        tokens = [END]
        for message in messages:
            tokens += [roles[message["role"]], *self.encode(message["content"], add_special=False), STOP]
        return [*tokens, ASSISTANT] if add_generation_prompt else tokens

    embedding_length = 8

    def embed(
        self,
        texts: Sequence[str],
        pooling: str | None = None,
        *,
        normalize: bool = True,
        dimensions: int | None = None,
        progress: Any = None,
    ) -> np.ndarray:
        self.embedded = (list(texts), pooling, normalize)
        return np.stack(
            [logits_of([*text.encode()])[: dimensions or self.embedding_length] for text in texts]
        )

    def rerank(self, query: str, documents: Sequence[str], *, progress: Any = None) -> np.ndarray:
        """How many words of a document are words of the query."""
        words = set(query.split())
        return np.array([len(words & set(document.split())) for document in documents], np.float32)

    def context(
        self, prompt: Any = None, *, messages: Any = None, parse_special: bool = False, progress: Any = None
    ) -> FakeContext:
        if messages is not None:
            prompt = self.render(messages)
        elif isinstance(prompt, str):
            prompt = self.encode(prompt)
        self.check(len(prompt))
        self.reads.append(len(prompt))
        return FakeContext(self, prompt, "read")

    def restore(self, path: Path, *, progress: Any = None) -> FakeContext:
        try:
            saved = json.loads(Path(path).read_text())
        except ValueError:
            raise SnapshotError(f"{path} is damaged") from None
        return FakeContext(self, saved["tokens"], "restored")
