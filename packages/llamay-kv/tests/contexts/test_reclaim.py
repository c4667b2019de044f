"""A prefix tree gives up what a context needs, also where its leaves are pages that contexts share."""

import numpy as np
import pytest
from kv_recurrent import check, feed

from llamay_kv import Group, Layer, Layout, OutOfPagesError, Pool, PrefixTree

STATES = Layout([Group.recurrent([Layer(0, 1, 2, 4)], "f32")])
WINDOW = Layout([Group.sliding(16, [Layer(0, 1, 2, 2)], "f32")])
P = 16


def test_states_before_a_leaf_that_a_context_shares_are_given_up():
    one = Pool(STATES, P, pages=1).page_bytes[0]
    pool = Pool(STATES, P, pages=8, checkpoint_bytes=one)
    tree = PrefixTree(pool, pool.budget_bytes)
    context = pool.context()
    for turn in range(6):
        feed(context, range(P * turn, P * turn + P))
        context.checkpoint()
        tree.insert(context)
    history = context.tokens
    context.close()
    assert pool.used_bytes == 6 * one, "the tree has a state at the end of each turn"

    other = tree.match(history)
    assert len(other) == len(history)
    feed(other, range(5), at=[1, 2, 3, 4])  # five states more, of eight pages
    check(other)
    pool.audit()


def test_what_is_pinned_stays():
    one = Pool(STATES, P, pages=1).page_bytes[0]
    pool = Pool(STATES, P, pages=8, checkpoint_bytes=one)
    tree = PrefixTree(pool, pool.budget_bytes)
    context = pool.context()
    for turn in range(6):
        feed(context, range(P * turn, P * turn + P))
        context.checkpoint()
        tree.insert(context)
    pin = tree.pin(context.tokens)
    with pytest.raises(OutOfPagesError):
        feed(context, range(5), at=[1, 2, 3, 4])
    pin.release()
    feed(context, range(5), at=[1, 2, 3, 4])
    pool.audit()


def test_pages_behind_the_window_of_a_context_are_given_up():
    one = Pool(WINDOW, P, pages=1).page_bytes[0]
    pool = Pool(WINDOW, P, pages=8)
    tree = PrefixTree(pool, pool.budget_bytes)
    context = pool.context()
    for turn in range(6):
        with context.reserve(P) as lease:
            lease.write(0, np.ones((P, 1, 2), "f4"), np.ones((P, 1, 2), "f4"))
            lease.commit(list(range(P * turn, P * turn + P)))
        tree.insert(context)
    history = context.tokens
    context.close()
    assert pool.used_bytes == 6 * one

    other = tree.match(history)
    assert len(other) == len(history)
    with other.reserve(5 * P) as lease:  # five pages more, of eight
        lease.commit(list(range(5 * P)))
    pool.audit()
