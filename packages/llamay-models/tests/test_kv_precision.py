"""K/V stored smaller: the same bytes whoever writes them, exact in every way of computing, and measured."""

import numpy as np
import pytest

import llamay_kernels as kernels
import llamay_kv
from llamay_models import load, scoring
from llamay_models.engine import Sampling

PRECISIONS = ["f32", "f16", "vq8", "q8"]


@pytest.mark.parametrize("precision", PRECISIONS)
def test_what_attention_appends_are_the_bytes_that_the_state_engine_writes(precision):
    rng = np.random.default_rng(0)
    n, heads, k_dim, v_dim = 50, 2, 24, 40
    k = rng.standard_normal((n, heads, k_dim)) * 10.0 ** rng.integers(-40, 4, (n, heads, 1))
    v = rng.standard_normal((n, heads, v_dim)) * 10.0 ** rng.integers(-40, 4, (n, heads, 1))
    k, v = k.astype(np.float32), v.astype(np.float32)
    k[3, 1], v[4, 0] = 0, 0
    k[5, 0, 2], v[6, 1, 3], v[7, 0, 0] = np.inf, -np.inf, np.nan

    pool = llamay_kv.Pool(llamay_kv.Layout.uniform(1, heads, k_dim, v_dim, precision), 16, pages=20)
    written = pool.context()
    with written.reserve(n) as lease:
        lease.write(0, k, v)
        lease.commit(range(n))

    flat = [a.reshape(n, -1) for a in (np.zeros((n, heads, k_dim), np.float32), k, v)]
    tables = [kernels.Weight(a, "F32", *a.shape) for a in flat]
    records = [("embed", (i,), (), (i,), {}) for i in range(3)]
    shape = {"heads": heads, "kv_heads": heads, "k_dim": k_dim, "v_dim": v_dim}
    attrs = {"layer": 0, **shape, "scale": 1.0, "window": 0, "softcap": 0.0}
    records.append(("attention", (3,), (0, 1, 2), (), attrs))
    widths = [a.shape[1] for a in flat] + [heads * v_dim]
    plan, rows = kernels.Plan(records, widths, tables, max_rows=n), np.arange(n, dtype=np.int32)
    out = np.empty((n, widths[-1]), np.float32)
    for isa in kernels.runnable_isas():
        before = kernels.isa()
        kernels.use_isa(isa)
        try:
            appended = pool.context()
            with appended.reserve(n) as lease:
                plan.run(rows, rows, [lease], [n], rows, out, kernels.Threads(1))
                lease.commit(range(n))
        finally:
            kernels.use_isa(before)
        for page in range(3):  # whole pages of 16: bytes of all planes, and all scales
            for a, b in zip(appended.page(0, page), written.page(0, page), strict=True):
                assert a.tobytes() == b.tobytes()
            for a, b in zip(appended.scales(0, page), written.scales(0, page), strict=True):
                assert (a is None) == (b is None)
                assert a is None or a.tobytes() == b.tobytes()
        appended.close()


def log_probabilities(path, precision, tokens):
    with load(path, kv=precision, threads=1) as model:
        logits = np.concatenate(list(scoring.logits(model, tokens))).astype(np.float64)
    logits -= logits.max(1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(1, keepdims=True))


# Measured over these tokens: 1.7e-5, 4.7e-5 and 5.4e-3.
BOUNDS = {"f16": 6e-5, "vq8": 1.5e-4, "q8": 2e-2}


def test_the_divergence_from_f32_is_as_stated(shared_data):
    path = shared_data / "models" / "stories260K.gguf"
    rng = np.random.default_rng(0)
    tokens = [1, *rng.integers(3, 512, 300).tolist()]
    exact = log_probabilities(path, "f32", tokens)
    measured = {}
    for precision in BOUNDS:
        stored = log_probabilities(path, precision, tokens)
        measured[precision] = float((np.exp(exact) * (exact - stored)).sum(1).mean())
    assert all(0 < measured[p] < BOUNDS[p] for p in BOUNDS), measured
    assert measured["f16"] < measured["vq8"] < measured["q8"], measured


@pytest.mark.parametrize("precision", ["vq8", "q8"])
def test_forks_batches_and_snapshots_are_exact(shared_data, tmp_path, precision):
    greedy = Sampling(temperature=0)
    with load(shared_data / "models" / "stories260K.gguf", kv=precision, threads=2) as model:
        assert model.pool.layout.position_bytes < 640 * 0.9
        prompt = model.encode("Once upon a time there was a little girl who had a big dog. " * 4)
        whole = model.context(prompt)
        steps = model.context(prompt[:1])
        for token in prompt[1:]:
            steps.extend([token])
        assert np.array_equal(whole.logits, steps.logits)
        branches = whole.fork(5)
        for branch, token in zip(branches, range(20, 25), strict=True):
            branch.extend([token])
        together = [b.generate(greedy, max_tokens=20) for b in branches]
        texts = [list(g.tokens) for g in together]
        whole.save(tmp_path / "it.llamay")
        again = model.restore(tmp_path / "it.llamay")
        for text, token in zip(texts, range(20, 25), strict=True):
            for origin in (model.context(prompt), again.fork()):
                origin.extend([token])
                assert list(origin.generate(greedy, max_tokens=20).tokens) == text
