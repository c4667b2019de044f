"""Branches share what they have in common, and each is what it would be alone."""

import gc
import itertools
import threading

import numpy as np
import pytest

from llamay_models.branches import beam_search, best_of, explore
from llamay_models.engine import Request, Sampling
from llamay_models.errors import ConstraintError, ContextError, QueueFullError
from llamay_models.scoring import log_softmax

SEEDED = Sampling(seed=3, temperature=1.0)


def prompt_of(n, seed=0):
    return [5 + (i * 7 + seed * 13 + i * i) % 50 for i in range(n)]


class Sparse:
    """A constraint that can fork: token n is among those that have the parity of the ones before."""

    def __init__(self, taken=()):
        self.taken = list(taken)

    def fill_mask(self, mask):
        mask[:] = 0xAAAAAAAA if sum(self.taken) % 3 else 0x55555554
        if len(self.taken) >= 150:
            mask[:] = 1  # only the end token

    def accept(self, token):
        self.taken.append(token)

    def fork(self):
        return Sparse(self.taken)


def wait_for_a_call(model, step):
    """Have the engine stand still before a step until somebody has called, so that a fork finds what it forks."""
    loop, runner, steps = model.engine._loop, model.engine.runner, itertools.count()
    run, call, called = runner.step, loop.call, threading.Event()

    def calling(function):
        called.set()
        return call(function)

    def waiting(batch, draws):
        # What is called is done between two steps, so this one must not last until it is.
        if next(steps) == step:
            called.wait(30)
        return run(batch, draws)

    loop.call, runner.step = calling, waiting


