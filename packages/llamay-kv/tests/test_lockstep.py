"""Any history leaves every context equal to one that owns a full copy, and every count exact."""

import os

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule
from kv_precision import ROUND_TRIP
from kv_reference import ReferenceContext

from llamay_kv import Context, Group, Layer, Layout, OutOfPages, Pool

LAYOUTS = {
    "full": lambda p: Layout([Group.full([Layer(0, 2, 4, 3), Layer(1, 1, 5, 8)], p)]),
    "window": lambda p: Layout([Group.sliding(20, [Layer(0, 1, 4, 4)], p)]),
    "mixed": lambda p: Layout(
        [
            Group.full([Layer(1, 1, 4, 4)], p),
            Group.sliding(17, [Layer(0, 2, 3, 3), Layer(3, 1, 2, 2)], p),
            Group.sliding(1, [Layer(2, 1, 1, 1)], p),
        ]
    ),
}


# More of both for the long run that docs/state.md records.
EXAMPLES, STEPS = (int(os.environ.get(f"LLAMAY_KV_{n}", d)) for n, d in (("EXAMPLES", 150), ("STEPS", 40)))


class Lockstep(RuleBasedStateMachine):
    contexts = Bundle("contexts")

    @initialize(
        target=contexts,
        mix=st.sampled_from(sorted(LAYOUTS)),
        precision=st.sampled_from(sorted(ROUND_TRIP)),
        page_tokens=st.sampled_from([16, 32]),
        pages=st.integers(1, 24),
    )
    def first(self, mix, precision, page_tokens, pages):
        self.layout = LAYOUTS[mix](precision)
        self.round_trip = ROUND_TRIP[precision]
        self.pool = Pool(self.layout, page_tokens, pages=pages)
        self.rng = np.random.default_rng(0)
        self.pairs: dict[Context, ReferenceContext] = {}
        self.frozen: list = []
        return self._track(self.pool.context(), ReferenceContext(self.layout))

    def _track(self, context, reference):
        self.pairs[context] = reference
        return context

    def _rows(self, n):
        rows = {}
        for group in self.layout.groups:
            for layer in group.layers:
                k = self.rng.standard_normal((n, layer.kv_heads, layer.k_dim)).astype(np.float32)
                v = self.rng.standard_normal((n, layer.kv_heads, layer.v_dim)).astype(np.float32)
                rows[layer.index] = (k, v)
        return rows

    def _stored(self, rows):
        return {
            i: tuple(f(a) for f, a in zip(self.round_trip, pair, strict=True)) for i, pair in rows.items()
        }

    @rule(target=contexts, context=contexts)
    def fork(self, context):
        if context.closed:
            return self._track(self.pool.context(), ReferenceContext(self.layout))
        before = self.pool.live_pages
        fork = context.fork()
        assert self.pool.live_pages == before, "a fork took a page"
        return self._track(fork, self.pairs[context].fork())

    @rule(
        target=contexts,
        context=contexts,
        reserve=st.integers(0, 40),
        keep=st.integers(0, 40),
        fork_midway=st.booleans(),
        write_first=st.booleans(),
        fail=st.booleans(),
    )
    def append(self, context, reserve, keep, fork_midway, write_first, fail):
        if context.closed:
            return context
        reference = self.pairs[context]
        before = self.pool.used_bytes
        try:
            lease = context.reserve(reserve)
        except OutOfPages:
            assert self.pool.used_bytes == before
            return context
        keep = min(keep, reserve)
        rows = self._rows(reserve)
        fork = context
        with lease:
            view = lease.__llamay_kv_view__()
            for step in (write_first, not write_first):
                if step:
                    for layer, (k, v) in rows.items():
                        lease.write(layer, k, v)
                elif fork_midway:
                    fork = self._track(context.fork(), reference.fork())
            if not fail:
                lease.commit(list(range(keep)))
                reference.append(list(range(keep)), self._stored(rows), self.pool.page_tokens)
        del view
        return fork

    @rule(context=contexts, where=st.floats(0, 1))
    def truncate(self, context, where):
        if context.closed:
            return
        reference, n = self.pairs[context], int(where * len(context))
        if reference.may_truncate(n):
            context.truncate(n)
            reference.truncate(n, self.pool.page_tokens)
        else:
            with pytest.raises(ValueError, match="behind the window of group"):
                context.truncate(n)

    @rule(context=contexts, where=st.floats(0, 1), n=st.integers(1, 20), pick=st.integers(0, 3))
    def overwrite(self, context, where, n, pick):
        if context.closed or not len(context):
            return
        reference = self.pairs[context]
        layers = [layer.index for group in self.layout.groups for layer in group.layers]
        layer = layers[pick % len(layers)]
        first = reference.begin(layer)
        begin = first + int(where * (len(context) - first))
        n = min(n, len(context) - begin)
        k, v = (a[:n] for a in self._rows(n)[layer])
        if n == 0:
            return
        try:
            context.overwrite(layer, begin, k, v)
        except OutOfPages:
            return
        reference.overwrite(layer, begin, *self._stored({layer: (k, v)})[layer])

    @rule(context=contexts)
    def hold_a_page(self, context):
        """A view of a page stays as it is, whatever happens to the context."""
        if context.closed or not len(context):
            return
        layer = self.layout.groups[0].layers[0].index
        index = self.pairs[context].begin(layer) // self.pool.page_tokens
        if index * self.pool.page_tokens < len(context):
            k, v = context.page(layer, index)
            self.frozen.append((k, v, k.copy(), v.copy()))

    @rule()
    def let_go_of_pages(self):
        self.frozen.clear()

    @rule(context=contexts, data=st.binary(max_size=4))
    def set_side(self, context, data):
        if not context.closed:
            context.side = self.pairs[context].side = {"sampler": (3, data)}

    @rule(context=contexts)
    def close(self, context):
        context.close()
        self.pairs[context] = ReferenceContext(self.layout)

    @invariant()
    def everything_is_as_it_should_be(self):
        if not hasattr(self, "pool"):
            return
        self.pool.audit()
        assert self.pool.used_bytes <= self.pool.peak_bytes <= self.pool.budget_bytes
        for context, reference in self.pairs.items():
            assert len(context) == len(reference.tokens)
            if context.closed:
                continue
            assert context.tokens == reference.tokens
            assert context.side == reference.side
            for g, group in enumerate(self.layout.groups):
                numbers = context.page_numbers(g)
                assert len(numbers) == -(-len(context) // self.pool.page_tokens)
                dropped = reference.dropped.get(g, 0) // self.pool.page_tokens
                assert [n < 0 for n in numbers] == [i < dropped for i in range(len(numbers))]
                for layer in group.layers:
                    k, v = reference.read(layer.index)
                    got_k, got_v = context.read(layer.index, reference.begin(layer.index))
                    if len(k):
                        np.testing.assert_array_equal(got_k, k)
                        np.testing.assert_array_equal(got_v, v)
                    assert len(got_k) == len(k)
        for k, v, k_then, v_then in self.frozen:
            np.testing.assert_array_equal(k, k_then)
            np.testing.assert_array_equal(v, v_then)

    def teardown(self):
        if not hasattr(self, "pool"):
            return
        self.frozen.clear()
        for context in self.pairs:
            context.close()
        self.pool.audit()
        assert self.pool.used_bytes == 0


TestLockstep = Lockstep.TestCase
TestLockstep.settings = settings(max_examples=EXAMPLES, stateful_step_count=STEPS, deadline=None)
