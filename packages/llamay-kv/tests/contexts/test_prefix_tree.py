"""The tree finds the longest prefix, is exact to the byte, and gives up the same pages as a flat list."""

import os
import time

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule
from kv_filled import check, fill
from kv_flat_tree import FlatTree

from llamay_kv import UNKNOWN_TOKEN, Group, Identity, Layer, Layout, OutOfPagesError, Pool, PrefixTree

P = 16


LAYOUTS = [
    Layout([Group.full([Layer(0, 1, 2, 2)], "f32")]),
    Layout([Group.full([Layer(0, 1, 2, 2)], "f32"), Group.sliding(20, [Layer(1, 1, 3, 3)], "f32")]),
]
STATES = [
    Layout([Group.full([Layer(0, 1, 2, 2)], "f32"), Group.recurrent([Layer(1, 1, 2, 9)])]),
    Layout(
        [
            Group.recurrent([Layer(0, 1, 0, 5)]),
            Group.sliding(20, [Layer(1, 1, 3, 3)], "f32"),
            Group.recurrent([Layer(2, 1, 70, 3)]),
        ]
    ),
]
TENANTS = ["", "alice", "bob"]


EXAMPLES, STEPS = (int(os.environ.get(f"LLAMAY_KV_{n}", d)) for n, d in (("EXAMPLES", 100), ("STEPS", 40)))


