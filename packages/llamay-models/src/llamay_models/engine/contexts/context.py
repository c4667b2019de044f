"""`Context`: tokens and what the model computed from them, as a value."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from os import PathLike
from typing import Any, Self, TypeVar, overload

import numpy.typing as npt

import llamay_kv
from llamay_models.engine.contexts.protocols import ContextModel
from llamay_models.engine.requests.channel import Channel
from llamay_models.engine.requests.generation import Generation
from llamay_models.engine.requests.request import Request
from llamay_models.engine.requests.token_constraint import TokenConstraint
from llamay_models.engine.sampling import Sampling
from llamay_models.engine.state.context_state import State, branch_stream
from llamay_models.errors import ContextError, EngineClosed, PromptError, PromptTooLong
from llamay_models.plan import Floats
from llamay_models.progress import Progress

T = TypeVar("T")


class Context:
    """A sequence of tokens that the model has read. `Model.context` and `Model.restore` make one.

    Forks share everything and cost the same at any length; what one of them does never shows in another. A
    context is in use while a generation runs on it: only `fork`, `tokens`, `text` and `len` work
    meanwhile, everything else raises ContextError. Any thread may use it, one at a time.
    """

    def __init__(self, model: ContextModel, state: State) -> None:
        self.model = model
        self._state = state
        self._lock = threading.Lock()
        self._busy: Channel | None = None
        self._closed = False
        self.cached_tokens = 0
        """Tokens that were found computed when its prompt was read."""
        model._contexts.add(self)

    # -- what it holds

    def __len__(self) -> int:
        return len(self._state)

    @property
    def closed(self) -> bool:
        """Whether it gave its pages back."""
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
        """Of the next token, after the last one: float32 (vocabulary,), read-only.

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
        """The number of pages of K/V that it holds, shared ones included."""
        return sum(count for count, _ in self._held_pages())

    @property
    def nbytes(self) -> int:
        """The bytes of these pages."""
        return sum(count * size for count, size in self._held_pages())

    @property
    def marking(self) -> str | None:
        """How confidential it is: the marking of the snapshot that it was restored from."""
        return self._state.kv.marking

    @property
    def sampling(self) -> Sampling | None:
        """How its last generation sampled, with the seed that was used. `generate()` goes on so."""
        return self._state.sampling

    # -- what makes another, or changes it

    @overload
    def fork(self) -> Context: ...
    @overload
    def fork(self, n: int) -> list[Context]: ...
    def fork(self, n: int | None = None) -> Context | list[Context]:
        """Return a context with the same tokens, which goes its own way; with `n`, a list of so many.

        Allocates nothing that grows with the length. A single fork continues exactly as its parent would;
        of `n`, each draws from a random stream of its own, so that one seed gives n different texts. A
        fork taken while a generation runs has the tokens so far.
        """
        if n is not None and n < 0:
            raise ContextError(f"cannot make {n} forks")
        states = self._between_steps(lambda: [self._state.fork() for _ in range(1 if n is None else n)])
        forks = [Context(self.model, state) for state in states]
        if n is None:
            return forks[0]
        for i, fork in enumerate(forks):
            fork._state.random_stream = branch_stream(self._state.random_stream, i)
        return forks

    def extend(self, more: str | Sequence[int], *, progress: Progress | None = None) -> Self:
        """Read more text, or tokens, after the last one. Returns itself. Blocks.

        Text is taken as plain text: names of control tokens in it are not control tokens; it goes on from the text
        before it, so no space is put before it, unless a control token is. Raises
        PromptError, PromptTooLong, OutOfMemory; the context is then as it was, also where `progress`
        raised.
        """
        if isinstance(more, str):
            more = self.model.encode(more, add_special=False, continuation=self._ends_in_text())
        tokens = self.model.engine.check(more)
        if not tokens:
            self._acquire(None)
            self._release()
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
        """Read rows that are vectors in place of tokens, such as what an encoder made of a picture. Returns itself.

        Args:
            vectors: float32 (n, `Model.embedding_length`), taken as they are where a token's embedding would be,
                already scaled as the model scales those. They are copied.
            digest: 32 bytes that say what they came from and how, such as a SHA-256 of the picture, its preprocessing
                and the encoder's weights. Other contexts are given what was computed for equal digests.
            positions: whole numbers (n,) or (n, axes), by which rotations turn the rows, for models whose pictures have
                positions of several axes; None for their places in the context. What follows goes on after the
                largest.
            progress: called as progress("reading", rows done, rows in all).

        In `tokens` each is a number below zero. Snapshots hold the vectors. Blocks. Raises PromptError for vectors that
        do not fit the model, PromptTooLong, OutOfMemory; the context is then as it was.

        """
        engine = self.model.engine
        made = engine.vectors(self._between_steps(lambda: len(self._state)), vectors, digest, positions)

        def append(state: State) -> None:
            if len(state) != made.begin:
                raise ContextError("the context was extended meanwhile by another thread")
            state.append_vectors(made)

        return self._extend(len(made.values), append, progress)

    def _extend(self, n: int, append: Callable[[State], None], progress: Progress | None) -> Self:
        """Read n rows more, which `append` adds to the state."""
        engine = self.model.engine
        channel = Channel()
        state = self._acquire(channel)
        size = len(state) + n
        if size > engine.ctx_size:
            self._release()
            raise PromptTooLong(size, engine.ctx_size)
        # A sliding window may drop pages on the way, so going back means going to a fork.
        before = state.fork()
        try:
            append(state)
        except BaseException:
            before.kv.close()
            self._release()
            raise
        try:
            engine.prefill(state, channel, self._release, progress)
        except BaseException:
            self._go_back_to(before)
            raise
        before.kv.close()
        if size == n:
            self.cached_tokens = channel.cached_tokens
        return self

    def truncate(self, n: int) -> Self:
        """Keep the first n tokens. Returns itself.

        Recurrent layers go back to where they kept a state, and what lies between is computed again when somebody asks
        for what comes next. Raises ContextError if there are fewer, or if a sliding window has already dropped what
        token n needs to be read again.
        """
        state = self._acquire(None)
        try:
            state.truncate(n)
        finally:
            self._release()
        return self

    def generate(
        self,
        sampling: Sampling | None = None,
        *,
        max_tokens: int | None = None,
        stop: str | Sequence[str] = (),
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

        Every token that is chosen becomes part of this context, a final end token and the tokens of a stop
        string included. Arguments as in `Request`; a JSON schema, a regex or a grammar stands for the constraint
        that `Model.constraint` makes of it. Raises PromptError for a constraint and one of these, and what
        `Model.constraint` raises.
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
        owner: str | None = None,
        marking: str | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Write tokens, K/V, logits and sampling to one file, so that `Model.restore` goes on exactly.

        Args:
            path: where to. The file appears whole or not at all.
            key: encrypts everything but the manifest, which is authenticated.
            owner: whose it is; only that one restores it.
            marking: how confidential it is; only who handles that marking restores it.
            progress: called as progress("saving", bytes done, bytes in all).

        Raises SnapshotError.

        """
        from llamay_models.engine.contexts.snapshot import save

        self._compute_pending()
        state = self._acquire(None)
        try:
            state.kv.owner, state.kv.marking = owner, marking
            save(self.model, state, path, progress, key)
        finally:
            self._release()

    def close(self) -> None:
        """Give its pages back; a generation that runs on it is cancelled. Closing twice is nothing."""
        with self._lock:
            busy, self._closed = self._busy, True
        if busy is not None:
            busy.cancelled = True
            self.model.engine.wake()
            busy.finished.wait()
        self._state.kv.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{len(self)} tokens"
        return f"<Context of {self.model.name}, {state}>"

    # -- one owner at a time

    def _acquire(self, channel: Channel | None) -> State:
        """Take the context for one operation; `_release` gives it back. Raises ContextError."""
        while True:
            with self._lock:
                self._check_open()
                busy = self._busy
                if busy is None:
                    self._busy = channel if channel is not None else Channel()
                    return self._state
            if not busy.cancelled:
                raise ContextError(
                    "a generation runs on this context; read it to its end, cancel it, or fork the context"
                )
            busy.finished.wait()

    def _check_open(self) -> None:
        if self._closed:
            if self.model.engine.closed:
                raise EngineClosed(f"{self.model.name} was closed, and with it this context; load it again")
            raise ContextError("the context is closed")

    def _release(self) -> None:
        with self._lock:
            self._busy = None

    def _held_pages(self) -> list[tuple[int, int]]:
        """For each group of layers, the pages that are held and the bytes of one."""
        cache = self._state.kv
        sizes = cache.pool.page_bytes
        return [(sum(n >= 0 for n in cache.page_numbers(g)), size) for g, size in enumerate(sizes)]

    def _between_steps(self, function: Callable[[], T]) -> T:
        """Read the state, between two steps if the engine is at work on it."""
        self._check_open()
        return function() if self._busy is None else self.model.engine.call(function)

    def _ends_in_text(self) -> bool:
        """Whether more text would go on from text, and not from a control token or from nothing."""
        last = self._between_steps(lambda: self._state.last(1))
        words = self.model.tokenizer
        return bool(last) and words is not None and last[0] >= 0 and not words.is_special(last[0])

    def _compute_pending(self) -> None:
        """Compute what is pending, so that the logits are there."""
        channel = Channel()
        state = self._acquire(channel)
        if len(state) == 0:
            self._release()
            raise PromptError("the context is empty; extend it with a prompt first")
        if not state.pending and state.logits is not None:
            self._release()
            return
        self.model.engine.prefill(state, channel, self._release, None)

    def _go_back_to(self, before: State) -> None:
        """Go back to what the context was."""
        state = self._acquire(None)
        state.kv.close()
        state.kv, state.pending, state.logits = before.kv, before.pending, before.logits
        state.vectors, state.has_vectors = before.vectors, before.has_vectors
        self._release()
