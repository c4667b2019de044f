"""A prefix tree gives up what a context needs, also where its leaves are pages that contexts share."""

import numpy as np
import pytest
from kv_recurrent import check, feed

from llamay_kv import Group, Identity, Layer, Layout, OutOfPagesError, Pool, PrefixTree

FULL = Layout([Group.full([Layer(0, 1, 2, 2)], "f32")])
STATES = Layout([Group.recurrent([Layer(0, 1, 2, 4)], "f32")])
WINDOW = Layout([Group.sliding(16, [Layer(0, 1, 2, 2)], "f32")])
P = 16


def make(layout, pages=8):
    one = Pool(layout, P, pages=1).page_bytes[0]
    pool = Pool(layout, P, pages=pages, checkpoint_bytes=one if layout is STATES else None)
    return one, pool, PrefixTree(pool, pool.budget_bytes)


def extend(context, tokens):
    """Commit tokens, with a state at their end in recurrent layers."""
    if context.pool.layout is STATES:
        feed(context, tokens)
        context.checkpoint()
        return
    with context.reserve(len(tokens)) as lease:
        lease.write(0, *np.ones((2, len(tokens), 1, 2), "f4"))
        lease.commit(list(tokens))


def turns(pool, tree, n, first=0):
    """A context of n turns of a page each, of which the tree keeps all."""
    context = pool.context()
    for turn in range(n):
        extend(context, range(first + P * turn, first + P * turn + P))
        tree.insert(context)
    return context


def test_states_before_a_leaf_that_a_context_shares_are_given_up():
    one, pool, tree = make(STATES)
    context = turns(pool, tree, 6)
    history = context.tokens
    context.close()
    assert pool.used_bytes == 6 * one, "the tree has a state at the end of each turn"

    other = tree.match(history)
    assert len(other) == len(history)
    feed(other, range(5), at=[1, 2, 3, 4])  # five states more, of eight pages
    check(other)
    pool.audit()


def test_what_is_pinned_stays():
    _, pool, tree = make(STATES)
    context = turns(pool, tree, 6)
    pin = tree.pin(context.tokens)
    with pytest.raises(OutOfPagesError):
        feed(context, range(5), at=[1, 2, 3, 4])
    pin.release()
    feed(context, range(5), at=[1, 2, 3, 4])
    pool.audit()


def test_pages_behind_the_window_of_a_context_are_given_up():
    one, pool, tree = make(WINDOW)
    context = turns(pool, tree, 6)
    history = context.tokens
    context.close()
    assert pool.used_bytes == 6 * one

    other = tree.match(history)
    assert len(other) == len(history)
    extend(other, range(5 * P))  # five pages more, of eight
    pool.audit()


@pytest.mark.parametrize("layout", [STATES, WINDOW])
@pytest.mark.parametrize("deep", [2, 5])
def test_many_texts_give_up_at_once_what_their_leaves_cover(layout, deep):
    one, pool, tree = make(layout, pages=4 * (deep + 1))
    contexts = [turns(pool, tree, deep, 1000 * i) for i in range(4)]
    held = pool.used_bytes
    assert held >= 4 * deep * one
    assert tree.reclaim(1 << 40) == held - 4 * one
    assert pool.used_bytes == 4 * one, "each context has its last page or state"
    assert tree.counters()["nodes"] == 0
    for context in contexts:
        context.close()
    assert pool.used_bytes == 0
    pool.audit()


def test_a_fork_in_a_text_is_given_up_with_both_its_ends():
    _, pool, tree = make(WINDOW, pages=16)
    trunk = turns(pool, tree, 3)
    ends = [trunk.fork(), trunk.fork(), trunk.fork()]
    for i, end in enumerate(ends):
        for turn in range(i + 1):
            extend(end, range(100 * (i + 1) + turn, 100 * (i + 1) + turn + P))
            tree.insert(end)
    kept = tree.pin(ends[2].tokens)
    trunk.close()
    tree.reclaim(1 << 40)
    pool.audit()
    assert len(tree.match(ends[2].tokens)) == len(ends[2]), "a pin keeps all that lies before it"
    kept.release()
    tree.reclaim(1 << 40)
    pool.audit()
    assert pool.used_bytes == 3 * pool.page_bytes[0]


