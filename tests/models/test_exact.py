"""On real models too: nothing depends on how it was computed, not a single bit."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import llamay
from llamay import Sampling

pytestmark = pytest.mark.model
GREEDY = Sampling(temperature=0)
SEEDED = Sampling(seed=3, temperature=0.9)
PROMPT = (
    "An engine for models keeps what it has read as pages of keys and values. "
    "Whoever forks a context shares them; whoever writes gets a page of their own. So"
)


def test_reading_at_once_or_token_by_token_is_the_same(model):
    ids = model.encode(PROMPT)
    slowly = model.context(ids[:1])
    for token in ids[1:]:
        slowly.extend([token])
    assert np.array_equal(model.context(ids).logits, slowly.logits)


def test_a_batch_of_eight_is_eight_alone(model):
    prompts = [model.encode(PROMPT)[: 3 + 4 * i] for i in range(8)]
    requests = [llamay.Request(p, SEEDED, 12, ignore_eos=True) for p in prompts]
    alone = [model.engine.submit(r).tokens for r in requests]
    running = model.engine.call(lambda: [model.engine.submit(r) for r in requests])
    assert [g.tokens for g in running] == alone


def test_a_fork_is_its_parent(model):
    context = model.context(PROMPT)
    used = model.pool.used_bytes
    forks = context.fork(8)
    assert model.pool.used_bytes == used
    expected = context.fork().generate(GREEDY, max_tokens=12, ignore_eos=True).tokens
    running = model.engine.call(lambda: [f.generate(GREEDY, max_tokens=12, ignore_eos=True) for f in forks])
    assert [g.tokens for g in running] == [expected] * 8


def test_threads_page_sizes_and_chunks_do_not_matter(key, model, model_file):
    context = model.context(PROMPT)
    expected = context.fork().generate(SEEDED, max_tokens=12, ignore_eos=True).tokens
    for options in ({"threads": 1, "page_tokens": 16}, {"threads": 4, "page_tokens": 256, "max_rows": 7}):
        with llamay.load(model_file(key), **options) as other:
            again = other.context(PROMPT)
            assert np.array_equal(again.logits, context.logits)
            assert again.generate(SEEDED, max_tokens=12, ignore_eos=True).tokens == expected


def test_a_snapshot_goes_on_in_another_process(key, model, model_file, tmp_path):
    context = model.context(PROMPT)
    context.generate(SEEDED, max_tokens=4, ignore_eos=True).wait()
    context.save(tmp_path / "it.llamay")
    code = (
        "import llamay, sys, numpy as np\n"
        "with llamay.load(sys.argv[1], threads=1, page_tokens=16) as model:\n"
        "    context = model.restore(sys.argv[2])\n"
        "    np.save(sys.argv[3], context.logits)\n"
        "    print(*context.generate(max_tokens=8, ignore_eos=True).tokens)\n"
    )
    arguments = [str(model_file(key)), str(tmp_path / "it.llamay"), str(tmp_path / "logits.npy")]
    result = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True, timeout=120
    )
    assert np.array_equal(np.load(tmp_path / "logits.npy"), context.logits)
    expected = context.generate(max_tokens=8, ignore_eos=True).tokens
    assert tuple(int(t) for t in result.stdout.split()) == expected
    assert result.stderr == ""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_stays_near_the_size_of_the_file(key, model_file):
    code = (
        "import sys, llamay\n"
        "def peak(): return int(open('/proc/self/status').read().split('VmHWM:')[1].split()[0])\n"
        "before = peak()\n"
        "with llamay.load(sys.argv[1], ctx_size=512) as model:\n"
        "    model.context([5]).generate(max_tokens=2).wait()\n"
        "    print(peak() - before, model.nbytes, model.vocab_size * model.embedding_length)\n"
    )
    path = model_file(key)
    result = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True, timeout=120
    )
    peak, weights, table = (int(x) for x in result.stdout.split())
    size = path.stat().st_size
    print(f"{key}: peak {peak >> 10} MiB, file {size >> 20} MiB, weights {weights >> 20} MiB")
    assert weights < 1.1 * size
    # While a tensor is packed it is there twice; the largest is the embedding table, at about a byte a value.
    assert peak * 1024 < weights + 1.2 * table + (96 << 20)
