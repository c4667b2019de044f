"""What the kernels compute is what the reference computes, and not a bit of it depends on how."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import llamay_kernels as kernels
import llamay_kv
from llamay_models.backend import CPU
from llamay_models.engine.runner import Runner, StepRows
from llamay_models.kv_cache.layout import cache_layout
from llamay_models.plan import fuse
from llamay_models.tensors import pack

from ..architecture_names import DENSE as NAMES

VARIANTS = [
    ("gemma3", {"attention.sliding_window": 3, "attention.sliding_window_pattern": 2}),
    ("gemma3", {"attention.sliding_window": 20}),
    ("gemma3", {"final_logit_softcapping": 5.0}),
    ("llama", {"untied": True, "biases": True}),
    ("llama", {"rope.dimension_count": 8, "rope.scaling.type": "linear", "rope.scaling.factor": 3.0}),
    ("llama", {"attention.value_length": 8, "attention.head_count": 6, "attention.head_count_kv": 3}),
    ("qwen2", {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "attention.head_count_kv": 1}),
    ("qwen3", {"attention.key_length": 32, "embedding_length": 40}),
]


class Machine:
    """A small model on a backend: `compute` reads tokens in steps, and returns all logits."""

    def __init__(self, backend, small, program, precision="f32"):
        self.backend, self.small = backend, small
        self.layout = cache_layout(program, precision)
        self.weights = pack(program.tensors, backend.threads(1), backend=backend)
        self.plan = backend.plan(program.records, program.widths, self.weights, max_rows=64)

    def runner(self, threads):
        return Runner(self.backend, self.plan, self.backend.threads(threads))

    def compute(self, tokens, steps, page_tokens=16, threads=1):
        pool = llamay_kv.Pool(self.layout, page_tokens, budget_bytes=64 << 20)
        runner, context, out, at = self.runner(threads), pool.context(), [], 0
        for n in steps:
            with context.reserve(n) as lease:
                out.append(runner.run([StepRows(lease, tokens[at : at + n], at, n)]).copy())
                lease.commit(tokens[at : at + n])
            at += n
        return np.concatenate(out)


def one_by_one(n):
    return [1] * n


def at_once(n):
    return [min(64, n - at) for at in range(0, n, 64)]


@pytest.mark.parametrize(("name", "keys"), [*((n, {}) for n in NAMES), *VARIANTS])
def test_the_plan_computes_what_the_reference_computes(small_model, backend, name, keys):
    small = small_model(name, **keys)
    tokens = [5 + i * 7 % 50 for i in range(90)]
    expected = small.reference(tokens)
    fused = Machine(backend, small, fuse(small.trace())).compute(tokens, at_once(90))
    np.testing.assert_allclose(fused, expected, atol=2e-4)
    plain = Machine(backend, small, small.trace()).compute(tokens, at_once(90))
    assert np.array_equal(fused, plain)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_no_bit_depends_on_how_it_was_computed(small_model, backend, name, data):
    """Any tokens, any split into steps, any page size, any number of threads, either precision."""
    keys = {"attention.sliding_window": data.draw(st.integers(1, 40))} if name == "gemma3" else {}
    small = small_model(name, seed=data.draw(st.integers(0, 3)), **keys)
    machine = Machine(backend, small, fuse(small.trace()), data.draw(st.sampled_from(["f32", "f16"])))
    tokens = data.draw(st.lists(st.integers(0, 60), min_size=1, max_size=100))
    steps, left = [], len(tokens)
    while left:
        steps.append(data.draw(st.integers(1, min(left, 64))))
        left -= steps[-1]
    expected = machine.compute(tokens, one_by_one(len(tokens)))
    page_tokens = data.draw(st.sampled_from([16, 32, 64, 256]))
    actual = machine.compute(tokens, steps, page_tokens, data.draw(st.integers(1, 3)))
    assert np.array_equal(actual, expected)


@pytest.mark.parametrize("backend", [CPU], indirect=True, ids=["cpu"])
@pytest.mark.parametrize("name", NAMES)
def test_every_kernel_set_computes_the_same_bits(small_model, backend, name):
    small = small_model(name)
    machine = Machine(backend, small, fuse(small.trace()), "f16")
    tokens, before, results = [5 + i * 7 % 50 for i in range(70)], kernels.isa(), []
    try:
        for isa in kernels.runnable_isas():
            kernels.use_isa(isa)
            results.append(machine.compute(tokens, at_once(70)))
    finally:
        kernels.use_isa(before)
    assert all(np.array_equal(r, results[0]) for r in results)


@pytest.mark.parametrize("name", NAMES)
def test_contexts_in_one_step_do_not_touch_each_other(small_model, backend, name):
    small = small_model(name)
    machine = Machine(backend, small, fuse(small.trace()))
    pool = llamay_kv.Pool(machine.layout, 16, budget_bytes=64 << 20)
    runner = machine.runner(2)
    prompts = [[5 + (i * 13 + j) % 50 for j in range(1 + 3 * i)] for i in range(8)]
    contexts = [pool.context() for _ in prompts]

    def step(batches):
        leases = [c.reserve(len(b)) for c, b in zip(contexts, batches, strict=True)]
        rows = [StepRows(lease, b, lease.begin, 1) for lease, b in zip(leases, batches, strict=True)]
        out = runner.run(rows).copy()
        for lease, b in zip(leases, batches, strict=True):
            lease.commit(b)
        return out

    together = [step([p[: len(p) // 2 + 1] for p in prompts])]
    together += [step([[7 + n] for _ in prompts]) for n in range(3)]
    for i, p in enumerate(prompts):
        tokens = [*p[: len(p) // 2 + 1], 7, 8, 9]
        alone = machine.compute(tokens, one_by_one(len(tokens)))
        for j, out in enumerate(together):
            assert np.array_equal(out[i], alone[len(tokens) - 4 + j])
