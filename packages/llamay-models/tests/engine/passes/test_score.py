"""Scores are those of the reference, however the text is cut."""

import math

import numpy as np
import pytest

from llamay_models import scoring
from llamay_models.errors import PromptError

TOKENS = [5 + i * 11 % 50 for i in range(75)]


@pytest.mark.parametrize("max_rows", [1, 16, 64])
@pytest.mark.parametrize("name", ["gemma3", "llama"])
def test_log_likelihoods_are_those_of_the_reference(make_model, small_model, name, max_rows):
    model = make_model(name, max_rows=max_rows)
    logits = small_model(name).reference(TOKENS)
    expected = scoring.log_softmax(logits)[np.arange(74), TOKENS[1:]]
    np.testing.assert_allclose(scoring.log_likelihoods(model, TOKENS), expected, atol=1e-4)
    np.testing.assert_allclose(scoring.log_likelihoods(model, TOKENS, 40), expected[40:], atol=1e-4)
    assert model.pool.used_bytes == 0


def test_logits_of_all_positions_are_those_of_single_steps(make_model):
    model = make_model("qwen3")
    rows = np.concatenate(list(scoring.logits(model, TOKENS)))
    assert rows.shape == (75, 61)
    for n in (1, 2, 40, 75):
        assert np.array_equal(rows[n - 1], model.context(TOKENS[:n]).logits)


def test_perplexity_scores_the_second_half_of_every_window(make_model):
    model = make_model()
    result = scoring.perplexity(model, TOKENS, 20)
    windows = [TOKENS[i : i + 20] for i in (0, 20, 40)]
    losses = -np.concatenate([scoring.log_likelihoods(model, w, 10) for w in windows])
    assert (result.windows, result.tokens) == (3, 27)
    assert result.value == pytest.approx(math.exp(losses.mean()))
    assert result.error == pytest.approx(result.value * losses.std() / math.sqrt(26))


def test_too_little_text_says_so(make_model):
    model = make_model()
    with pytest.raises(PromptError, match="the text has 75 tokens, fewer than one window of 76"):
        scoring.perplexity(model, TOKENS, 76)
    with pytest.raises(PromptError, match="scoring needs at least one token after number 0, but there are 1"):
        scoring.log_likelihoods(model, [5])


def test_progress_counts(make_model):
    seen = []
    scoring.perplexity(make_model(), TOKENS, 20, progress=lambda *a: seen.append(a))
    assert seen == [("scoring", 1, 3), ("scoring", 2, 3), ("scoring", 3, 3)]


def test_a_beginning_token_takes_the_place_of_each_window_s_first(make_model, monkeypatch):
    model = make_model()
    monkeypatch.setattr(model.tokenizer, "bos", 3)
    monkeypatch.setattr(model.tokenizer, "adds_bos", True)
    windows = [[3, *TOKENS[i + 1 : i + 20]] for i in (0, 20, 40)]
    losses = -np.concatenate([scoring.log_likelihoods(model, w, 10) for w in windows])
    assert scoring.perplexity(model, TOKENS, 20).value == pytest.approx(math.exp(losses.mean()))


def test_ids_count_and_not_what_holds_them(make_model, monkeypatch):
    """An array of one 0 is not nothing, and arrays of several have no truth value."""
    model = make_model()
    monkeypatch.setattr(model.tokenizer, "bos", 3)
    monkeypatch.setattr(model.tokenizer, "adds_bos", True)
    for given in ([0], [5], [5, 16], ()):
        wanted = model.score("ab", given=given).log_likelihood
        assert model.score("ab", given=np.array(given, np.int64)).log_likelihood == wanted
    assert model.score(np.array(TOKENS)).log_likelihood == model.score(TOKENS).log_likelihood
