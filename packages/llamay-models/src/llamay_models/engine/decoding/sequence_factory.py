"""`SequenceFactory`: makes sequences of requests, and branches of sequences."""

from __future__ import annotations

from collections.abc import Callable, Collection

from llamay_models.backend import Backend
from llamay_models.engine.decoding.constraint_state import ConstraintState
from llamay_models.engine.decoding.draft_model import DraftModel, DraftModelContext
from llamay_models.engine.decoding.drafter import Drafter
from llamay_models.engine.decoding.generation_state import GenerationState
from llamay_models.engine.decoding.sequence import EngineSequence
from llamay_models.engine.decoding.text_stream import StreamDecoder, TextStream
from llamay_models.engine.decoding.token_sampler import TokenSampler
from llamay_models.engine.decoding.vocabulary import Vocabulary
from llamay_models.engine.decoding.vocabulary_check import VocabularyCheck
from llamay_models.engine.requests.channel import Channel
from llamay_models.engine.requests.request import Request
from llamay_models.engine.requests.token_constraint import TokenConstraint
from llamay_models.engine.sampling import Sampling
from llamay_models.engine.state.context_state import State, branch_stream
from llamay_models.errors import ContextError, PromptError


class SequenceFactory:
    """Makes the sequences of one model.

    Args:
        vocabulary: the tokenizer; None for a model without one.
        vocab: the number of tokens.
        ctx_size: the most tokens that a context may have.
        backend: the backend that samples and fills masks.
        draft: the draft model; None for none.
        speculation: whether tokens are drafted.

    """

    def __init__(
        self,
        vocabulary: Vocabulary | None,
        vocab: int,
        ctx_size: int,
        backend: Backend,
        draft: DraftModel | None,
        *,
        speculation: bool,
    ) -> None:
        self._vocabulary = vocabulary
        self._vocab = vocab
        self._ctx_size = ctx_size
        self._backend = backend
        self._draft = draft
        self._speculation = speculation
        self._check = VocabularyCheck(vocabulary, vocab)

    @property
    def end_tokens(self) -> frozenset[int]:
        """The tokens that end a text."""
        return self._vocabulary.eog if self._vocabulary is not None else frozenset()

    def constraint_state(self, constraint: TokenConstraint) -> ConstraintState:
        """Return the state of a constraint at the beginning of a text."""
        return ConstraintState(constraint, self._vocab, self.end_tokens, self._backend.fill_masks)

    def make(
        self,
        request: Request,
        state: State,
        channel: Channel,
        release: Callable[[], None],
        *,
        owns_context: bool,
    ) -> tuple[EngineSequence, Sampling]:
        """Return the sequence of a request, and its sampling with the seed that is used.

        Raises PromptError for an empty context, SamplingError, ConstraintError for a constraint of another vocabulary.
        """
        size = len(state)
        if size == 0:
            raise PromptError("the context is empty; extend it with a prompt first")
        constraint = request.constraint
        if constraint is not None:
            self._check.check(constraint)
        sampling = (request.sampling or state.sampling or Sampling()).seeded()
        state.sampling = sampling
        if request.random_stream is not None:
            state.random_stream = request.random_stream
        room = self._ctx_size - size
        limit = room if request.max_tokens is None else min(room, request.max_tokens)
        ends = self.end_tokens
        channel.prompt_tokens = size
        forbidden = ends if request.ignore_eos else frozenset()
        generation = GenerationState(
            self._sampler(sampling, state, forbidden),
            TextStream(self._decoder(request.special), request.stops),
            frozenset() if request.ignore_eos else ends,
            limit,
            None if constraint is None else lambda: self.constraint_state(constraint),
            stops=request.stops,
            special=request.special,
            forbidden=forbidden,
        )
        sequence = EngineSequence(
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
            generation.drafter = self._drafter(generation.sampler, state)
        return sequence, sampling

    def branch(self, parent: EngineSequence, channel: Channel, state: State, i: int) -> EngineSequence:
        """Return branch number i of a sequence that generates; `state` is a fork of its state.

        Raises ContextError for a sequence that does not generate, ConstraintError for a constraint that cannot fork.
        """
        generation = parent.generation
        if generation is None:
            raise ContextError("the generation has ended; fork its context instead")
        state.random_stream = branch_stream(state.random_stream, i)
        channel.prompt_tokens, channel.cached_tokens = len(state), len(state.kv)
        written = parent.channel.completion_tokens
        text = TextStream(self._decoder(generation.special), generation.stops)
        for token in state.last(written) if written else ():
            text.feed(token)  # so that it holds back the same text as its parent
        sampler = self._sampler(state.sampling or Sampling(), state, generation.forbidden)
        twin = GenerationState(
            sampler,
            text,
            generation.ends,
            generation.limit - written,
            generation.make_constraint_state,
            None if generation.drafter is None else self._drafter(sampler, state),
            stops=generation.stops,
            special=generation.special,
            forbidden=generation.forbidden,
        )
        if generation.constraint_state is not None:
            twin.constraint_state = generation.constraint_state.fork()
        sequence = EngineSequence(
            state,
            channel,
            twin,
            _nothing,
            owns_context=True,
            reuse=parent.reuse,
            shared=parent.shared,
            priority=parent.priority,
        )
        sequence.deadline = parent.deadline
        return sequence

    def _sampler(self, sampling: Sampling, state: State, forbidden: frozenset[int]) -> TokenSampler:
        return TokenSampler(sampling, state, self._vocab, forbidden, self._vocabulary, backend=self._backend)

    def _decoder(self, special: Collection[int]) -> StreamDecoder:
        if self._vocabulary is None:
            return _NoText()
        return self._vocabulary.stream_decoder(skip_special=True, keep=special)

    def _drafter(self, sampler: TokenSampler, state: State) -> Drafter:
        model = None
        if self._draft is not None and not state.has_vectors:  # a draft model has no rows for vectors
            model = DraftModelContext(
                self._draft, lambda n: state.last(len(state) - n), sampler.draft_sampler()
            )
        return Drafter(lambda: state.tokens, model)


class _NoText:
    """The decoder of a model without a tokenizer: tokens have no text."""

    def push(self, token: int) -> str:
        return ""

    def finish(self) -> str:
        return ""


def _nothing() -> None:
    return None
