"""`Engine`: what callers hand work to. It prepares sequences; `Loop` runs them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

import llamay_kv as kv
from llamay_models.engine.decoding.constraint_state import ConstraintState
from llamay_models.engine.decoding.draft_model import DraftModel, DraftModelContext
from llamay_models.engine.decoding.drafter import Drafter
from llamay_models.engine.decoding.generation_state import GenerationState
from llamay_models.engine.decoding.sequence import EngineSequence
from llamay_models.engine.decoding.text_stream import StreamDecoder, TextStream
from llamay_models.engine.decoding.token_sampler import TokenSampler
from llamay_models.engine.decoding.vocabulary import Vocabulary
from llamay_models.engine.requests.channel import Channel
from llamay_models.engine.requests.generation import Generation
from llamay_models.engine.requests.request import ContinuedContext, Request
from llamay_models.engine.requests.token_constraint import TokenConstraint
from llamay_models.engine.runner import Runner
from llamay_models.engine.sampling import Sampling
from llamay_models.engine.scheduling.loop import Loop
from llamay_models.engine.scheduling.prefill_budget import Stall
from llamay_models.engine.state.context_state import State, branch_stream
from llamay_models.engine.state.prefix_cache import PrefixCache
from llamay_models.engine.state.vectors import Vectors
from llamay_models.engine.state.vectors import make as make_vectors
from llamay_models.engine.stats import Histograms, Stats
from llamay_models.errors import ContextError, EncoderOnly, PromptError, PromptTooLong
from llamay_models.plan import Inputs
from llamay_models.progress import Progress

T = TypeVar("T")


class Engine:
    """Continuous batching of everything that one model is asked for, on one thread.

    Attributes:
        ctx_size: the most tokens a context may have.
        reads: what the plan reads of a row: bounds of tokens, and what vectors it takes in their place.
        writes: whether the plan says what comes next; one that does not makes embeddings only.
        max_sequences: how many read or write at a time; more wait in a queue.
        prefixes: what was computed before; None where nothing is kept.

    `max_queue` bounds how many wait; `submit` refuses more with QueueFull. `speculation` lets tokens be drafted
    from the text itself, and by a `draft` engine of the same vocabulary, where that is faster; no text changes. `stall`
    bounds how long texts that are written wait for prompts that are read. With `whole_text` a text must be one step.

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
        self._vocabulary = vocabulary
        self._vocab = self.reads.tokens
        self._backend = runner.backend
        self._speculation = speculation
        self._draft = DraftModel(draft, self._vocab) if draft is not None else None
        self.page_lenders: list[Callable[[], bool]] = []
        """Called on the engine's thread when a text finds no memory: whoever holds pages that he can do without."""
        self._loop = Loop(
            runner, pool, self.max_sequences, max_queue, prefixes, name, vocabulary, stall, self.page_lenders
        )

    @property
    def stats(self) -> Stats:
        """Counters since the engine began."""
        return self._loop.stats

    @property
    def histograms(self) -> Histograms:
        """How the times since the engine began are distributed."""
        return self._loop.histograms

    @property
    def queued(self) -> int:
        """Sequences that wait for a place."""
        return self._loop.queued

    @property
    def active(self) -> int:
        """Sequences that are prefilling or decoding."""
        return self._loop.active

    @property
    def runner(self) -> Runner:
        """What runs the plan; for use on the engine's thread, see `call`."""
        return self._loop.runner

    @property
    def spare_rows(self) -> int:
        """Rows that a step of other work may have now; for use on the engine's thread, see `call`."""
        return self._loop.spare_rows

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._loop.closed

    def submit(self, request: Request) -> Generation:
        """Queue a generation, which begins at once where there is a place.

        Raises PromptError or PromptTooLong for a prompt that cannot be read, ContextError for a context
        that is in use or closed, QueueFull, EngineClosed. What goes wrong later ends the generation with an error of
        its own.
        """
        self.check_writes()
        channel = Channel()
        if isinstance(request.prompt, ContinuedContext):
            context = request.prompt
            state = context._acquire(channel)
            release: Callable[[], None] = context._release
            owns_context = False
            channel.cached_tokens = len(state) - len(state.pending)
        else:
            tokens = self.check(request.prompt)
            if not tokens:
                raise PromptError("the prompt is empty; give at least one token")
            state, release, owns_context = State(self.pool.context(), request.tenant), _nothing, True
            state.append(tokens)
        try:
            sequence, sampling = self._prepare(request, state, channel, release, owns_context=owns_context)
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
        """Compute what is pending in a context, and the logits after it.

        Blocks. The context is released at the end.

        Raises what went wrong, or what `progress` raised; what was not read is then still pending.
        """
        total, done = len(state.pending), 0
        try:
            self._loop.add(EngineSequence(state, channel, None, release, owns_context=False))
        except BaseException:
            channel.finish("cancelled")
            release()
            raise
        try:
            while (item := channel.get()) is not None:
                done += item if isinstance(item, int) else 0
                if progress is not None:
                    progress("reading", done, total)
        except BaseException:
            channel.cancelled = True
            self._loop.wake.set()
            channel.finished.wait()
            raise
        if channel.error is not None:
            raise channel.error
        if channel.finish_reason == "cancelled":
            raise PromptError("reading was cancelled")
        if progress is not None:
            progress("reading", total, total)

    def prefill_all(self, works: Sequence[EngineSequence]) -> None:
        """Have several sequences read what is pending, all from the same step on. Blocks.

        Raises the first thing that went wrong, when all have ended; QueueFull, EngineClosed.
        """
        added: list[EngineSequence] = []

        def add() -> None:
            for work in works:
                self._loop.add(work)
                added.append(work)

        try:
            self._loop.call(add)
        except BaseException:
            for work in works:
                if work in added:
                    work.channel.cancelled = True
                    self._loop.wake.set()
                    work.channel.finished.wait()
                else:
                    work.channel.finish("cancelled")
                    work.release()
            raise
        for work in works:
            work.channel.finished.wait()
        for work in works:
            if work.channel.error is not None:
                raise work.channel.error
            if work.channel.finish_reason == "cancelled":
                raise PromptError("reading was cancelled")

    def branch(self, channel: Channel, n: int) -> list[Generation]:
        """Return n generations that go on from where a running one is; see `Generation.fork`."""
        return self._loop.call(lambda: self._branch(channel, n))

    @property
    def end_tokens(self) -> frozenset[int]:
        """The tokens that end a text."""
        return self._vocabulary.eog if self._vocabulary is not None else frozenset()

    def constraint_state(self, constraint: TokenConstraint) -> ConstraintState:
        """Return a constraint at work on a text of this model."""
        return ConstraintState(constraint, self._vocab, self.end_tokens, self._backend.fill_masks)

    def ends(self, tokens: Sequence[int]) -> bool:
        """Whether the last of these tokens ends a text."""
        return bool(tokens) and tokens[-1] in self.end_tokens

    def call(self, function: Callable[[], T]) -> T:
        """Run a function between two steps, for what touches a context that is at work."""
        return self._loop.call(function)

    def wake(self) -> None:
        """Make the thread look for what changed, such as a cancelled generation."""
        self._loop.wake.set()

    def check(self, tokens: Sequence[int]) -> list[int]:
        """Return the tokens as a list of plain integers.

        Raises PromptError for one outside the vocabulary, PromptTooLong.
        """
        if isinstance(tokens, (str, bytes)) or not hasattr(tokens, "__len__"):
            raise PromptError(f"a prompt is text or a sequence of token ids, not {type(tokens).__name__}")
        if len(tokens) > self.ctx_size:
            raise PromptTooLong(len(tokens), self.ctx_size)
        if len(tokens) > self._most_rows:
            raise PromptTooLong(len(tokens), self._most_rows, step=True)
        array = np.asarray(tokens)
        if array.size and (array.ndim != 1 or array.dtype.kind not in "iu"):
            raise PromptError(f"a prompt is text or a sequence of token ids, not of {array.dtype}")
        wrong = array[(array < 0) | (array >= self._vocab)]
        if len(wrong):
            raise PromptError(f"token {wrong[0]} is outside the vocabulary of {self._vocab}")
        ids: list[int] = array.tolist()
        return ids

    def check_writes(self) -> None:
        """Raise EncoderOnly where the model writes no text."""
        if not self.writes:
            raise EncoderOnly(self._name)

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

    def _prepare(
        self,
        request: Request,
        state: State,
        channel: Channel,
        release: Callable[[], None],
        *,
        owns_context: bool,
    ) -> tuple[EngineSequence, Sampling]:
        size = len(state)
        if size == 0:
            raise PromptError("the context is empty; extend it with a prompt first")
        sampling = (request.sampling or state.sampling or Sampling()).seeded()
        state.sampling = sampling
        if request.random_stream is not None:
            state.random_stream = request.random_stream
        room = self.ctx_size - size
        limit = room if request.max_tokens is None else min(room, request.max_tokens)
        ends = self._vocabulary.eog if self._vocabulary is not None else frozenset()
        channel.prompt_tokens = size
        constraint = request.constraint
        generation = GenerationState(
            TokenSampler(
                sampling,
                state,
                self._vocab,
                ends if request.ignore_eos else frozenset(),
                self._vocabulary,
                backend=self._backend,
            ),
            TextStream(self._decoder(request.special), request.stops),
            frozenset() if request.ignore_eos else ends,
            limit,
            None if constraint is None else lambda: self.constraint_state(constraint),
            stops=request.stops,
            special=request.special,
            forbidden=ends if request.ignore_eos else frozenset(),
        )
        work = EngineSequence(
            state,
            channel,
            generation,
            release,
            owns_context=owns_context,
            reuse=request.reuse,
            shared=request.shared,
            priority=request.priority,
            timeout=request.timeout,
        )
        if self._speculation and request.speculate:
            generation.drafter = self._new_drafter(generation.sampler, state)
        return work, sampling

    def _branch(self, channel: Channel, n: int) -> list[Generation]:
        parent = self._loop.find(channel)
        if parent is None or parent.generation is None or parent.ending is not None:
            raise ContextError("the generation has ended; fork its context instead")
        if parent.generation.make_constraint_state is not None and parent.generation.constraint_state is None:
            raise ContextError("the constraint has not begun; fork when the first token is there")
        return [self._fork_sequence(parent, parent.generation, i) for i in range(n)]

    def _fork_sequence(self, parent: EngineSequence, generation: GenerationState, i: int) -> Generation:
        """Start branch number i of a sequence that writes."""
        channel, state = Channel(), parent.state.fork()
        try:
            state.random_stream = branch_stream(state.random_stream, i)
            channel.prompt_tokens, channel.cached_tokens = len(state), len(state.kv)
            written = parent.channel.completion_tokens
            text = TextStream(self._decoder(generation.special), generation.stops)
            for token in state.last(written) if written else ():
                text.feed(token)  # so that it holds back what its parent holds back
            sampler = TokenSampler(
                state.sampling or Sampling(),
                state,
                self._vocab,
                generation.forbidden,
                self._vocabulary,
                backend=self._backend,
            )
            twin = GenerationState(
                sampler,
                text,
                generation.ends,
                generation.limit - written,
                generation.make_constraint_state,
                None if generation.drafter is None else self._new_drafter(sampler, state),
                stops=generation.stops,
                special=generation.special,
                forbidden=generation.forbidden,
            )
            if generation.constraint_state is not None:
                twin.constraint_state = generation.constraint_state.fork()
            work = EngineSequence(
                state,
                channel,
                twin,
                _nothing,
                owns_context=True,
                reuse=parent.reuse,
                shared=parent.shared,
                priority=parent.priority,
            )
            work.deadline = parent.deadline
            self._loop.add(work)
        except BaseException:
            state.kv.close()
            raise
        return self._generation(channel, sampler.sampling)

    def _generation(self, channel: Channel, sampling: Sampling) -> Generation:
        return Generation(channel, sampling, self._loop.wake, self.branch)

    def _decoder(self, special: Collection[int]) -> StreamDecoder:
        if self._vocabulary is None:
            return _Silent()
        return self._vocabulary.stream_decoder(skip_special=True, keep=special)

    def _new_drafter(self, sampler: TokenSampler, state: State) -> Drafter:
        model = None
        if self._draft is not None and not state.has_vectors:  # what they say a draft model cannot know
            model = DraftModelContext(
                self._draft, lambda n: state.last(len(state) - n), sampler.draft_sampler()
            )
        return Drafter(lambda: state.tokens, model)


class _Silent:
    """For a model without a tokenizer: tokens, and no text."""

    def push(self, token: int) -> str:
        return ""

    def finish(self) -> str:
        return ""


def _nothing() -> None:
    return None