@pytest.mark.parametrize("way", ["tenants", "identities"])
def test_a_page_of_two_nodes_is_given_up_where_no_context_uses_it(way):
    _, pool, tree = make(FULL)
    context = pool.context()
    extend(context, range(8 * P))
    for name in ("a", "b"):
        tree.insert(context, **({"tenant": name} if way == "tenants" else {"identity": Identity(model=name)}))
    assert tree.reclaim(1 << 40) == 0, "the context uses all pages"
    context.close()
    assert pool.used_bytes == pool.budget_bytes
    extend(pool.context(), [1])
    tree.reclaim(1 << 40)
    assert pool.used_bytes == 0
    assert tree.counters()["nodes"] == 0
    pool.audit()


@pytest.mark.parametrize("layout", [FULL, STATES, WINDOW])
@pytest.mark.parametrize("trees", [2, 3])
def test_a_page_of_several_trees_is_given_up_where_no_context_uses_it(layout, trees):
    one, pool, first = make(layout, pages=12)
    held = [first, *(PrefixTree(pool, pool.budget_bytes) for _ in range(trees - 1))]
    for start in (0, 1000):
        context = turns(pool, first, 6, start)
        for tree in held[1:]:
            for length in range(P, 6 * P + 1, P):
                with first.match(context.tokens[:length]) as part:
                    tree.insert(part)
        assert held[-1].reclaim(0) == 0
        context.close()
    assert pool.used_bytes == 12 * one

    other = pool.context()
    extend(other, range(5000, 5000 + P))
    pool.audit()
    assert pool.used_bytes > 8 * one, "the trees give up what is needed, and not everything"
    for i in range(1, 7):
        extend(other, range(5000 + P * i, 5000 + P * i + P))
    pool.audit()
    other.close()
    for tree in held:
        tree.reclaim(1 << 40)
        pool.audit()
    assert pool.used_bytes == 0


def test_a_page_of_two_trees_that_a_context_uses_stays_in_both():
    one, pool, tree = make(FULL)
    other = PrefixTree(pool, pool.budget_bytes)
    context = turns(pool, tree, 6)
    other.insert(context)
    with pytest.raises(OutOfPagesError):
        pool.context().reserve(3 * P)
    assert len(tree.match(context.tokens)) == len(other.match(context.tokens)) == 6 * P
    context.close()
    with pool.context().reserve(3 * P):
        assert pool.used_bytes <= 8 * one
    pool.audit()


def test_what_is_pinned_in_one_tree_is_not_freed_by_another():
    one, pool, tree = make(FULL)
    other = PrefixTree(pool, pool.budget_bytes)
    context = turns(pool, tree, 6)
    other.insert(context)
    pin = other.pin(context.tokens)
    history = context.tokens
    context.close()
    assert tree.reclaim(1 << 40) == 0
    assert pool.used_bytes == 6 * one
    assert len(other.match(history)) == 6 * P
    pin.release()
    assert other.reclaim(1 << 40) == 6 * one
    pool.audit()


@pytest.mark.parametrize("layout", [FULL, STATES, WINDOW])
def test_nodes_without_pages_do_not_gather(layout):
    _, pool, tree = make(layout, pages=40)
    for i in range(100):
        context = pool.context()
        extend(context, range(1000 * i, 1000 * i + 20 * P))
        tree.insert(context)
        context.close()
    assert tree.counters()["nodes"] <= 40 * 21, "at most the texts that still have a page or a state"
    tree.reclaim(1 << 40)
    assert tree.counters()["nodes"] == 0
    assert pool.used_bytes == 0
    pool.audit()
