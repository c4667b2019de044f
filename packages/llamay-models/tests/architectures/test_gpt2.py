"""GPT-2 is what its authors describe, from a file as llama.cpp's converter writes it to the kernels' logits."""

import math

import numpy as np
import pytest

import llamay_models
from llamay_models import gguf
from llamay_models.architectures import find
from llamay_models.errors import TensorError
from llamay_models.gguf import TensorData, write
from llamay_models.plan import Reference, Weights, check
from llamay_models.tensors import file_tensors

WIDTH, LAYERS, HEADS, HIDDEN, VOCAB, CONTEXT = 64, 2, 4, 96, 50, 40
TOKENS = [3, 47, 3, 11, 0, 49, 21, 20, 8]


def random_weights(seed=0):
    """Return weights of a small model, as numpy arrays in the order (out, in)."""
    rng, weights = np.random.default_rng(seed), {}

    def put(name, *shape, around=0.0):
        weights[name] = (rng.normal(size=shape) * (0.3 if len(shape) == 1 else 0.2) + around).astype("f4")

    put("token_embd.weight", VOCAB, WIDTH)
    put("position_embd.weight", CONTEXT, WIDTH)
    for norm in ("output_norm", *(f"blk.{i}.{n}" for i in range(LAYERS) for n in ("attn_norm", "ffn_norm"))):
        put(f"{norm}.weight", WIDTH, around=1.0)
        put(f"{norm}.bias", WIDTH)
    for i in range(LAYERS):
        shapes = {
            "attn_qkv": (3 * WIDTH, WIDTH),
            "attn_output": (WIDTH, WIDTH),
            "ffn_up": (HIDDEN, WIDTH),
            "ffn_down": (WIDTH, HIDDEN),
        }
        for stem, shape in shapes.items():
            put(f"blk.{i}.{stem}.weight", *shape)
            put(f"blk.{i}.{stem}.bias", shape[0])
    return weights


def file_of(path, weights, context=CONTEXT):
    """Write a file with the keys and names of llama.cpp's converter."""
    metadata = {
        "general.architecture": "gpt2",
        "gpt2.block_count": LAYERS,
        "gpt2.context_length": context,
        "gpt2.embedding_length": WIDTH,
        "gpt2.feed_forward_length": HIDDEN,
        "gpt2.attention.head_count": HEADS,
        "gpt2.attention.layer_norm_epsilon": 1e-5,
        "gpt2.vocab_size": VOCAB,
    }
    write(path, metadata, [TensorData(n, "F32", w.shape, w) for n, w in weights.items()])
    return path


def logits_by_hand(weights, tokens, output=None):
    """Return GPT-2's logits: the published formulas, position by position, with nothing of this package."""
    w = {name: value.astype(np.float64) for name, value in weights.items()}

    def norm(x, name):
        return (x - x.mean()) / math.sqrt(x.var() + 1e-5) * w[f"{name}.weight"] + w[f"{name}.bias"]

    def dense(x, name):
        return w[f"{name}.weight"] @ x + w[f"{name}.bias"]

    rows = [w["token_embd.weight"][t] + w["position_embd.weight"][i] for i, t in enumerate(tokens)]
    for layer in range(LAYERS):
        block = f"blk.{layer}"
        made = [np.split(dense(norm(x, f"{block}.attn_norm"), f"{block}.attn_qkv"), 3) for x in rows]
        for i, (q, _, _) in enumerate(made):
            heads = []
            for part in np.split(np.arange(WIDTH), HEADS):
                scores = np.array([k[part] @ q[part] for _, k, _ in made[: i + 1]]) / math.sqrt(len(part))
                shares = np.exp(scores - scores.max())
                values = np.array([v[part] for _, _, v in made[: i + 1]])
                heads.append(shares / shares.sum() @ values)
            x = rows[i] + dense(np.concatenate(heads), f"{block}.attn_output")
            up = dense(norm(x, f"{block}.ffn_norm"), f"{block}.ffn_up")
            bent = [0.5 * u * (1 + math.tanh(math.sqrt(2 / math.pi) * (u + 0.044715 * u**3))) for u in up]
            rows[i] = x + dense(np.array(bent), f"{block}.ffn_down")
    last = [norm(x, "output_norm") for x in rows]
    return np.array(last) @ w[output or "token_embd.weight"].T


@pytest.mark.parametrize("untied", [False, True])
def test_the_reference_computes_the_published_formulas(tmp_path, untied):
    weights = random_weights()
    if untied:
        weights["output.weight"] = np.roll(weights["token_embd.weight"], 5, 0)
    with gguf.open(file_of(tmp_path / "gpt2.gguf", weights)) as file:
        architecture, config = find(file.metadata)
        tensors = file_tensors(file)
        check(architecture.build, config, tensors)
        logits = architecture.build(Reference(TOKENS), config, Weights(tensors)).array
    wanted = logits_by_hand(weights, TOKENS, "output.weight" if untied else None)
    np.testing.assert_allclose(logits, wanted, atol=1e-9)  # the file keeps epsilon in single precision


def test_the_kernels_compute_the_published_formulas(tmp_path):
    weights = random_weights(1)
    path = file_of(tmp_path / "gpt2.gguf", weights)
    with llamay_models.load(path, threads=1, kv="f32") as model, model.context(TOKENS) as context:
        np.testing.assert_allclose(context.logits, logits_by_hand(weights, TOKENS)[-1], atol=2e-5)


def test_a_context_is_no_longer_than_the_positions_that_were_learned(tmp_path):
    path = file_of(tmp_path / "gpt2.gguf", random_weights())
    with pytest.raises(ValueError, match=r"ctx_size must be at most 40, .* gpt2\.gguf has, not 41"):
        llamay_models.load(path, ctx_size=CONTEXT + 1)
    with llamay_models.load(path, threads=1) as model, model.context(list(range(CONTEXT))) as context:
        assert len(context) == CONTEXT


def test_a_table_of_another_length_is_refused(tmp_path):
    path = file_of(tmp_path / "gpt2.gguf", random_weights(), context=CONTEXT + 1)
    with pytest.raises(TensorError, match=r"position_embd\.weight is 40 x 64 but must be 41 x 64"):
        llamay_models.load(path)


def test_queries_keys_and_values_are_parts_of_one_matrix_in_its_own_format(tmp_path):
    """The packed parts of a quantized matrix dequantize to the rows of the whole."""
    from llamay_kernels import Threads, dequantize, quantize
    from llamay_models.plan.records import Part
    from llamay_models.tensors import pack

    whole = np.random.default_rng(0).normal(size=(96, 64)).astype("f4")
    data = quantize(whole, "Q8_0")
    write(
        tmp_path / "one.gguf",
        {"general.architecture": "gpt2"},
        [TensorData("w", "Q8_0", whole.shape, data), TensorData("b", "F32", (96,), whole[:, 0].copy())],
    )
    with gguf.open(tmp_path / "one.gguf") as file:
        tensors = file_tensors(file)
        parts = [Part(tensors["w"], 16, 48), Part(tensors["b"], 16, 48)]
        matrix, vector = pack(parts, Threads(1))
    rows = dequantize(data, "Q8_0", whole.size).reshape(whole.shape)[16:48]
    assert (matrix.name, matrix.format, matrix.rows, matrix.cols) == ("w[16:48]", "Q8_0", 32, 64)
    assert np.array_equal(matrix.dequantize(), rows)
    assert np.array_equal(parts[0].dequantize(), rows)
    assert np.array_equal(vector.dequantize()[0], whole[16:48, 0])
    assert [p.nbytes for p in parts] == [len(data) // 3, 128]
