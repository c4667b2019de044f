"""The radix tree of token sequences against a list that is searched from end to end."""

import time

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from llamay_kv.adapters._token_trie import TokenTrie

SEQUENCE = st.lists(st.integers(0, 2), min_size=1, max_size=8)


def common(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["insert", "insert", "remove", "find"]), SEQUENCE), max_size=40))
def test_it_answers_as_a_list_does(operations):
    trie, flat = TokenTrie(), {}
    for i, (operation, tokens) in enumerate(operations):
        ids, key = np.array(tokens, np.int32), tuple(tokens)
        if operation == "insert":
            assert trie.insert(ids, (key, i)) == flat.get(key)
            flat[key] = (key, i)
        elif operation == "remove":
            assert trie.remove(ids) == flat.pop(key, None)
        best = max((common(tokens, other) for other in flat), default=0)
        found = trie.longest_common(ids)
        assert (found[0] if found else 0) == best
        if found:
            assert flat[found[1][0]] == found[1]
            assert common(tokens, found[1][0]) == best
        whole = max((o for o in flat if tuple(tokens[: len(o)]) == o), key=len, default=None)
        assert trie.longest_whole(ids) == ((len(whole), flat[whole]) if whole else None)
        assert trie.n_values == len(flat)
        assert sorted(trie.values()) == sorted(flat.values())


def test_finding_takes_no_longer_among_ten_thousand_sequences():
    rng = np.random.default_rng(0)
    target = np.arange(2000, dtype=np.int32)

    def seconds(trie):
        times = []
        for _ in range(30):
            start = time.perf_counter()
            for _ in range(20):
                trie.longest_common(target)
            times.append(time.perf_counter() - start)
        return min(times)

    small, large = TokenTrie(), TokenTrie()
    for trie, n in ((small, 10), (large, 10_000)):
        trie.insert(target, "target")
        for _ in range(n):
            trie.insert(rng.integers(5000, 1 << 30, 50).astype(np.int32), "other")
    assert seconds(large) < 5 * seconds(small)