class TreeLockstep(RuleBasedStateMachine):
    contexts = Bundle("contexts")

    @initialize(layout=st.sampled_from([*LAYOUTS, *STATES]), budget=st.integers(0, 30), steep=st.booleans())
    def first(self, layout, budget, steep):
        per_position = 0.01 * steep
        self.pool = Pool(layout, P, pages=400)
        page_bytes = self.pool.page_bytes
        self.budget = budget * sum(page_bytes) + 7
        self.tree = PrefixTree(self.pool, self.budget, per_token=1.0, per_token_and_position=per_position)
        self.flat = FlatTree(layout.groups, P, page_bytes, self.budget, 1.0, per_position)
        self.pins = []
        self.seen = [[1]]
        self.rows = [self.pool.rows(bytes([i]) * 32, 40) for i in range(2)]

    def _tokens(self, data):
        """Tokens similar to earlier ones, so that prefixes meet."""
        base = data.draw(st.sampled_from(self.seen))
        keep = data.draw(st.integers(0, len(base)))
        more = data.draw(st.lists(st.integers(1, 2), max_size=3)) * data.draw(st.sampled_from([1, 5, 17]))
        first = data.draw(st.integers(0, 39))
        picture = data.draw(st.sampled_from([*self.rows, [], [], [UNKNOWN_TOKEN]]))[first:]
        tokens = base[:keep] + picture + more
        self.seen.append(tokens)
        return tokens

    @rule(target=contexts, data=st.data(), chunk=st.sampled_from([7, 16, 100]))
    def compute(self, data, chunk):
        return fill(self.pool.context(), self._tokens(data), chunk)

    @rule(context=contexts, tenant=st.sampled_from(TENANTS), shared=st.sampled_from([0, 0, 16, 40, 1000]))
    def insert(self, context, tenant, shared):
        numbers = [context.page_numbers(g) for g in range(len(self.pool.layout.groups))]
        lengths = sorted({*context.checkpoints, len(context)} - {0})
        states = {
            at: {g: numbers[g][i] for g in self.flat.recurrent}
            for i, at in enumerate(lengths)
            if self.flat.recurrent
        }
        kept = self.flat.insert(context.tokens, numbers, context.first_positions(), tenant, shared, states)
        assert self.tree.insert(context, tenant=tenant, shared=shared) == kept

    @rule(context=contexts)
    def checkpoint(self, context):
        context.checkpoint()

    @rule(target=contexts, data=st.data(), tenant=st.sampled_from(TENANTS))
    def match(self, data, tenant):
        tokens = self._tokens(data)
        expected = self.flat.match(tokens, tenant)
        context = self.tree.match(tokens, tenant=tenant)
        assert len(context) == expected
        check(context, tokens[:expected])
        return context

    @rule(context=contexts, data=st.data())
    def go_on(self, context, data):
        tokens = data.draw(st.lists(st.integers(1, 2), max_size=20))
        before = context.tokens
        fill(context, tokens)
        check(context, before + tokens)

    @rule(data=st.data(), tenant=st.sampled_from(TENANTS))
    def pin(self, data, tenant):
        tokens = self._tokens(data)
        path, _ = self.flat.walk(self.flat.owners.get(tenant, 0), tuple(tokens))
        pin = self.tree.pin(tokens, tenant=tenant)
        if path:
            path[-1].pins += 1
            self.pins.append((pin, path[-1].chain))
        else:
            assert pin.tokens == 0

    @rule(where=st.floats(0, 1))
    def unpin(self, where):
        if self.pins:
            pin, _ = self.pins.pop(int(where * (len(self.pins) - 1)))
            before = {entry[0]: entry[1] for entry in self._dump()}
            pin.release()
            after = {entry[0]: entry[1] for entry in self._dump()}
            (chain,) = [c for c in before if before[c] != after[c]]
            self.flat.find(chain).pins -= 1

    def _dump(self):
        chain, out = [], []
        for begin, owner, pins, tokens, pages, states in self.tree.entries_in(Identity().digest):
            chain[begin // P :] = [(owner, tuple(tokens))]
            out.append((tuple(chain), pins, pages, states))
        return sorted(out)

    @invariant()
    def the_tree_is_the_list(self):
        if not hasattr(self, "pool"):
            return
        self.pool.audit()
        assert self.tree.used_bytes == self.flat.used <= self.budget
        assert self._dump() == self.flat.dump()
        for tenant in TENANTS:
            for tokens in self.seen[-3:]:
                miss = self.tree.explain_miss(tokens, tenant=tenant)
                assert (miss.equal, miss.usable) == self.flat.trace(tokens, tenant)
                assert self.tree.known(tokens, tenant=tenant) == (miss.equal, miss.usable)

    def teardown(self):
        if hasattr(self, "pool"):
            self.tree.clear()
            self.pool.audit()
            assert self.tree.used_bytes == 0


TestTreeLockstep = TreeLockstep.TestCase
TestTreeLockstep.settings = settings(max_examples=EXAMPLES, stateful_step_count=STEPS, deadline=None)


def make(pages=64, budget=None, layout=LAYOUTS[0]):
    pool = Pool(layout, P, pages=pages)
    return pool, PrefixTree(pool, pool.budget_bytes if budget is None else budget * sum(pool.page_bytes))


def test_a_match_shares_the_pages_it_finds():
    pool, tree = make()
    context = fill(pool.context(), range(50))
    assert tree.insert(context) == 50
    live = pool.live_pages
    found = tree.match([*range(40), 99])
    check(found, range(40))
    assert pool.live_pages == live
    fill(found, [5, 6])
    check(found, [*range(40), 5, 6])
    check(context, range(50))
    check(tree.match(range(60)), range(50))


def test_a_pool_out_of_pages_takes_them_from_the_tree():
    pool, tree = make(pages=8)
    with fill(pool.context(), range(64)) as context:
        tree.insert(context)
    assert pool.live_pages == (4,)
    pinned = tree.pin(range(16))
    big = fill(pool.context(), range(1000, 1000 + 7 * P))
    assert tree.explain_miss(range(64)).equal == 16
    with pytest.raises(OutOfPagesError):
        pool.context().reserve(1)
    pinned.release()
    fill(pool.context(), range(P))
    assert tree.used_bytes == 0
    check(big, range(1000, 1000 + 7 * P))
    pool.audit()


def test_pages_that_a_context_uses_too_are_not_given_up_for_nothing():
    pool, tree = make(pages=8)
    context = fill(pool.context(), range(64))
    tree.insert(context)
    with pytest.raises(OutOfPagesError):
        pool.context().reserve(5 * P)
    assert tree.explain_miss(range(64)).equal == 64
    assert tree.counters()["evicted_pages"] == 0


def test_what_is_dear_to_recompute_stays_longer():
    pool = Pool(LAYOUTS[0], P, pages=64)
    tree = PrefixTree(pool, 6 * sum(pool.page_bytes), per_token=1.0, per_token_and_position=1.0)
    tree.insert(fill(pool.context(), range(4 * P)))  # the late pages cost most
    tree.insert(fill(pool.context(), range(100, 100 + P)))
    tree.insert(fill(pool.context(), range(200, 200 + P)))
    tree.insert(fill(pool.context(), range(300, 300 + P)))
    assert tree.explain_miss(range(4 * P)).equal == 4 * P
    assert tree.explain_miss(range(100, 100 + P)).equal == 0
    assert tree.explain_miss(range(300, 300 + P)).equal == P


def test_tenants_share_a_system_prompt_and_nothing_else():
    pool, tree = make()
    system = list(range(2 * P))
    tree.insert(fill(pool.context(), [*system, 7, 8, 9]), tenant="alice", shared=len(system))
    assert len(tree.match([*system, 7, 8, 9], tenant="alice")) == 2 * P + 3
    for stranger in ("bob", ""):
        miss = tree.explain_miss([*system, 7, 8, 9], tenant=stranger)
        assert (miss.equal, miss.stored) == (2 * P, None), "what alice said must not show"
        assert len(tree.match([*system, 7, 8, 9], tenant=stranger)) == 2 * P
    tree.insert(fill(pool.context(), range(500, 540)), tenant="alice")
    assert len(tree.match(range(500, 540), tenant="bob")) == 0


def test_where_a_tenant_and_everybody_have_as_much_everybodys_page_is_used():
    """Tenants share the page, and the order of insertion does not matter."""
    for order in ((0, 1), (1, 0)):
        pool, tree = make()
        pages = {}
        for turn in order:
            context = fill(pool.context(), [*range(10), 70 + turn, *range(11, P)])
            tree.insert(context, tenant="alice" if turn else "", shared=0)
            pages[turn] = context.page_numbers(0)
        found = tree.match([*range(10), 99], tenant="alice")
        assert len(found) == 10
        assert found.page_numbers(0) == pages[0]


def test_a_miss_is_explained_by_the_token_or_the_field_that_differs():
    pool, tree = make()
    ours = Identity(weights=b"a", rope_base=1e4)
    tree.insert(fill(pool.context(), range(40)), identity=ours)
    miss = tree.explain_miss([*range(20), 777, 21], identity=ours)
    assert (miss.equal, miss.usable, miss.wanted, miss.stored) == (20, 20, 777, 20)
    assert str(miss) == "20 of 22 tokens can be used; token 20 is 777, 20 is stored there"
    miss = tree.explain_miss(range(40), identity=Identity(weights=b"a", rope_base=2e4))
    assert (miss.usable, miss.elsewhere, miss.field) == (0, 40, "rope_base")
    assert str(miss).endswith("40 are known for another rope_base")
    miss = tree.explain_miss(range(40), identity=ours)
    assert (miss.usable, miss.wanted, miss.field) == (40, None, None)


def test_a_match_needs_the_pages_inside_the_window():
    pool, tree = make(layout=LAYOUTS[1])
    whole = fill(pool.context(), range(100))  # one step: only the last window is left
    tree.insert(whole)
    assert len(tree.match(range(100))) == 100
    assert len(tree.match([*range(60), 7])) == 0
    assert "pages inside the window of the later ones are gone" in str(tree.explain_miss([*range(60), 7]))
    for n in range(20, 120, 20):  # as an engine does that keeps every chunk of a prefill
        tree.insert(fill(pool.context(), range(n)))
    found = tree.match([*range(60), 7])
    check(found, range(60))
    fill(found, [1, 2, 3])


def test_a_context_of_another_pool_is_refused():
    _, tree = make()
    pool, _ = make()
    with pytest.raises(ValueError, match="the context's pages are in another pool"):
        tree.insert(fill(pool.context(), range(3)))


def test_a_look_up_does_not_get_slower_with_many_entries():
    pool = Pool(Layout.uniform(1, 1, 1), P, pages=60_000)
    tree = PrefixTree(pool, pool.budget_bytes)
    rng = np.random.default_rng(0)

    def look_up(tokens):
        best = 1.0
        for _ in range(30):
            start = time.perf_counter()
            tree.match(tokens).close()
            best = min(best, time.perf_counter() - start)
        return best

    target = np.arange(20 * P, dtype=np.int32)
    with pool.context() as context, context.reserve(len(target)) as lease:
        lease.commit(target)
        tree.insert(context)
    alone = look_up(target)
    for _ in range(2000):
        tokens = np.concatenate(
            [target[: rng.integers(0, 20 * P)], rng.integers(0, 1000, 200, dtype=np.int32)]
        )
        with pool.context() as context, context.reserve(len(tokens)) as lease:
            lease.commit(tokens)
            tree.insert(context)
    assert tree.counters()["nodes"] > 20_000
    assert look_up(target) < 5 * alone + 1e-4


@pytest.mark.slow
def test_a_million_entries_cost_a_look_up_nothing():
    pool = Pool(Layout.uniform(1, 1, 1), P, pages=1_100_000)
    tree = PrefixTree(pool, pool.budget_bytes)
    target = np.arange(64 * P, dtype=np.int32)
    with pool.context() as context, context.reserve(len(target)) as lease:
        lease.commit(target)
        tree.insert(context)
    best = {}
    rng = np.random.default_rng(0)
    for entries in (64, 1_000_000):
        while tree.counters()["nodes"] < entries:
            tokens = np.concatenate(
                [target[: P * rng.integers(0, 64)], rng.integers(0, 1 << 20, 4000 * P, dtype=np.int32)]
            )
            with pool.context() as context, context.reserve(len(tokens)) as lease:
                lease.commit(tokens)
                tree.insert(context)
        times = []
        for _ in range(50):
            start = time.perf_counter()
            tree.match(target).close()
            times.append(time.perf_counter() - start)
        best[entries] = min(times)
    assert best[1_000_000] < 5 * best[64] + 1e-4


def test_a_path_longer_than_the_budget_is_kept_from_its_beginning():
    for budget in (0, 1, 2, 3):
        pool, tree = make(budget=budget)
        for start in (0, 500):
            context = fill(pool.context(), range(start, start + 100))
            assert tree.insert(context) == budget * P
            assert tree.explain_miss(range(start, start + 100)).equal == budget * P
            pool.audit()


def test_what_was_dear_goes_too_when_it_is_not_used_for_long():
    pool = Pool(LAYOUTS[0], P, pages=64)
    tree = PrefixTree(pool, 4 * sum(pool.page_bytes), per_token=1.0, per_token_and_position=0.5)
    tree.insert(fill(pool.context(), range(2 * P)))
    for start in range(1000, 9000, 100):
        with fill(pool.context(), range(start, start + P)) as context:
            tree.insert(context)
        if tree.explain_miss(range(2 * P)).equal < 2 * P:
            break
    assert 1500 < start < 8900, "not at once, and not never"


def test_a_page_that_was_restored_in_part_is_not_offered_to_others(tmp_path):
    layout = Layout([Group.sliding(20, [Layer(1, 1, 3, 3)], "f32")])
    fill(Pool(layout, P, pages=64).context(), range(50)).save(tmp_path / "s")  # positions 31 to 49
    pool = Pool(layout, P, pages=64)
    tree = PrefixTree(pool, pool.budget_bytes)
    tree.insert(pool.restore(tmp_path / "s"))
    assert tree.explain_miss(range(40)).usable == 0
    assert [entry[4] for entry in tree.entries_in(Identity().digest)][1] == [-1]
    pool.audit()


def test_a_pin_holds_when_its_page_becomes_everybodys():
    pool, tree = make(budget=3)
    with fill(pool.context(), range(P)) as context:
        tree.insert(context, tenant="alice")
        pin = tree.pin(range(P), tenant="alice")
        tree.insert(context, shared=P)
    assert tree.counters()["nodes"] == 1
    for start in range(1000, 1300, 100):
        with fill(pool.context(), range(start, start + 3 * P)) as context:
            tree.insert(context)
    assert tree.explain_miss(range(P), tenant="bob").equal == P
    pin.release()
    pool.audit()


def remembered(tree):
    counts = tree.counters()
    return counts["identities"], counts["tenants"], len(tree.spaces()), len(tree._identities)


def test_identities_and_tenants_whose_entries_are_gone_are_forgotten():
    pool, tree = make(pages=8)
    most = 0
    with fill(pool.context(), range(P)) as context:
        for i in range(20_000):
            own = fill(pool.context(), [i, i + 1]) if i % 100 == 0 else context.fork()
            with own:
                tree.insert(own, identity=Identity(weights=i), tenant=f"tenant {i}")
            if i % 10 == 9:
                tree.clear() if i % 20 == 9 else tree.reclaim(pool.budget_bytes)
            most = max(most, *remembered(tree))
            if i % 1000 == 999:
                pool.audit()
    tree.reclaim(pool.budget_bytes)
    assert most < 100
    assert remembered(tree) == (0, 0, 0, 0)
    assert tree.counters()["nodes"] == 0
    pool.audit()


def test_a_tree_that_makes_room_for_itself_forgets_identities_and_tenants():
    pool, tree = make(pages=8, budget=2)
    for i in range(1000):
        with fill(pool.context(), range(i, i + P)) as context:
            tree.insert(context, identity=Identity(weights=i), tenant=f"tenant {i}")
        identities, tenants, spaces, known = remembered(tree)
        assert identities == tenants == spaces == min(i + 1, 2)
        assert known < 100
    check(
        tree.match(range(999, 999 + P), identity=Identity(weights=999), tenant="tenant 999"),
        range(999, 999 + P),
    )
    assert (
        tree.explain_miss(range(999, 999 + P), identity=Identity(weights=1), tenant="tenant 999").field
        == "weights"
    )
    pool.audit()


def test_an_insertion_that_finds_no_room_leaves_nothing():
    pool, tree = make(pages=8, budget=0)
    with fill(pool.context(), range(P)) as context:
        assert tree.insert(context, tenant="alice") == 0
    assert tree.insert(pool.context(), identity=Identity(weights=1), tenant="bob") == 0
    assert remembered(tree)[:3] == (0, 0, 0)
    pool.audit()


def test_a_pinned_identity_and_tenant_stay():
    pool, tree = make(pages=8)
    with fill(pool.context(), range(P)) as context:
        tree.insert(context, tenant="alice")
    pin = tree.pin(range(P), tenant="alice")
    tree.reclaim(pool.budget_bytes)
    assert remembered(tree) == (1, 1, 1, 1)
    check(tree.match(range(P), tenant="alice"), range(P))
    pin.release()
    tree.reclaim(pool.budget_bytes)
    assert remembered(tree) == (0, 0, 0, 0)


def test_a_tenant_that_comes_back_finds_nothing_of_others():
    pool, tree = make(pages=32)
    for _ in range(3):
        for tenant in ("alice", "bob"):
            with fill(pool.context(), range(P)) as context:
                tree.insert(context, tenant=tenant)
            assert len(tree.match(range(P), tenant="alice")) == P
            assert len(tree.match(range(P), tenant="carol")) == 0
        assert len(tree.match(range(P), tenant="bob")) == P
        tree.clear()
        for tenant in ("alice", "bob"):
            assert len(tree.match(range(P), tenant=tenant)) == 0
        pool.audit()
