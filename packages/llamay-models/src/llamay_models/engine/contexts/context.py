"""`Context`: tokens and the K/V that the model computed from them, as a value."""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike, fspath
from typing import Any, Self, TypeVar, overload

import numpy.typing as npt

import llamay_kv
from llamay_models.arguments import whole
from llamay_models.engine.contexts.protocols import ContextModel
from llamay_models.engine.requests.channel import Channel
from llamay_models.engine.requests.generation import Generation
from llamay_models.engine.requests.request import Request
from llamay_models.engine.requests.token_constraint import TokenConstraint
from llamay_models.engine.sampling import Sampling
from llamay_models.engine.state.context_state import State, branch_stream
from llamay_models.errors import (
    ContextError,
    EngineClosedError,
    PromptError,
    PromptTooLongError,
    SnapshotError,
)
from llamay_models.plan import Floats
from llamay_models.progress import Progress

T = TypeVar("T")


class Unchanged(enum.Enum):
    """The type of an argument that was left out, where None has a meaning of its own."""

    UNCHANGED = "unchanged"

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED = Unchanged.UNCHANGED


class Context:
    """A sequence of tokens and their computed K/V. `Model.context` and `Model.restore` make contexts.

    Forks share all pages and cost the same at any length; a change of one never shows in another. A context is in use
    while a generation runs on it: only `fork`, `tokens`, `text` and `len` work meanwhile, everything else raises
    ContextError. Any thread may use a context, one at a time.
    """

    def __init__(self, model: ContextModel, state: State) -> None:
        self.model = model
        self._state = state
        self._lock = threading.Lock()
        self._in_use = False
        self._generation: Channel | None = (
            None  # of the operation in progress, where that is one of the engine
        )
        self._user = 0  # the thread whose own operation is in progress
        self._close_on_release = False
        self._released = threading.Condition(self._lock)
        self._closed = False
        self.cached_tokens = 0
        """The number of tokens of its prompt that were found in the prefix cache."""
        model._contexts.add(self)

    # -- contents

    def __len__(self) -> int:
        return len(self._state)

    @property
    def closed(self) -> bool:
        """Whether the context gave its pages back."""
        return self._closed

    @property
    def tokens(self) -> Sequence[int]:
        """The tokens, also those of generations, their end tokens and stop strings included.

        Numbers below zero stand for rows that are vectors, see `extend_vectors`.
        """
        return self._between_steps(lambda: self._state.tokens)

    @property
    def text(self) -> str:
        """The tokens as text; rows that are vectors have none."""
        return self.model.decode(self.tokens)

    @property
    def logits(self) -> Floats:
        """The logits of the next token, after the last one: float32 (vocabulary,), read-only.

        Computed if it is not known.
        """
        self._compute_pending()
        logits = self._state.logits
        assert logits is not None
        view = logits.view()
        view.flags.writeable = False
        return view

    @property
    def page_count(self) -> int:
        """The number of pages of K/V that the context holds, shared ones included."""
        return sum(count for count, _ in self._held_pages())

    @property
    def nbytes(self) -> int:
        """The bytes of the pages that the context holds, shared ones included."""
        return sum(count * size for count, size in self._held_pages())

    @property
    def marking(self) -> str | None:
        """The marking, which says how confidential the context is, of the snapshot that it was restored from."""
        return self._state.kv.marking

    @property
    def sampling(self) -> Sampling | None:
        """The sampling of the last generation, with the seed that was used. `generate()` continues with it."""
        return self._state.sampling

    # -- forks and changes

    @overload
    def fork(self) -> Context: ...
    @overload
    def fork(self, n: int) -> list[Context]: ...
    def fork(self, n: int | None = None) -> Context | list[Context]:
        """Return a context with the same tokens, independent of this one; with `n`, a list of n such contexts.

        Nothing that is allocated grows with the length. A single fork continues exactly as its parent would; of `n`
        forks each draws from a random stream of its own, so that one seed gives n different texts. A fork that is made
        while a generation runs has the tokens so far.
        """
        if n is not None:
            n = whole("the number of forks", n, 0, error=ContextError)
        states = self._between_steps(lambda: [self._state.fork() for _ in range(1 if n is None else n)])
        forks = [Context(self.model, state) for state in states]
        if n is None:
            return forks[0]
        for i, fork in enumerate(forks):
            fork._state.random_stream = branch_stream(self._state.random_stream, i)
        return forks

    def extend(self, more: str | Sequence[int], *, progress: Progress | None = None) -> Self:
        """Append text or tokens, and compute them. Returns the context itself. Blocks.

        Text is plain text: names of control tokens in it are not control tokens. It continues the text before it, so no
        space is put before it, except after a control token. Raises PromptError, PromptTooLongError, OutOfMemoryError;
        the context is then unchanged, also where `progress` raised.
        """
        if isinstance(more, str):
            more = self.model.encode(more, add_special=False, continuation=self._ends_in_text())
        tokens = self.model.engine.checked_tokens(more)
        if not tokens:
            with self._operation():
                return self
        return self._extend(len(tokens), lambda state: state.append(tokens), progress)

    def extend_vectors(
        self,
        vectors: npt.ArrayLike,
        digest: bytes,
        *,
        positions: npt.ArrayLike | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Append rows that are vectors instead of tokens, such as an encoder's output for a picture, and compute them.

        Args:
            vectors: float32 (n, `Model.embedding_length`), taken as they are where a token's embedding would be,
                already scaled as the model scales those. They are copied.
            digest: 32 bytes that identify the source of the vectors, such as a SHA-256 of the picture, its
                preprocessing and the encoder's weights. Contexts with equal digests share the computed K/V.
            positions: whole numbers (n,) or (n, axes), by which rotations turn the rows, for models whose pictures have
                positions of several axes; None for the places in the context. Later rows continue after the largest.
            progress: called as progress("reading", rows done, rows in all).

        In `tokens` each row is a number below zero. Snapshots hold the vectors. Returns the context itself. Blocks.
        Raises PromptError for vectors that do not fit the model, PromptTooLongError, OutOfMemoryError; the context is
        then unchanged.

        """
        engine = self.model.engine
        made = engine.vectors(self._between_steps(lambda: len(self._state)), vectors, digest, positions)

        def append(state: State) -> None:
            if len(state) != made.begin:
                raise ContextError("the context was extended meanwhile by another thread")
            state.append_vectors(made)

        return self._extend(len(made.values), append, progress)

    def _extend(self, n: int, append: Callable[[State], None], progress: Progress | None) -> Self:
        """Append n rows, which `append` adds to the state, and compute them."""
        engine = self.model.engine
        channel = Channel()
        with self._operation(channel) as state:
            size = len(state) + n
            if size > engine.ctx_size:
                raise PromptTooLongError(size, engine.ctx_size)
            # A sliding window may drop pages meanwhile, so a fork is kept to go back to.
            before = state.fork()
            try:
                append(state)
                engine.prefill(state, channel, _nothing, progress)
            except BaseException:
                state.go_back_to(before)
                raise
            before.kv.close()
            if size == n:
                self.cached_tokens = channel.cached_tokens
        return self

    def truncate(self, n: int) -> Self:
        """Keep the first n tokens. Returns the context itself.

        Recurrent layers go back to the nearest kept state; the tokens from there on are computed again when the context
        continues. Raises ContextError if there are fewer tokens, or if a sliding window has dropped pages that are
        needed to compute token n again.
        """
        n = whole("the number of tokens to keep", n, error=ContextError)
        with self._operation() as state:
            state.truncate(n)
        return self

    def generate(
        self,
        sampling: Sampling | None = None,
        *,
        max_tokens: int | None = None,
        stop: str | Sequence[str] | None = (),
        constraint: TokenConstraint | None = None,
        schema: Mapping[str, Any] | bool | str | None = None,
        regex: str | None = None,
        grammar: str | None = None,
        ignore_eos: bool = False,
        priority: int = 0,
        timeout: float | None = None,
        speculate: bool = True,
        special: Collection[int] = (),
    ) -> Generation:
        """Continue the text. Returns at once; the generation delivers while it runs.

        Every chosen token becomes part of this context, a final end token and the tokens of a stop string included. The
        arguments are those of `Request`; a JSON schema, a regex or a grammar is given to `Model.constraint`. Raises
        PromptError where a constraint is given beside one of these, and what `Model.constraint` raises.
        """
        if schema is not None or regex is not None or grammar is not None:
            if constraint is not None:
                raise PromptError("give generate a constraint, or a schema, regex or grammar, not both")
            constraint = self.model.constraint(schema=schema, regex=regex, grammar=grammar)
        return self.model.engine.submit(
            Request(
                self,
                sampling,
                max_tokens,
                stop,
                constraint,
                ignore_eos,
                priority=priority,
                timeout=timeout,
                speculate=speculate,
                special=special,
            )
        )

    def save(
        self,
        path: str | PathLike[str],
        *,
        key: llamay_kv.Key | None = None,
        owner: str | Unchanged | None = UNCHANGED,
        marking: str | Unchanged | None = UNCHANGED,
        progress: Progress | None = None,
    ) -> None:
        """Write tokens, K/V, logits and sampling to one file, from which `Model.restore` continues exactly.

        Args:
            path: the file, which appears whole or not at all.
            key: the key that encrypts everything but the manifest, which is authenticated; None for no encryption.
            owner: the owner, who alone may restore the snapshot; None for anybody. Left out, the context keeps its
                owner: that of the snapshot that it was restored from, or of its last save.
            marking: how confidential the snapshot is; only a caller who handles that marking may restore it. A context
                keeps a marking that it was given once: left out, the snapshot has it, and another is refused.
            progress: called as progress("saving", bytes done, bytes in all).

        Raises SnapshotError.

        """
        from llamay_models.engine.contexts.snapshot import save

        self._compute_pending()
        with self._operation() as state:
            try:
                if not isinstance(marking, Unchanged):
                    state.kv.marking = marking
                if not isinstance(owner, Unchanged):
                    state.kv.owner = owner
            except ValueError as error:
                raise SnapshotError(f"the context cannot be saved to {fspath(path)}: {error}") from error
            save(self.model, state, path, progress, key)

    def close(self) -> None:
        """Give the pages back. A second call does nothing.

        A generation that runs on the context is cancelled; another operation, such as a `save` in another thread, is
        waited for. Called from within an operation of the context itself, such as a progress callback or a constraint,
        it takes effect when that operation ends.
        """
        with self._lock:
            self._closed = True
            if self._generation is not None:
                self._generation.cancelled = True
                self.model.engine.wake()
            if self._in_use and (self._user == threading.get_ident() or self.model.engine.is_current):
                self._close_on_release = True  # to wait would be to wait for itself
                return
            self._released.wait_for(lambda: not self._in_use)
        self._state.kv.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{len(self)} tokens"
        return f"<Context of {self.model.name}, {state}>"

    # -- one operation at a time

    def _acquire(self, channel: Channel | None) -> State:
        """Acquire the context for one operation, until `_release`. Raises ContextError.

        `channel` is that of an operation of the engine, which can be cancelled; None for any other.
        """
        with self._lock:
            while True:
                self._check_open()
                if not self._in_use:
                    self._in_use, self._generation = True, channel
                    return self._state
                if self._generation is None:
                    raise ContextError("another thread uses this context; wait for it, or fork the context")
                if not self._generation.cancelled:
                    raise ContextError(
                        "a generation runs on this context; read it to its end, cancel it, or fork the context"
                    )
                self.model.engine.check_thread()
                self._released.wait()

    @contextmanager
    def _operation(self, channel: Channel | None = None) -> Iterator[State]:
        """Acquire the context for an operation of this thread, and release it at the end. Raises ContextError."""
        state = self._acquire(channel)
        self._user = threading.get_ident()
        try:
            yield state
        finally:
            self._release()

    def _check_open(self) -> None:
        if self._closed:
            if self.model.engine.closed:
                raise EngineClosedError(
                    f"{self.model.name} was closed, and with it this context; load it again"
                )
            raise ContextError("the context is closed")

    def _release(self) -> None:
        with self._lock:
            self._in_use, self._generation, self._user = False, None, 0
            if self._close_on_release:
                self._state.kv.close()
            self._released.notify_all()

    def _held_pages(self) -> list[tuple[int, int]]:
        """Return for each group of layers the number of held pages and the bytes of one."""
        sizes = self.model.pool.page_bytes

        def count(group: int) -> int:
            return sum(n >= 0 for n in self._state.kv.page_numbers(group))

        return self._between_steps(lambda: [(count(g), size) for g, size in enumerate(sizes)])

    def _between_steps(self, function: Callable[[], T]) -> T:
        """Call a function that reads the state, between two steps if the engine is at work on it."""
        self._check_open()
        return self.model.engine.call(function) if self._in_use else function()

    def _ends_in_text(self) -> bool:
        """Return whether the last row is text, and not a control token or a vector."""
        last = self._between_steps(lambda: self._state.last(1))
        words = self.model.tokenizer
        return bool(last) and words is not None and last[0] >= 0 and not words.is_special(last[0])

    def _compute_pending(self) -> None:
        """Compute the pending tokens, and so the logits."""
        channel = Channel()
        with self._operation(channel) as state:
            if len(state) == 0:
                raise PromptError("the context is empty; extend it with a prompt first")
            if state.pending or state.logits is None:
                self.model.engine.prefill(state, channel, _nothing, None)


def _nothing() -> None:
    return None
