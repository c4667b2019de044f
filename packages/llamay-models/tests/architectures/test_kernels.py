"""The kernels compute what the reference computes, of every architecture, in steps of any size."""

import numpy as np
import pytest

import llamay_kernels as kernels
import llamay_kv
from llamay_models import gguf
from llamay_models._cache_layout import cache_layout
from llamay_models.architectures import ARCHITECTURES, find
from llamay_models.embedding import take_rank_head
from llamay_models.plan import Trace, Weights, evaluate, fuse, whole_text
from llamay_models.tensors import file_tensors, pack

TOKENS = [1, 20, 33, 47, 301, 8, 99, 100]
FILES = ("bert", "falcon-mamba", "gemma3", "mamba", "mamba2", "mixtral", "qwen3", "qwen3moe")


def computed(program, tokens, steps):
    """Return what the kernels make of a text that comes in steps: float32 (rows, output width)."""
    threads = kernels.Threads(2)
    fused = fuse(program)
    plan = kernels.Plan(fused.records, fused.widths, pack(fused.tensors, threads), max_rows=32)
    out, done = np.zeros((len(tokens), fused.output_width), np.float32), 0
    if whole_text(program):
        plan.run_rows([(None, tokens, 0, len(tokens))], out, threads)
        return out
    context = llamay_kv.Pool(cache_layout(fused, "f32"), 16, budget_bytes=64 << 20).context()
    for size in steps:
        step, rows = tokens[done : done + size], np.zeros((size, fused.output_width), np.float32)
        with context.reserve(size) as lease:
            plan.run_rows([(lease, step, done, size)], rows, threads)
            lease.commit(step)
        out[done : done + size], done = rows, done + size
    return out


@pytest.mark.parametrize("steps", [(8,), (3, 1, 4), (1,) * 8])
@pytest.mark.parametrize("name", FILES)
def test_files_of_random_weights_give_the_logits_of_transformers(shared_data, name, steps):
    path = shared_data / "models" / f"{name}.gguf"
    with gguf.open(path) as file:
        architecture, config = find(file.metadata)
        tensors = file_tensors(file)
        take_rank_head(tensors, config.width)
        trace = Trace()
        architecture.build(trace, config, Weights(tensors))
        out = computed(trace.program(), TOKENS, steps)
    expected = np.load(path.with_suffix(".hidden.npy" if name == "bert" else ".logits.npy"))
    np.testing.assert_allclose(out, expected, atol=2e-5 if name == "falcon-mamba" else 5e-6)


@pytest.mark.parametrize("name", sorted(ARCHITECTURES))
def test_small_models_give_what_the_reference_gives(small_model, name):
    program, tokens = small_model(name).trace(), [3, 14, 15, 9, 26, 5, 35, 8, 9, 7, 9, 3, 2, 3, 8]
    expected = evaluate(program, tokens)
    out = computed(program, tokens, (4, 1, 1, 7, 2))
    np.testing.assert_allclose(out, expected, atol=1e-4 * np.abs(expected).max())
    assert np.array_equal(out, computed(program, tokens, (15,)))
