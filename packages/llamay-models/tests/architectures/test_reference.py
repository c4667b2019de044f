"""The reference computes what other implementations compute."""

import numpy as np
import pytest

from llamay_models import gguf
from llamay_models.architectures import ARCHITECTURES, find
from llamay_models.embedding import take_rank_head
from llamay_models.plan import Reference, Rows, Watch, Weights, check
from llamay_models.tensors import file_tensors

from ..architecture_names import DECODERS, LOGITS_FILES, STATES_FILES, TEXT

TOKENS = list(TEXT)


def reference(path, rows, g=None):
    with gguf.open(path) as file:
        architecture, config = find(file.metadata)
        tensors = file_tensors(file)
        take_rank_head(tensors, config.width)
        check(architecture.build, config, tensors)
        return architecture.build(g or Reference(rows), config, Weights(tensors)).array


@pytest.mark.parametrize("name", LOGITS_FILES)
def test_logits_are_those_of_transformers(shared_data, name):
    logits = reference(shared_data / "models" / f"{name}.gguf", TOKENS)
    expected = np.load(shared_data / "models" / f"{name}.logits.npy")
    np.testing.assert_allclose(logits, expected, atol=2e-5 if name == "falcon-mamba" else 3e-6)


@pytest.mark.parametrize("name", STATES_FILES)
def test_hidden_states_are_those_of_transformers(shared_data, name):
    states = reference(shared_data / "models" / f"{name}.gguf", [2, *TOKENS[1:]] if "xlm" in name else TOKENS)
    expected = np.load(shared_data / "models" / f"{name}.hidden.npy")
    np.testing.assert_allclose(states, expected, atol=3e-6)


@pytest.mark.parametrize(
    ("name", "types", "score"),
    [
        ("bert-cross-encoder", None, "score"),
        ("bert-cross-encoder", [0, 0, 0, 0, 1, 1, 1, 1], "score-types"),
        ("xlm-roberta-rerank", None, "score"),
    ],
)
def test_scores_of_a_pair_are_those_of_transformers(shared_data, name, types, score):
    """A head over the first row, with the pooler's layer before it; tokens have types where the model was asked so."""
    path = shared_data / "models" / f"{name}.gguf"
    tokens = [2, *TOKENS[1:]] if "xlm" in name else TOKENS
    (state,) = reference(path, Rows(tokens, wanted=[len(tokens) - 1], types=types))
    with gguf.open(path) as file:
        head = take_rank_head(file_tensors(file), find(file.metadata)[1].width)
        assert head.score(state) == pytest.approx(
            float(np.load(path.with_suffix(f".{score}.npy"))[0]), abs=1e-6
        )


def test_a_sentence_encoder_pools_what_its_file_says(shared_data):
    path = shared_data / "models" / "all-MiniLM-L6-v2-Q8_0.gguf"
    texts = [[101, 7592, 2088, 102], [101, 2748, 102]]
    tokens = [t for text in texts for t in text]
    both = reference(path, Rows(tokens, wanted=[3, 6], texts=[4, 3]))
    assert both.shape == (2, 384)
    for state, text in zip(both, texts, strict=True):
        (alone,) = reference(path, Rows(text, wanted=[0]))
        np.testing.assert_allclose(state, alone, rtol=1e-9, atol=1e-12)
    with gguf.open(path) as file:
        assert find(file.metadata)[1].output == "pooled"


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
    assert np.array_equal(watch.values["token_embd.given"], watch.values["token_embd"])
    assert watch.values["blk.2.attn_q_norm.rope"].shape == (3, 64)
    assert watch.values["blk.0.attention"].shape == (3, 64)
    assert len(watch.values) == len(watch.records)


@pytest.mark.parametrize("name", DECODERS)
def test_later_tokens_do_not_change_earlier_logits(small_model, name):
    model = small_model(name)
    tokens = list(range(3, 23))
    whole = model.reference(tokens)
    np.testing.assert_allclose(model.reference(tokens[:11]), whole[:11], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", sorted(ARCHITECTURES))
def test_vectors_handed_in_are_worth_the_tokens_that_they_are_of(small_model, name):
    """A row is a token, or the vector that an architecture makes of a token: the same bits come out."""
    model, tokens = small_model(name), [3, 14, 15, 9, 26, 5]
    watch = Watch(tokens)
    expected = model.architecture.build(watch, model.config, model.weights()).array
    table = next(v for k, v in watch.values.items() if k.endswith(".given"))
    handed = {1: table[1], 2: table[2], 5: table[5]}
    rows = Rows([0 if i in handed else t for i, t in enumerate(tokens)], vectors=handed)
    g = Reference(rows)
    assert np.array_equal(model.architecture.build(g, model.config, model.weights()).array, expected)
    other = Reference(Rows(rows.tokens, vectors={**handed, 2: table[2][::-1]}))
    changed = model.architecture.build(other, model.config, model.weights()).array
    assert not np.allclose(changed[2], expected[2])


@pytest.mark.parametrize("name", sorted(ARCHITECTURES))
def test_texts_beside_each_other_are_as_if_alone(small_model, name):
    model, texts = small_model(name), [[3, 4, 5, 6], [7], [3, 4, 8]]
    together = Reference(Rows([t for text in texts for t in text], texts=[len(t) for t in texts]))
    rows = model.architecture.build(together, model.config, model.weights()).array
    alone = np.concatenate([model.reference(text) for text in texts])
    np.testing.assert_allclose(rows, alone, rtol=1e-10, atol=1e-10)


def test_a_window_hides_what_lies_behind_it(small_model):
    keys = {"block_count": 1, "attention.sliding_window": 4}
    model, other = (small_model("gemma3", **keys) for _ in range(2))
    a, b = model.reference([7, 1, 2, 3, 4, 5]), other.reference([9, 1, 2, 3, 4, 5])
    assert not np.allclose(a[3], b[3])
    np.testing.assert_allclose(a[4:], b[4:], rtol=1e-12)
