"""A model in each format that the kernels read loads, and computes the same bits in every way."""

import gguf as reference
import numpy as np
import pytest

import llamay_kernels as kernels
from llamay_models import gguf, load

WIDTH, HIDDEN, HEADS, VOCABULARY = 256, 512, 4, 96
TOKENS = [1, 20, 33, 47, 31, 8, 90, 11, 12, 64, 3]


def random_weight(rng: np.random.Generator, name: str, rows: int, cols: int) -> bytes:
    """Values near 0.06, quantized."""
    return bytes(kernels.quantize(rng.normal(size=(rows, cols)).astype(np.float32) * 0.06, name))


@pytest.fixture(params=kernels.FORMATS)
def model_file(request, tmp_path):
    """A llama of one layer, all its matrices in one format."""
    rng, name = np.random.default_rng(5), request.param
    head, kv = WIDTH // HEADS, WIDTH // 2
    keys = {
        "general.architecture": "llama",
        "llama.block_count": 1,
        "llama.context_length": 64,
        "llama.embedding_length": WIDTH,
        "llama.feed_forward_length": HIDDEN,
        "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": HEADS // 2,
        "llama.attention.key_length": head,
        "llama.attention.value_length": head,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.vocab_size": VOCABULARY,
    }
    shapes = {
        "token_embd": (VOCABULARY, WIDTH),
        "output": (VOCABULARY, WIDTH),
        "blk.0.attn_q": (WIDTH, WIDTH),
        "blk.0.attn_k": (kv, WIDTH),
        "blk.0.attn_v": (kv, WIDTH),
        "blk.0.attn_output": (WIDTH, WIDTH),
        "blk.0.ffn_gate": (HIDDEN, WIDTH),
        "blk.0.ffn_up": (HIDDEN, WIDTH),
        "blk.0.ffn_down": (WIDTH, HIDDEN),
    }
    tensors = [
        gguf.TensorData(f"{tensor}.weight", name, shape, random_weight(rng, name, *shape))
        for tensor, shape in shapes.items()
    ]
    ones = np.ones(WIDTH, np.float32).tobytes()
    tensors += [
        gguf.TensorData(f"{tensor}.weight", "F32", (WIDTH,), ones)
        for tensor in ("blk.0.attn_norm", "blk.0.ffn_norm", "output_norm")
    ]
    path = tmp_path / f"{name}.gguf"
    gguf.write(path, keys, tensors)
    return path


@pytest.fixture(autouse=True)
def same_kernel_set_afterwards():
    before = kernels.isa()
    yield
    kernels.use_isa(before)


def logits(model, tokens):
    with model.context(tokens) as context:
        return np.array(context.logits)


def test_a_model_of_each_format_computes_the_same_bits_in_every_way(model_file):
    found = {}
    for isa in kernels.runnable_isas():
        kernels.use_isa(isa)
        with load(model_file, threads=1) as model:
            whole = logits(model, TOKENS)
            with model.context(TOKENS[:1]) as context:
                for token in TOKENS[1:]:
                    context.extend([token])
                assert np.array_equal(whole.view(np.uint32), np.array(context.logits).view(np.uint32))
            other = logits(model, [*TOKENS[:3], 5, *TOKENS[4:]])
        assert np.isfinite(whole).all()
        assert np.std(whole) > 0.01
        assert not np.array_equal(whole, other)
        found[isa] = whole.tobytes()

    assert len(set(found.values())) == 1, found.keys()


def test_a_model_of_each_format_means_what_the_reference_reads(model_file):
    with load(model_file, threads=1) as model:
        quantized = logits(model, TOKENS)
    with load(model_file, threads=1, dequantized=True) as model:
        exact = logits(model, TOKENS)

    # What is left is the rounding of activations to 8 bits.
    assert np.sqrt(np.mean((quantized - exact) ** 2)) < 0.06 * np.std(exact)
    for tensor in reference.GGUFReader(model_file).tensors:
        with np.errstate(all="ignore"):
            theirs = reference.dequantize(tensor.data, tensor.tensor_type).reshape(-1)
        data = np.ascontiguousarray(tensor.data).reshape(-1).view(np.uint8)
        ours = kernels.dequantize(data, tensor.tensor_type.name, theirs.size)
        assert np.array_equal(ours, theirs.astype(np.float32))
