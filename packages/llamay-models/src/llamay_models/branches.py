"""Several continuations of one context at a time: best of n, beam search, and search in a tree of texts.

Every branch is a fork, so the tokens that branches share are stored and computed once; all branches of a call decode
in the same steps. Each result holds its own context, which can be continued, forked or saved like any other.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from llamay_models.arguments import whole
from llamay_models.engine import Context, Generation, Sampling, TokenConstraint
from llamay_models.engine.decoding.constraint_state import ConstraintState
from llamay_models.engine.decoding.sequence import EngineSequence
from llamay_models.engine.requests.channel import Channel
from llamay_models.errors import ContextError, SamplingError
from llamay_models.plan.records import Doubles
from llamay_models.scoring import log_softmax


@dataclass
class Branch:
    """A continuation of a context.

    Attributes:
        context: prompt and continuation, open.
        text, tokens: of the continuation alone. The tokens include one that ends the text.
        logprob: natural-log probability of these tokens, given all before them.
        score: the score by which branches are ordered; the higher the better.
        finish_reason: why it ended; None for one that may go on.
        parent: of a tree, the branch it continues.
        constraint: the constraint of the branch, at the end of its text, under which the text can be continued.

    """

    context: Context
    text: str
    tokens: tuple[int, ...]
    logprob: float
    score: float
    finish_reason: str | None = None
    parent: Branch | None = field(default=None, repr=False)
    constraint: TokenConstraint | None = field(default=None, repr=False)

    @property
    def depth(self) -> int:
        """The number of branches before it."""
        return 0 if self.parent is None else self.parent.depth + 1

    @property
    def path(self) -> str:
        """The text from the root to here."""
        return self.text if self.parent is None else self.parent.path + self.text

    def close(self) -> None:
        """Give back the pages of its context that no other context shares."""
        self.context.close()


Score = Callable[[Branch], float]


def best_of(
    context: Context,
    n: int,
    sampling: Sampling | None = None,
    *,
    score: Score | None = None,
    constraint: TokenConstraint | None = None,
    **options: Any,
) -> list[Branch]:
    """Continue a context n times in one batch; return all branches, the best first.

    Args:
        context: it stays as it is.
        n: how many; each draws from a random stream of its own, so one seed gives n different texts, the
            same ones each time.
        sampling: as in `Context.generate`.
        score: returns the score of a branch; without it, the score is the mean log-probability of a token.
        constraint: every branch follows it; it must be able to fork.
        options: of `Context.generate`: max_tokens, stop, ignore_eos.

    Close the branches that are not wanted: they hold memory until then, or until they are forgotten.

    """
    if n < 1:
        raise ContextError(f"cannot take the best of {n}")
    return _ranked(_expand([(context, None, constraint)], n, sampling, options), score)


def explore(
    context: Context,
    *,
    score: Score,
    branch: int = 3,
    width: int = 2,
    depth: int = 3,
    sampling: Sampling | None = None,
    done: Callable[[Branch], bool] | None = None,
    constraint: TokenConstraint | None = None,
    **options: Any,
) -> list[Branch]:
    """Search a tree of texts level by level; return the leaves that are left, the best first.

    Every level continues each of the `width` best branches `branch` times, all in one batch, and keeps the
    best again ("Tree of Thoughts", Yao et al., 2023). Dropped branches are closed.

    Args:
        context: the root; it stays as it is.
        score: returns the score of a branch, by its `path`, its `context` or anything else.
        branch: how many continuations of each.
        width: how many of a level are kept.
        depth: how many levels.
        sampling: as in `Context.generate`.
        done: returns whether a branch is complete; without it, branches are complete whose text ended, and those
            whose constraint allows no more text.
        constraint: every path from the root follows it; it must be able to fork.
        options: of `Context.generate`: max_tokens (of one level), stop, ignore_eos.

    """
    for name, count in (("branch", branch), ("width", width), ("depth", depth)):
        whole(name, count, 1, error=ContextError)
    over = done or _over
    leaves: list[Branch] = []
    level: list[tuple[Context, Branch | None, TokenConstraint | None]] = [(context, None, constraint)]
    for _ in range(depth):
        found = _ranked([*_expand(level, branch, sampling, options), *leaves], score)
        kept, dropped = found[:width], found[width:]
        for parent in {id(b.parent): b.parent for b in found if b.parent is not None}.values():
            parent.close()
        for b in dropped:
            b.close()
        leaves = [b for b in kept if over(b)]
        level = [(b.context, b, b.constraint) for b in kept if not over(b)]
        if not level:
            break
    return sorted([*leaves, *(b for _, b, _ in level if b is not None)], key=lambda b: -b.score)


def beam_search(
    context: Context,
    width: int,
    *,
    max_tokens: int,
    length_penalty: float = 1.0,
    constraint: TokenConstraint | None = None,
    ignore_eos: bool = False,
) -> list[Branch]:
    """Return the `width` most likely continuations that beam search finds, the best first.

    Args:
        context: it stays as it is.
        width: how many branches are kept after every token; all are computed in one step.
        max_tokens: where branches that have not ended are cut.
        length_penalty: the score is the log-probability over the number of tokens to this power.
        constraint: every branch follows it; it must be able to fork.
        ignore_eos: end tokens are not chosen.

    Nothing is random. Raises OutOfMemoryError, PromptTooLongError.

    """
    for name, count in (("width", width), ("max_tokens", max_tokens)):
        whole(name, count, 1, error=SamplingError)
    model = context.model
    room = min(max_tokens, model.context_size - len(context))
    ends = model.engine.end_tokens
    start = None if constraint is None else model.engine.constraint_state(_forked(constraint))

    def scored(logprob: float, n: int) -> float:
        return float(logprob / max(1, n) ** length_penalty)

    beams = [_Beam(context.fork(), (), 0.0, start)]
    finished: list[_Beam] = []
    try:
        for _ in range(room):
            ideas: list[tuple[float, int, int]] = []
            for i, beam in enumerate(beams):
                logprobs = _logprobs(beam, ends if ignore_eos else frozenset())
                for token in _top(logprobs, width + len(ends)):
                    ideas.append((beam.logprob + float(logprobs[token]), i, token))
            # Equal ones in the order of their beams, then of their tokens: nothing is left to chance.
            ideas.sort(key=lambda idea: (-idea[0], idea[1], idea[2]))
            chosen: list[tuple[float, int, int]] = []
            for logprob, i, token in ideas:
                if token in ends:
                    if len(chosen) < width:
                        ended = _Beam(
                            beams[i].context.fork(), (*beams[i].tokens, token), logprob, None, "stop"
                        )
                        finished.append(ended)
                elif len(chosen) < width:
                    chosen.append((logprob, i, token))
            finished = _keep_best(finished, width, scored)
            grown = [_grow(beams[i], token, logprob) for logprob, i, token in chosen]
            _close(beams)
            beams = grown
            for complete in [
                b for b in beams if b.constraint_state is not None and b.constraint_state.finished
            ]:
                complete.reason = "stop"
                finished.append(complete)
                beams.remove(complete)
            if not beams:
                break
            if len(finished) >= width:
                worst = min(scored(b.logprob, len(b.tokens)) for b in finished)
                if (
                    max(scored(b.logprob, room if length_penalty > 0 else len(b.tokens)) for b in beams)
                    <= worst
                ):
                    break
            _advance([(b.context, [b.tokens[-1]]) for b in beams])
    except BaseException:
        _close([*beams, *finished])
        raise
    for beam in beams:
        beam.reason = "length"
    best = _keep_best([*finished, *beams], width, scored)
    return [
        Branch(b.context, model.decode(_text_tokens(b.tokens, ends)) if model.tokenizer else "", b.tokens, b.logprob,
               scored(b.logprob, len(b.tokens)), b.reason)
        for b in best
    ]  # fmt: skip


@dataclass
class _Beam:
    context: Context
    tokens: tuple[int, ...]
    logprob: float
    constraint_state: ConstraintState | None
    reason: str | None = None


def _text_tokens(tokens: tuple[int, ...], ends: frozenset[int]) -> Sequence[int]:
    return tokens[:-1] if tokens and tokens[-1] in ends else tokens


def _logprobs(beam: _Beam, forbidden: frozenset[int]) -> Doubles:
    logprobs: Doubles = log_softmax(beam.context.logits[None])[0]
    logprobs[list(forbidden)] = -np.inf
    if beam.constraint_state is not None:
        bits = np.unpackbits(beam.constraint_state.mask.view(np.uint8), bitorder="little")[: len(logprobs)]
        logprobs[bits == 0] = -np.inf
    return logprobs


def _top(logprobs: Doubles, n: int) -> list[int]:
    """Return the likeliest tokens, of equal ones those with the lowest ids."""
    n = min(n, len(logprobs))
    cut = np.partition(logprobs, len(logprobs) - n)[len(logprobs) - n]
    candidates = np.flatnonzero((logprobs >= cut) & (logprobs > -np.inf))
    return heapq.nsmallest(n, candidates.tolist(), key=lambda t: (-logprobs[t], t))


def _grow(beam: _Beam, token: int, logprob: float) -> _Beam:
    constraint = None if beam.constraint_state is None else beam.constraint_state.fork()
    if constraint is not None:
        constraint.accept(token)
    return _Beam(beam.context.fork(), (*beam.tokens, token), logprob, constraint)


def _keep_best(beams: list[_Beam], width: int, scored: Callable[[float, int], float]) -> list[_Beam]:
    beams = sorted(beams, key=lambda b: -scored(b.logprob, len(b.tokens)))
    _close(beams[width:])
    return beams[:width]


def _close(beams: Sequence[_Beam]) -> None:
    for beam in beams:
        beam.context.close()


def _forked(constraint: TokenConstraint) -> TokenConstraint:
    fork = getattr(constraint, "fork", None)
    if fork is None:
        raise ContextError(f"a {type(constraint).__name__} cannot fork, so it cannot bind several branches")
    forked: TokenConstraint = fork()
    return forked


def _expand(
    roots: Sequence[tuple[Context, Branch | None, TokenConstraint | None]],
    n: int,
    sampling: Sampling | None,
    options: dict[str, Any],
) -> list[Branch]:
    """Continue each root n times, all in the same steps."""
    model = roots[0][0].model
    pairs: list[tuple[Context, Branch | None, TokenConstraint | None]] = []
    for context, parent, constraint in roots:
        for fork in context.fork(n):
            pairs.append((fork, parent, None if constraint is None else _forked(constraint)))
    chosen = sampling or roots[0][0].sampling or Sampling()
    # One seed for all: their streams differ.
    chosen = replace(chosen.seeded(), logprobs=chosen.logprobs or 0)

    def start() -> list[Generation]:
        return [c.generate(chosen, constraint=bound, **options) for c, _, bound in pairs]

    running = model.engine.call(start)
    try:
        branches = []
        for (context, parent, bound), generation in zip(pairs, running, strict=True):
            logprob = sum(s.logprob for s in generation.scores)
            n_tokens = max(1, len(generation.tokens))
            branches.append(
                Branch(
                    context,
                    generation.text,
                    generation.tokens,
                    logprob,
                    logprob / n_tokens,
                    generation.finish_reason,
                    parent,
                    bound,
                )
            )
    except BaseException:
        for generation in running:
            generation.cancel()
        for context, _, _ in pairs:
            context.close()
        raise
    return branches


def _over(branch: Branch) -> bool:
    """Return whether a text has ended, or may go no further."""
    engine = branch.context.model.engine
    if branch.finish_reason == "stop" and engine.ends(branch.tokens):
        return True
    if branch.constraint is None or branch.finish_reason == "error":
        return branch.finish_reason == "error"
    return engine.constraint_state(branch.constraint).finished


def _ranked(branches: list[Branch], score: Score | None) -> list[Branch]:
    if score is not None:
        for branch in branches:
            branch.score = score(branch)
    return sorted(branches, key=lambda b: -b.score)


def _advance(pairs: Sequence[tuple[Context, list[int]]]) -> None:
    """Append a few tokens to each of several contexts, and compute them in the same step."""
    engine = pairs[0][0].model.engine
    sequences: list[EngineSequence] = []
    try:
        for context, tokens in pairs:
            channel = Channel()
            state = context._acquire(channel)
            state.append(tokens)
            sequences.append(
                EngineSequence(state, channel, None, context._release, owns_context=False, reuse=False)
            )
    except BaseException:
        for sequence in sequences:
            sequence.channel.finish("cancelled")
            sequence.release()
        raise
    engine.prefill_all(sequences)


__all__ = ["Branch", "Score", "beam_search", "best_of", "explore"]