class TestFork:
    def test_of_a_running_text_goes_on_as_a_fork_of_its_context(self, make_model):
        model = make_model()
        wait_for_a_call(model, 9)
        running = model.engine.submit(Request(prompt_of(30), SEEDED, 200, ignore_eos=True))
        next(iter(running))
        forks = running.fork(3)
        written = {f.usage.prompt_tokens - 30 for f in forks}.pop()
        tokens = running.tokens
        base = model.context([*prompt_of(30), *tokens[:written]])
        expected = [
            c.generate(SEEDED, max_tokens=200 - written, ignore_eos=True).tokens for c in base.fork(3)
        ]
        assert [f.tokens for f in forks] == expected
        assert len({f.tokens for f in forks}) > 1

    def test_a_grammar_and_held_back_text_fork_too(self, make_model):
        model = make_model()
        request = Request(prompt_of(30), SEEDED, 200, constraint=Sparse(), stop=("zzzzzz",))
        wait_for_a_call(model, 9)
        running = model.engine.submit(request)
        next(iter(running))
        forks = running.fork(2)
        whole = running.tokens
        for fork in forks:
            written = fork.usage.prompt_tokens - 30
            check, mask = Sparse(), np.zeros(2, np.uint32)
            for token in [*whole[:written], *fork.tokens]:
                check.fill_mask(mask)
                assert mask[token // 32] >> (token % 32) & 1
                check.accept(token)
            assert fork.finish_reason == "stop"

    def test_a_constraint_that_cannot_fork_says_so(self, make_model, gate):
        model = make_model()
        running = model.engine.submit(Request(prompt_of(5), SEEDED, 20, constraint=gate, ignore_eos=True))
        next(iter(running))
        gate.open()
        with pytest.raises((ConstraintError, ContextError), match=r"a Gate cannot fork|has ended"):
            running.fork(2)
        running.wait()

    def test_of_what_has_ended_says_so(self, make_model):
        running = make_model().engine.submit(Request(prompt_of(5), SEEDED, 3, ignore_eos=True))
        running.wait()
        with pytest.raises(ContextError, match="the generation has ended"):
            running.fork()


class TestBestOf:
    def test_is_the_best_of_the_forks(self, make_model):
        model = make_model()
        context = model.context(prompt_of(40))
        branches = best_of(context, 5, SEEDED, max_tokens=10, ignore_eos=True)
        expected = {f.generate(SEEDED, max_tokens=10, ignore_eos=True).tokens for f in context.fork(5)}
        assert {b.tokens for b in branches} == expected
        assert [b.score for b in branches] == sorted((b.score for b in branches), reverse=True)
        for b in branches:
            assert list(b.context.tokens) == [*prompt_of(40), *b.tokens]
            logits = [model.context([*prompt_of(40), *b.tokens[:i]]).logits for i in range(10)]
            logprobs = [log_softmax(x[None])[0][t] for x, t in zip(logits, b.tokens, strict=True)]
            assert b.logprob == pytest.approx(sum(logprobs), abs=1e-4)
            assert b.score == pytest.approx(b.logprob / 10)
            b.close()
        assert list(context.tokens) == prompt_of(40)

    def test_may_be_judged_otherwise(self, make_model):
        context = make_model().context(prompt_of(10))
        branches = best_of(context, 4, SEEDED, score=lambda b: -b.tokens[0], max_tokens=3, ignore_eos=True)
        firsts = [b.tokens[0] for b in branches]
        assert firsts == sorted(firsts)

    def test_follows_a_constraint(self, make_model):
        context = make_model().context(prompt_of(10))
        for b in best_of(context, 3, SEEDED, constraint=Sparse(), max_tokens=5):
            assert all(t % 2 == (sum(b.tokens[:i]) % 3 > 0) for i, t in enumerate(b.tokens))

    def test_of_none_makes_no_sense(self, make_model):
        with pytest.raises(ContextError):
            best_of(make_model().context([9]), 0)


class TestBeam:
    def test_a_beam_as_wide_as_the_tree_finds_the_best_of_all(self, make_model):
        """Against every text of three tokens, over a model of few tokens."""
        model = make_model()
        context = model.context(prompt_of(10))
        allowed = (7, 20, 33)

        class Few(Sparse):
            def fill_mask(self, mask):
                mask[:] = 0
                for t in allowed:
                    mask[t // 32] |= np.uint32(1 << t % 32)

            def fork(self):
                return Few(self.taken)

        scores = {}
        for text in itertools.product(allowed, repeat=3):
            total = 0.0
            for i, token in enumerate(text):
                total += log_softmax(model.context([*prompt_of(10), *text[:i]]).logits[None])[0][token]
            scores[text] = total / 3
        branches = beam_search(context, 27, max_tokens=3, constraint=Few())
        expected = sorted(scores, key=lambda t: -scores[t])
        assert [b.tokens for b in branches][:5] == expected[:5]
        assert [b.score for b in branches] == pytest.approx([scores[t] for t in expected], abs=1e-5)
        assert all(list(b.context.tokens) == [*prompt_of(10), *b.tokens] for b in branches)

    def test_of_width_one_is_greedy(self, make_model):
        context = make_model().context(prompt_of(10))
        greedy = context.fork().generate(Sampling(temperature=0), max_tokens=12, ignore_eos=True).tokens
        (branch,) = beam_search(context, 1, max_tokens=12, ignore_eos=True)
        assert branch.tokens == greedy
        assert branch.finish_reason == "length"

    def test_gives_back_all_that_is_not_returned(self, make_model):
        model = make_model()
        context = model.context(prompt_of(10))
        used = model.pool.used_bytes
        for b in beam_search(context, 4, max_tokens=20, ignore_eos=True):
            b.close()
        assert model.pool.used_bytes == used


def test_a_beam_that_finds_no_place_gives_everything_back(make_model, gate):
    model = make_model(max_sequences=1, max_queue=2)
    context = model.context(prompt_of(10))
    running = model.engine.submit(Request(prompt_of(5), SEEDED, 30, constraint=gate, ignore_eos=True))
    next(iter(running))
    used = model.pool.used_bytes
    threading.Timer(0.2, gate.open).start()
    with pytest.raises(QueueFullError):
        beam_search(context, 4, max_tokens=5, ignore_eos=True)
    running.cancel()
    running.wait()
    gc.collect()
    assert model.pool.used_bytes < used
    assert list(context.tokens) == prompt_of(10)


class TestExplore:
    def test_a_tree_is_searched_level_by_level(self, make_model):
        model = make_model()
        context = model.context(prompt_of(20))
        seen = []

        def judge(branch):
            seen.append(branch)
            return float(sum(branch.tokens))

        found = explore(
            context, score=judge, branch=3, width=2, depth=3, sampling=SEEDED, max_tokens=4, ignore_eos=True
        )
        assert len(seen) == 3 + 6 + 6
        assert len(found) == 2
        for b in found:
            assert b.depth == 2
            tokens = [t for n in (b.parent.parent, b.parent, b) for t in n.tokens]
            assert list(b.context.tokens) == [*prompt_of(20), *tokens]
            assert b.path == model.decode(tokens)
        again = explore(
            context, score=judge, branch=3, width=2, depth=3, sampling=SEEDED, max_tokens=4, ignore_eos=True
        )
        assert [b.path for b in again] == [b.path for b in found]

    def test_gives_back_all_that_is_not_returned(self, make_model):
        model = make_model()
        context = model.context(prompt_of(20))
        used = model.pool.used_bytes
        for b in explore(context, score=lambda b: b.score, depth=2, max_tokens=4, sampling=SEEDED):
            b.close()
        assert model.pool.used_bytes == used

    def test_every_path_follows_the_constraint_from_the_root_on(self, make_model):
        model = make_model()
        context = model.context(prompt_of(20))
        options = {"branch": 3, "width": 2, "depth": 3, "sampling": SEEDED, "max_tokens": 4}
        found = explore(context, score=lambda b: b.score, constraint=Sparse(), **options)
        assert found
        for b in found:
            levels = []
            while b is not None:
                levels.insert(0, b.tokens)
                b = b.parent
            path = [t for tokens in levels for t in tokens]
            assert len(path) == 12
            assert all(t % 2 == (sum(path[:i]) % 3 > 0) for i, t in enumerate(path))
        assert [b.constraint.taken for b in found] == [list(b.context.tokens)[20:] for b in found]

    def test_a_constraint_also_takes_the_token_that_ends_a_level(self, make_model):
        """A stop string ends a level, not the document."""
        model = make_model()
        context = model.context(prompt_of(20))
        found = explore(
            context, score=lambda b: b.score, constraint=Sparse(), depth=4, sampling=SEEDED,
            max_tokens=30, stop=[chr(t + 92) for t in range(5, 60, 7)],
        )  # fmt: skip
        assert any(b.depth > 0 for b in found)
        for b in found:
            assert b.constraint.taken == list(b.context.tokens)[20:]

    def test_a_text_that_may_go_no_further_is_a_leaf(self, make_model):
        class Short(Sparse):
            def fill_mask(self, mask):
                super().fill_mask(mask)
                if len(self.taken) >= 6:
                    mask[:] = 0
                    mask[0] = 1

            def fork(self):
                return Short(self.taken)

        context = make_model().context(prompt_of(20))
        found = explore(
            context, score=lambda b: b.score, constraint=Short(), depth=5, sampling=SEEDED, max_tokens=6
        )
        assert [b.depth for b in found] == [0, 0]
        assert all(len(b.tokens) == 6 for b in found)
