"""A transformers model computes the same with our pages as with its own cache, and forks are exact."""

import pytest

from llamay_kv import Layout, Pool, PrefixTree

torch = pytest.importorskip("torch", reason="needs the extra transformers")
transformers = pytest.importorskip("transformers", reason="needs the extra transformers")

from llamay_kv.adapters.transformers import UNKNOWN, PagedCache, layout_of, watch  # noqa: E402


@pytest.fixture(scope="module", params=["float32", "bfloat16", "float16"])
def model(request):
    config = transformers.LlamaConfig(
        vocab_size=97,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(config).eval().to(getattr(torch, request.param))


@pytest.fixture
def pool(model):
    return Pool(layout_of(model), 16, pages=128)


def generate(model, ids, cache, **options):
    options = {"max_new_tokens": 12, "do_sample": False, "pad_token_id": 0, **options}
    with watch(model):
        return model.generate(ids, cache=cache, **options)


def ids(n, seed=0, rows=1):
    return torch.randint(1, 97, (rows, n), generator=torch.Generator().manual_seed(seed))


def logits(model, tokens, cache):
    with torch.no_grad(), watch(model):
        return model(tokens, cache=cache).logits


def test_it_computes_what_the_own_cache_computes(model, pool):
    own, ours = transformers.DynamicCache(), PagedCache(pool.context())
    for step in (ids(37), ids(1, 1), ids(5, 2), ids(1, 3)):
        assert torch.equal(logits(model, step, own), logits(model, step, ours))
    assert ours.get_seq_length() == 44
    assert ours.contexts[0].tokens == torch.cat([ids(37), ids(1, 1), ids(5, 2), ids(1, 3)], 1)[0].tolist()
    pool.audit()


def test_generate_gives_the_same_tokens_greedy_and_by_beams(model, pool):
    for options in ({}, {"num_beams": 3}):
        expected = generate(model, ids(20), transformers.DynamicCache(), **options)
        assert torch.equal(generate(model, ids(20), PagedCache(pool.context()), **options), expected)


def test_branches_of_a_fork_are_exact_and_share_pages(model, pool):
    cache = PagedCache(pool.context())
    logits(model, ids(40), cache)
    live = pool.live_pages
    branches = [cache.fork() for _ in range(4)]
    assert pool.live_pages == live
    for seed, branch in enumerate(branches):
        alone = transformers.DynamicCache()
        logits(model, ids(40), alone)
        for step in (ids(3, 10 + seed), ids(1, 20 + seed)):
            assert torch.equal(logits(model, step, branch), logits(model, step, alone))


def test_a_saved_state_goes_on_exactly(model, pool, tmp_path):
    cache = PagedCache(pool.context())
    logits(model, ids(40), cache)
    cache.contexts[0].save(tmp_path / "s")
    expected = logits(model, ids(4, 1), cache)
    restored = PagedCache(Pool(layout_of(model), 64, pages=8).restore(tmp_path / "s"))
    assert torch.equal(logits(model, ids(4, 1), restored), expected)


def test_a_prefix_is_found_and_used(model, pool):
    tree = PrefixTree(pool, pool.budget_bytes)
    first = PagedCache(pool.context())
    expected = generate(model, ids(30), first)
    tree.insert(first.contexts[0])
    again = PagedCache(tree.match(ids(30)[0, :-1].tolist()))
    assert again.get_seq_length() == 29
    assert torch.equal(generate(model, ids(30), again), expected)


def test_a_batch_is_forks_of_one_context(model, pool):
    own, ours = transformers.DynamicCache(), PagedCache(pool.context())
    for step in (ids(9, 0, 3), ids(2, 1, 3)):
        assert torch.equal(logits(model, step, own), logits(model, step, ours))
    ours.batch_select_indices(torch.tensor([2, 2, 0]))
    own.batch_select_indices(torch.tensor([2, 2, 0]))
    assert torch.equal(logits(model, ids(1, 2, 3), own), logits(model, ids(1, 2, 3), ours))
    with pytest.raises(ValueError, match="the cache has 3 rows and the model's batch has 2"):
        logits(model, ids(1, 0, 2), ours)


def test_cropping_and_a_step_that_breaks_off_leave_it_right(model, pool):
    cache = PagedCache(pool.context())
    logits(model, ids(20), cache)
    expected = logits(model, ids(2, 1), cache.fork())
    logits(model, ids(7, 9), cache)
    cache.crop(-7)
    shape = (1, 2, 3, 8)
    cache.update(torch.zeros(shape, dtype=model.dtype), torch.zeros(shape, dtype=model.dtype), 0)
    assert len(cache.contexts[0]) == 20, "one layer of three is no step"
    assert torch.equal(logits(model, ids(2, 1), cache), expected)


def test_tokens_that_nobody_told_are_marked(model, pool):
    cache = PagedCache(pool.context())
    with torch.no_grad():
        model(ids(3), cache=cache)
    assert cache.contexts[0].tokens == [UNKNOWN] * 3


def test_pages_that_would_lose_something_are_refused():
    cache = PagedCache(Pool(Layout.uniform(1, 1, 4, precision="q8"), 16, pages=4).context())
    states = torch.zeros(1, 1, 2, 4)
    with pytest.raises(ValueError, match=r"pages of q8 cannot hold torch\.float32 exactly; use f32"):
        cache.update(states, states, 0)
