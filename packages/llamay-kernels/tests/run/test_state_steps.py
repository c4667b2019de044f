"""Steps over recurrent states that follow by themselves, and abandoned steps."""

import numpy as np
import pytest
from kernel_sets import POOLS
from pages import Context
from plans import same_bits
from recurrent import GROUPS, HYBRID, step

from llamay_kernels import Brake, Sampler, Threads

SAMPLERS = [Sampler(i, temperature=1.5) for i in range(3)]


def one_by_one(n, contexts):
    tokens, chosen, out = list(range(len(contexts))), [], np.zeros((len(contexts), 40), np.float32)
    for at in range(n):
        rows = [(c.reserve(1), [t], at, 1) for c, t in zip(contexts, tokens, strict=True)]
        draws = [(SAMPLERS[i], i, at + 1, None, None) for i in range(len(contexts))]
        _, tokens, errors = HYBRID.run_rows(rows, out, POOLS[1], draws)
        assert not errors
        chosen.append(tokens)
        for c in contexts:
            c.commit(1)
    return chosen, out


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("n_contexts", [1, 3])
def test_steps_follow_over_the_states_that_are_listed(threads, n_contexts):
    expected, last = one_by_one(9, ones := [Context(GROUPS, seed=i) for i in range(n_contexts)])
    contexts = [Context(GROUPS, seed=i) for i in range(n_contexts)]
    out, brake = np.zeros((n_contexts, 40), np.float32), Brake()
    rows = [(c.reserve(9, range(1, 10)), [i], 0, 1) for i, c in enumerate(contexts)]
    begun = HYBRID.begin_rows(rows, out, Threads(threads, grain=0))
    for at in range(9):
        draws = [(SAMPLERS[i], i, at + 1, None, None) for i in range(n_contexts)]
        _, tokens, errors, followed = begun.finish(draws, brake, [])
        assert (tokens, errors, followed) == (expected[at], {}, at < 8)
    assert same_bits(out, last)
    for one, other in zip(ones, contexts, strict=True):
        for layer in (0, 1, 3):
            assert all(map(same_bits, one.state(layer, 9), other.state(layer, 9)))


@pytest.mark.parametrize(
    ("states", "follow"), [([1, 4], 0), ([1, 2, 4], 1), ([2, 3, 4], 0), ([4], 0), ([1, 2, 3, 4], 3)]
)
def test_no_step_follows_that_would_leave_no_state(states, follow):
    """Its token could not be committed; and none begins without the state that it reads."""
    context, out = Context(GROUPS), np.zeros((1, 40), np.float32)
    begun = HYBRID.begin_rows([(context.reserve(4, states), [0], 0, 1)], out, POOLS[3])
    brake, followed = Brake(), []
    for at in range(4):
        followed.append(begun.finish([(SAMPLERS[0], 0, at + 1, None, None)], brake, [])[3])
        if not followed[-1]:
            break
    assert followed == [True] * follow + [False]


@pytest.mark.parametrize("n", [1, 40])
def test_a_step_that_is_left_changes_no_state_that_was_there(n):
    tokens = list(range(50))
    context, other = Context(GROUPS), Context(GROUPS)
    for c in (context, other):
        step(HYBRID, c, tokens[:5])
        c.commit(5)
    before = [context.state(layer, 5) for layer in (0, 1, 3)]
    out = np.zeros((1, 40), np.float32)
    for _ in range(5):
        begun = HYBRID.begin_rows([(context.reserve(n, [5 + n]), tokens[5 : 5 + n], 5, 1)], out, POOLS[3])
        begun.leave()
        begun.leave()
        after = [context.state(layer, 5) for layer in (0, 1, 3)]
        assert all(
            same_bits(a, b) for x, y in zip(before, after, strict=True) for a, b in zip(x, y, strict=True)
        )
        context.n_reserved = 0
    assert same_bits(step(HYBRID, context, tokens[5:9], POOLS[3]), step(HYBRID, other, tokens[5:9]))
