"""llama-cpp-python with our caches: the longest prefix, exact bytes, nothing stale, nothing damaged.

Where llama-cpp-python is installed its own classes are used, and with the test data real models run; elsewhere a
stand-in has the few names that a cache needs. A package of the native library alone is not enough:
`pip install llama-cpp-python`, or its Python part beside a build of the library that LLAMA_CPP_LIB_PATH names.
"""

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

try:
    import llama_cpp

    REAL = True
except ImportError:
    from kv_llama_stub import install

    install()
    REAL = False

from llama_cpp.llama import LlamaState

from llamay_kv import Identity, Key
from llamay_kv.adapters import llama_cpp as adapter
from llamay_kv.adapters.llama_cpp import LlamaDiskCache, LlamaRAMCache, LlamaTrieCache

DATA = Path(os.environ["LLAMAY_TEST_DATA"])
VOCABULARY = 5


def state(tokens, *, size=100, n_ctx=32, stale=(), seed=7):
    rng = np.random.default_rng(len(tokens))
    ids = np.zeros(n_ctx, np.intc)
    ids[: len(tokens)] = tokens
    ids[len(tokens) : len(tokens) + len(stale)] = stale
    raw = rng.integers(0, 256, size, dtype=np.uint8).tobytes()
    scores = rng.standard_normal((len(tokens), VOCABULARY), np.float32)
    return LlamaState(
        input_ids=ids, scores=scores, n_tokens=len(tokens), llama_state=raw, llama_state_size=size, seed=seed
    )


def same(a, b):
    assert (a.n_tokens, a.llama_state, a.llama_state_size, a.seed) == (
        b.n_tokens,
        b.llama_state,
        b.llama_state_size,
        b.seed,
    )
    np.testing.assert_array_equal(a.input_ids[: a.n_tokens], b.input_ids[: b.n_tokens])
    np.testing.assert_array_equal(a.scores, b.scores)
    assert a.input_ids.shape == b.input_ids.shape
    assert a.input_ids.dtype == b.input_ids.dtype


def bytes_of(s):
    return 4 * s.n_tokens + s.input_ids.nbytes + s.scores.nbytes + len(s.llama_state)


@pytest.fixture(params=["ram", "trie", "disk"])
def make(request, tmp_path):
    def build(capacity=1 << 20, **options):
        if request.param == "disk":
            options = {"min_free_bytes": 0, "key": Key("k", b"k" * 32), **options}
            return LlamaDiskCache(str(tmp_path / "states"), capacity, **options)
        return {"ram": LlamaRAMCache, "trie": LlamaTrieCache}[request.param](capacity, **options)

    return build


def test_the_caller_may_ask_whether_there_is_a_cache(make):
    assert bool(make()), "llama-cpp-python tests the cache itself: an empty one must not be false"


def test_the_longest_common_prefix_is_found(make):
    cache = make()
    with pytest.raises(KeyError):
        cache[[1, 2]]
    assert [1, 2] not in cache
    for tokens in ([1, 2, 3], [1, 2, 3, 4, 5], [9]):
        cache[tokens] = state(tokens)
    same(cache[[1, 2, 3, 4, 6]], state([1, 2, 3, 4, 5]))
    same(cache[(9, 9)], state([9]))
    assert [1, 7] in cache
    assert [7] not in cache
    for _ in range(3):
        same(cache[[1, 2, 3, 4, 5]], state([1, 2, 3, 4, 5]))  # a state that was given out is still there


def test_a_state_counts_for_the_tokens_that_it_holds_and_no_stale_ones(make):
    cache = make()
    cache[[1, 2, 3]] = state([1, 2], stale=[8, 9])  # the last token of an answer is not in the state yet
    found = cache[[1, 2, 8, 9]]
    assert found.n_tokens == 2
    assert set(found.input_ids[2:].tolist()) == {-1}
    cache[[4]] = state([])
    assert [4] not in cache


@settings(max_examples=100, deadline=None)
@given(
    operations=st.lists(
        st.tuples(st.lists(st.integers(0, 1), min_size=1, max_size=4), st.integers(0, 300)), max_size=30
    ),
    capacity=st.integers(0, 2000),
)
def test_bytes_are_exact_after_every_replacement_and_the_longest_unused_go_first(operations, capacity):
    cache, model = LlamaTrieCache(capacity), {}
    for tokens, size in operations:
        key, new = tuple(tokens), state(tokens, size=size)
        cache[tokens] = new
        model.pop(key, None)
        if bytes_of(new) <= capacity:
            model[key] = bytes_of(new)
        while sum(model.values()) > capacity:
            model.pop(next(iter(model)))
        assert cache.cache_size == sum(model.values()) <= capacity
        assert sorted(tuple(e.tokens.tolist()) for e in cache._trie.values()) == sorted(model)


def test_a_disk_cache_keeps_its_budget_and_replaces(tmp_path):
    cache = LlamaDiskCache(tmp_path, 3000, min_free_bytes=0)
    for i in range(8):
        cache[[i, 1]] = state([i, 1], size=500)
        assert cache.cache_size <= 3000
    assert [7, 1] in cache
    assert [0, 1] not in cache
    for size in (100, 400, 200):
        cache[[7, 1]] = state([7, 1], size=size)
        same(cache[[7, 1]], state([7, 1], size=size))
    files = sum(f.stat().st_size for f in tmp_path.glob("*.kvc"))
    assert cache.cache_size == files


