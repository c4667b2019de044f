"""The reference computes what other implementations compute."""

import numpy as np
import pytest

from llamay_models import gguf
from llamay_models.architectures import find
from llamay_models.plan import Reference, Watch, Weights, check
from llamay_models.tensors import file_tensors

TOKENS = [1, 20, 33, 47, 301, 8, 99, 100]


def reference(path, tokens, g=None):
    with gguf.open(path) as file:
        architecture, config = find(file.metadata)
        tensors = file_tensors(file)
        check(architecture.build, config, tensors)
        return architecture.build(g or Reference(tokens), config, Weights(tensors)).array


@pytest.mark.parametrize("name", ["qwen3", "gemma3"])
def test_logits_are_those_of_transformers(shared_data, name):
    logits = reference(shared_data / "models" / f"{name}.gguf", TOKENS)
    expected = np.load(shared_data / "models" / f"{name}.logits.npy")
    np.testing.assert_allclose(logits, expected, atol=1e-5)


def test_a_split_model_is_the_whole_model(shared_data):
    whole = reference(shared_data / "models" / "stories260K.gguf", TOKENS)
    split = reference(shared_data / "models" / "split" / "s-00001-of-00003.gguf", TOKENS)
    assert np.array_equal(whole, split)


def test_a_trained_model_expects_what_it_was_trained_on(shared_data):
    with gguf.open(shared_data / "models" / "stories260K.gguf") as file:
        tokens = list(file.metadata["tokenizer.ggml.tokens"])
    prompt = [1, *(tokens.index(t) for t in ("▁Once", "▁upon", "▁a"))]
    logits = reference(shared_data / "models" / "stories260K.gguf", prompt)
    assert tokens[int(logits[-1].argmax())] == "▁time"


def test_watch_keeps_every_value_by_name(small_model):
    model, tokens = small_model("qwen3"), [3, 4, 5]
    watch = Watch(tokens)
    out = model.architecture.build(watch, model.config, model.weights()).array
    assert np.array_equal(watch.values["token_embd.linear"], out)
    assert watch.values["blk.2.attn_q_norm.rope"].shape == (3, 64)
    assert watch.values["blk.0.attention"].shape == (3, 64)
    assert len(watch.values) == len(watch.records)


@pytest.mark.parametrize("name", ["gemma3", "gpt2", "llama", "qwen2", "qwen3"])
def test_later_tokens_do_not_change_earlier_logits(small_model, name):
    model = small_model(name)
    tokens = list(range(3, 23))
    whole = model.reference(tokens)
    np.testing.assert_allclose(model.reference(tokens[:11]), whole[:11], rtol=1e-10, atol=1e-10)


def test_a_window_hides_what_lies_behind_it(small_model):
    keys = {"block_count": 1, "attention.sliding_window": 4}
    model, other = (small_model("gemma3", **keys) for _ in range(2))
    a, b = model.reference([7, 1, 2, 3, 4, 5]), other.reference([9, 1, 2, 3, 4, 5])
    assert not np.allclose(a[3], b[3])
    np.testing.assert_allclose(a[4:], b[4:], rtol=1e-12)
