"""Real models give what llama.cpp gives for them, and are at least as close to the unquantized weights."""

from __future__ import annotations

import numpy as np
import pytest

import llamay
from llamay import Sampling, scoring
from llamay_models import gguf
from llamay_models.architectures import find
from llamay_models.plan import Reference, Weights
from llamay_models.tensors import file_tensors

pytestmark = pytest.mark.model
GREEDY = Sampling(temperature=0)


def logits(model, ids):
    return np.concatenate(list(scoring.logits(model, ids)))


def divergence(exact, other):
    """KL(exact || other) of every row."""
    p, q = scoring.log_softmax(exact), scoring.log_softmax(other)
    return (np.exp(p) * (p - q)).sum(-1)


def test_the_text_has_the_same_tokens(key, model, figures):
    assert model.encode(figures(key).text) == figures(key).text_ids


def test_prompts_have_the_same_tokens(key, model, figures):
    for entry in figures(key)["greedy"]:
        assert model.encode(entry["prompt"]) == entry["prompt_ids"]


def test_it_answers(key, model):
    context = model.context("The capital of France is")
    text = context.generate(GREEDY, max_tokens=8).text
    assert text.startswith(
        {"smollm2": " Paris.", "gemma3-270m": " the capital of the country of France"}[key]
    )


@pytest.mark.slow
def test_logits_are_closer_to_the_unquantized_weights_than_llama_cpp_s(key, model, exact, figures):
    ids = figures(key)["logits64"]["ids"]
    theirs = figures(key)["logits_vs_dequantized_f32"]["default (flash attention, repack)"]
    kl = divergence(logits(exact, ids), logits(model, ids))
    print(f"{key}: KL {kl.mean():.6f} mean, {kl.max():.6f} max; llama.cpp {theirs['kl_mean']:.6f} mean")
    assert kl.mean() <= theirs["kl_mean"]


@pytest.mark.slow
def test_dequantized_logits_are_those_of_exact_arithmetic_and_of_llama_cpp(key, exact, figures, model_file):
    reference = figures(key)["logits64"]
    ours = logits(exact, reference["ids"])[reference["positions"]]
    with gguf.open(model_file(key)) as file:
        architecture, config = find(file.metadata)
        g = Reference(reference["ids"], reference["positions"])
        truth = architecture.build(g, config, Weights(file_tensors(file))).array
    theirs = figures(key).logits("dequantized_f32")
    our_error, their_error = abs(ours - truth).max(), abs(theirs - truth).max()
    print(f"{key}: ours {our_error:.6f} from float64, llama.cpp's {their_error:.6f}")
    assert our_error < 1e-3
    # llama.cpp is up to 0.029 from float64 on SmolLM2: 0.02 can only be asked for beside its own distance.
    assert abs(ours - theirs).max() < max(0.02, their_error + 1e-3)


def follows(output, entry):
    """Equal up to the first token for which llama.cpp's two best lie closer than the engines may differ."""
    for i, (ours, theirs) in enumerate(zip(output, entry["output_ids"], strict=False)):
        if entry["top1_minus_top2_logit"][i] < 0.05:
            return i
        assert ours == theirs, f"token {i}: {ours}, not {theirs}"
    return len(entry["output_ids"])


@pytest.mark.slow
def test_dequantized_text_is_llama_cpp_s(key, exact, figures):
    for entry in figures(key)["greedy_dequantized_f32"]:
        output = exact.engine.submit(llamay.Request(entry["prompt_ids"], GREEDY, 64)).tokens
        assert follows(output, entry) > 0


@pytest.mark.slow
def test_chats_are_llama_cpp_s(key, exact, figures):
    if key != "smollm2":
        pytest.skip("the model has no chat template")
    for entry in figures(key)["chat_greedy_dequantized_f32"]:
        question = entry["prompt"].split("<|im_start|>user\n")[1].split("<|im_end|>")[0]
        context = exact.context(messages=[{"role": "user", "content": question}])
        assert list(context.tokens) == entry["prompt_ids"]
        assert follows(context.generate(GREEDY, max_tokens=64).tokens, entry) > 0


@pytest.mark.slow
@pytest.mark.parametrize("window", [512, 2048])
def test_perplexity_is_that_of_the_unquantized_weights(key, model, figures, window):
    theirs = figures(key)["ppl"]
    ours = scoring.perplexity(model, figures(key).text, window)
    exact, quantized = theirs[f"ctx{window}_dequantized_f32"]["ppl"], theirs[f"ctx{window}"]["ppl"]
    print(
        f"{key} at {window}: {ours.value:.4f} ± {ours.error:.4f}; llama.cpp {quantized}, dequantized {exact}"
    )
    assert ours.windows == theirs[f"ctx{window}"]["chunks"]
    assert abs(ours.value / exact - 1) <= 0.005
    assert ours.value / quantized - 1 <= 0.003
    assert ours.error == pytest.approx(theirs[f"ctx{window}"]["stderr"], rel=0.05)