def test_a_model_that_cannot_take_back_tokens_gets_whole_prefixes_only(make):
    cache = make(whole_prefix=True)
    for tokens in ([1, 2, 3], [1, 2, 3, 4, 5]):
        cache[tokens] = state(tokens)
    same(cache[[1, 2, 3, 4, 6]], state([1, 2, 3]))
    same(cache[[1, 2, 3, 4, 5, 6]], state([1, 2, 3, 4, 5]))
    same(cache[[1, 2, 3, 4, 5]], state([1, 2, 3]))  # one token must be left to compute
    assert [1, 2, 3] not in cache
    assert [1, 2] not in cache


def test_scores_need_not_be_kept(make):
    cache, plain = make(keep_scores=False), make()
    cache[[1, 2]] = state([1, 2])
    assert cache[[1, 2]].scores.shape == (2, VOCABULARY)
    assert not cache[[1, 2]].scores.any()
    if isinstance(plain, LlamaTrieCache):
        plain[[1, 2]] = state([1, 2])
        assert plain.cache_size - cache.cache_size == 2 * VOCABULARY * 4


def disk(tmp_path, **options):
    return LlamaDiskCache(tmp_path, 1 << 20, **{"min_free_bytes": 0, "key": Key("k", b"k" * 32), **options})


def test_states_outlive_the_process_and_belong_to_one_identity(tmp_path):
    us = Identity(weights=b"us")
    disk(tmp_path, identity=us)[[1, 2, 3]] = state([1, 2, 3])
    same(disk(tmp_path, identity=us)[[1, 2, 4]], state([1, 2, 3]))
    for other in ({"identity": Identity(weights=b"them")}, {"identity": us, "key": Key("k", b"x" * 32)}):
        assert [1, 2, 3] not in disk(tmp_path, **other)
    same(disk(tmp_path, identity=us)[[1, 2, 4]], state([1, 2, 3]))


def test_every_single_byte_corruption_and_every_truncation_is_a_miss(tmp_path):
    disk(tmp_path)[[1, 2]] = state([1, 2], size=20)
    good = {path: path.read_bytes() for path in tmp_path.glob("*.kvc")}
    assert len(good) == 2
    rng = np.random.default_rng(0)
    for path, data in good.items():
        for i in range(len(data)):
            bad = bytearray(data)
            bad[i] ^= int(rng.integers(1, 256))
            for broken in (bad, data[:i]):
                path.write_bytes(broken)
                with pytest.raises(KeyError):
                    disk(tmp_path)[[1, 2]]
                for other, whole in good.items():
                    other.write_bytes(whole)
    same(disk(tmp_path)[[1, 2]], state([1, 2], size=20))


def test_files_cannot_take_each_others_place(tmp_path):
    cache = disk(tmp_path)
    cache[[1]] = state([1])
    cache[[2]] = state([2])
    files = sorted(tmp_path.glob("*.kvc"))
    data = [f.read_bytes() for f in files]
    for path, content in zip(files, data[1:] + data[:1], strict=True):
        path.write_bytes(content)
    assert [1] not in disk(tmp_path)
    assert [2] not in disk(tmp_path)


# With real models


def load(name, **options):
    if not REAL:
        pytest.skip("needs llama-cpp-python")
    name, _, swa = name.partition(":")
    if swa:
        options["swa_full"] = False
    if not (DATA / "models" / name).exists():
        pytest.skip(f"needs {name} of the test data")
    return llama_cpp.Llama(
        str(DATA / "models" / name), n_ctx=128, n_threads=1, verbose=False, seed=1, **options
    )


def computed(llama, monkeypatch):
    """Count the tokens that are computed."""
    done, evaluate = [], llama.eval
    monkeypatch.setattr(llama, "eval", lambda tokens: (done.append(len(tokens)), evaluate(tokens))[1])
    return done


MODELS = {
    "stories260K.gguf": False,
    "qwen3.gguf": False,
    "gemma3.gguf": False,  # with sliding windows, but llama-cpp-python keeps all positions unless told otherwise
    "gemma3.gguf:swa": True,
    "mamba.gguf": True,
    "mamba2.gguf": True,
    "lfm2.gguf": True,
    "falconh1.gguf": True,
    "tiny-rwkv-7v0-834K-F32.gguf": True,
}


def answer(llama, prompt):
    """Return the text, and all tokens that the model has then computed."""
    text = llama.create_completion(list(prompt), max_tokens=5, temperature=0)["choices"][0]["text"]
    return text, llama._input_ids.tolist()


@pytest.mark.parametrize("kind", ["ram", "disk"])
@pytest.mark.parametrize("name", MODELS)
def test_a_real_model_goes_on_as_without_a_cache_and_computes_less(name, kind, tmp_path, monkeypatch):
    begin, other = list(range(1, 41)), [9, 8, 7]
    llama = load(name)
    assert adapter.needs_whole_prefix(llama) == MODELS[name]
    plain, held = answer(llama, begin)
    again = [*held, 5, 6]
    llama.close()
    llama = load(name)
    plain_again, _ = answer(llama, again)
    llama.close()

    llama = load(name)
    build = LlamaTrieCache.for_model if kind == "ram" else lambda m: LlamaDiskCache.for_model(m, tmp_path)
    llama.set_cache(build(llama))
    done = computed(llama, monkeypatch)
    assert answer(llama, begin)[0] == plain
    answer(llama, other)
    done.clear()
    assert answer(llama, again)[0] == plain_again
    assert sum(done) < 20, "nothing was taken from the cache"
    assert answer(llama, begin)[0] == plain, "whatever is taken back is right"
    llama.close()
