"""`Engine`: takes requests and makes sequences of them, which `Loop` runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy.typing as npt

import llamay_kv as kv
from llamay_models.arguments import whole, whole_numbers
from llamay_models.engine.decoding.constraint_state import ConstraintState
from llamay_models.engine.decoding.draft_model import DraftModel
from llamay_models.engine.decoding.sequence import EngineSequence
from llamay_models.engine.decoding.sequence_factory import SequenceFactory
from llamay_models.engine.decoding.vocabulary import Vocabulary
from llamay_models.engine.passes.prefill import prefill_all, prefill_one
from llamay_models.engine.requests.channel import Channel
from llamay_models.engine.requests.generation import Generation
from llamay_models.engine.requests.request import ContinuedContext, Request
from llamay_models.engine.requests.token_constraint import TokenConstraint
from llamay_models.engine.runner import Runner
from llamay_models.engine.sampling import Sampling
from llamay_models.engine.scheduling.loop import Loop
from llamay_models.engine.scheduling.prefill_budget import Stall
from llamay_models.engine.state.context_state import State
from llamay_models.engine.state.prefix_cache import PrefixCache
from llamay_models.engine.state.vectors import Vectors
from llamay_models.engine.state.vectors import make as make_vectors
from llamay_models.engine.stats import Histograms, Stats
from llamay_models.errors import ContextError, EncoderOnlyError, PromptError, PromptTooLongError
from llamay_models.plan import Inputs
from llamay_models.progress import Progress

T = TypeVar("T")


class Engine:
    """Continuous batching of all requests to one model, on one thread.

    Attributes:
        ctx_size: the most tokens that a context may have.
        reads: the inputs of the plan: the bound of token ids, and the width of vectors instead of tokens.
        writes: whether the plan computes logits; without, a model makes embeddings only.
        max_sequences: the most sequences in prefill or decoding at a time; more wait in a queue.
        prefixes: the prefix cache; None without one.

    `max_queue` bounds the number of waiting sequences; `submit` refuses more with QueueFullError. With
    `speculation` tokens are drafted from the text itself, and by a `draft` engine of the same vocabulary, where that is
    faster; no text changes. `stall` bounds how long texts that decode wait for prompts in prefill. With `whole_text` a
    text must be one step.

    """

    def __init__(
        self,
        runner: Runner,
        pool: kv.Pool,
        vocabulary: Vocabulary | None,
        ctx_size: int,
        max_sequences: int = 64,
        name: str = "model",
        prefixes: PrefixCache | None = None,
        *,
        reads: Inputs | None = None,
        writes: bool = True,
        whole_text: bool = False,
        max_queue: int = 1024,
        speculation: bool = True,
        draft: Engine | None = None,
        stall: Stall | None = None,
    ) -> None:
        self.reads = Inputs(tokens=runner.plan.output_width) if reads is None else reads
        self.writes = writes
        self._most_rows = runner.max_rows if whole_text else ctx_size
        self._name = name
        self.pool = pool
        self.prefixes = prefixes
        self.ctx_size = ctx_size
        self.max_sequences = min(max_sequences, runner.max_rows)
        self._vocab = self.reads.tokens
        self._factory = SequenceFactory(
            vocabulary,
            self._vocab,
            ctx_size,
            runner.backend,
            None if draft is None else DraftModel(draft, self._vocab),
            speculation=speculation,
        )
        self.page_lenders: list[Callable[[], bool]] = []
        """Functions that give back pages which are not needed; each returns whether it gave any.

        They are called on the engine's thread when a text finds no memory.
        """
        self._loop = Loop(
            runner, pool, self.max_sequences, max_queue, prefixes, name, vocabulary, stall, self.page_lenders
        )

    @property
    def stats(self) -> Stats:
        """Counters since the engine began."""
        return self._loop.stats

    @property
    def histograms(self) -> Histograms:
        """The distributions of times since the engine began."""
        return self._loop.histograms

    @property
    def queued(self) -> int:
        """The number of sequences that wait for admission."""
        return self._loop.queued

    @property
    def active(self) -> int:
        """The number of sequences in prefill or decoding."""
        return self._loop.active

    @property
    def runner(self) -> Runner:
        """The runner of the plan, for use on the engine's thread; see `call`."""
        return self._loop.runner

    @property
    def spare_rows(self) -> int:
        """The rows that a step of other work may have now, for use on the engine's thread; see `call`."""
        return self._loop.spare_rows

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._loop.closed

    def submit(self, request: Request) -> Generation:
        """Queue a generation, which begins at once if it can be admitted.

        Raises PromptError or PromptTooLongError for a prompt that cannot be computed, ContextError for a context that
        is in use or closed, QueueFullError, EngineClosedError. A later error ends the generation.
        """
        if not isinstance(request, Request):
            raise PromptError(f"submit takes a Request, not {type(request).__name__}")
        self.check_writes()
        channel = Channel()
        if isinstance(request.prompt, ContinuedContext):
            context = request.prompt
            state = context._acquire(channel)
            release: Callable[[], None] = context._release
            owns_context = False
            channel.cached_tokens = len(state) - len(state.pending)
        else:
            tokens = self.checked_tokens(request.prompt)
            if not tokens:
                raise PromptError("the prompt is empty; give at least one token")
            state, release, owns_context = State(self.pool.context(), request.tenant), _nothing, True
            state.append(tokens)
        try:
            if request.tenant not in ("", state.tenant):
                raise PromptError(
                    f"the context has the tenant {state.tenant!r}, so the request cannot have the tenant "
                    f"{request.tenant!r}; leave it out"
                )
            sequence, sampling = self._factory.make(
                request, state, channel, release, owns_context=owns_context
            )
            generation = self._generation(channel, sampling)
            self._loop.add(sequence)
        except BaseException:
            channel.finish("cancelled")
            release()
            if owns_context:
                state.kv.close()
            raise
        return generation

    def prefill(
        self, state: State, channel: Channel, release: Callable[[], None], progress: Progress | None
    ) -> None:
        """Compute the pending tokens of a context, and the logits after them.

        Blocks. The context is released at the end. Raises the error of the engine, or what `progress` raised; the
        tokens that were not computed are then still pending.
        """
        prefill_one(self._loop, state, channel, release, progress)

    def prefill_all(self, sequences: Sequence[EngineSequence]) -> None:
        """Compute the pending tokens of several sequences, all from the same step on. Blocks.

        Raises the first error when all have ended; QueueFullError, EngineClosedError.
        """
        prefill_all(self._loop, sequences)

    def branch(self, channel: Channel, n: int) -> list[Generation]:
        """Return n generations that continue from the current token of a running one; see `Generation.fork`."""
        n = whole("the number of forks", n, 0, error=ContextError)
        return self._loop.call(lambda: self._branch(channel, n))

    @property
    def end_tokens(self) -> frozenset[int]:
        """The tokens that end a text."""
        return self._factory.end_tokens

    def constraint_state(self, constraint: TokenConstraint) -> ConstraintState:
        """Return the state of a constraint at the beginning of a text of this model."""
        return self._factory.constraint_state(constraint)

    def ends(self, tokens: Sequence[int]) -> bool:
        """Return whether the last of these tokens ends a text."""
        return bool(tokens) and tokens[-1] in self.end_tokens

    def call(self, function: Callable[[], T]) -> T:
        """Run a function between two steps, such as one that touches a context at work, and return its result."""
        return self._loop.call(function)

    @property
    def is_current(self) -> bool:
        """Whether the engine's own thread asks, on which constraints run; it must not wait for itself."""
        return self._loop.is_current

    def check_thread(self) -> None:
        """Raise ContextError on the engine's own thread, before work that it would wait for."""
        self._loop.check_thread()

    def wake(self) -> None:
        """Make the engine's thread look for changes, such as a cancelled generation."""
        self._loop.wake.set()

    def checked_tokens(self, tokens: Sequence[int]) -> list[int]:
        """Return the tokens as a list of plain integers.

        Raises PromptError for one outside the vocabulary, PromptTooLongError.
        """
        array = whole_numbers("a prompt is text or a sequence of token ids", tokens, error=PromptError)
        if len(array) > self.ctx_size:
            learned = self.reads.positions
            raise PromptTooLongError(
                len(array), self.ctx_size, extensible=not learned or self.ctx_size < learned
            )
        if len(array) > self._most_rows:
            raise PromptTooLongError(len(array), self._most_rows, step=True)
        wrong = array[(array < 0) | (array >= self._vocab)]
        if len(wrong):
            raise PromptError(f"token {wrong[0]} is outside the vocabulary of {self._vocab}")
        ids: list[int] = array.tolist()
        return ids

    def check_writes(self) -> None:
        """Raise EncoderOnlyError where the model writes no text."""
        if not self.writes:
            raise EncoderOnlyError(self._name)

    def vectors(
        self, begin: int, values: npt.ArrayLike, digest: bytes, positions: npt.ArrayLike | None
    ) -> Vectors:
        """Return rows for a context of `begin` tokens that are vectors; see `Context.extend_vectors`."""
        reads = self.reads
        return make_vectors(
            self.pool, begin, values, digest, positions, width=reads.vector, axes=max(1, reads.axes)
        )

    def close(self) -> None:
        """End every generation as cancelled, and the thread."""
        self._loop.close()

    def _branch(self, channel: Channel, n: int) -> list[Generation]:
        parent = self._loop.find(channel)
        if parent is None or parent.generation is None or parent.ending is not None:
            raise ContextError("the generation has ended; fork its context instead")
        if parent.generation.make_constraint_state is not None and parent.generation.constraint_state is None:
            raise ContextError("the constraint has not begun; fork when the first token is there")
        return [self._start_branch(parent, i) for i in range(n)]

    def _start_branch(self, parent: EngineSequence, i: int) -> Generation:
        """Start branch number i of a sequence that generates."""
        channel, state = Channel(), parent.state.fork()
        try:
            sequence = self._factory.branch(parent, channel, state, i)
            self._loop.add(sequence)
        except BaseException:
            state.kv.close()
            raise
        return self._generation(channel, state.sampling or Sampling())

    def _generation(self, channel: Channel, sampling: Sampling) -> Generation:
        return Generation(channel, sampling, self._loop.wake, self.branch)


def _nothing() -> None:
    return None
