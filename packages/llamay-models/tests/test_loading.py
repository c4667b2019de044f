"""A file becomes a model that computes what it should, or one clear error before anything runs."""

import re
import threading
from pathlib import Path

import numpy as np
import pytest

from llamay_models import gguf, load, scoring
from llamay_models.engine import Sampling
from llamay_models.errors import ArchitectureError, MetadataError, ModelError, TensorError
from llamay_models.plan import explain

from .architecture_names import TEXT

TOKENS = list(TEXT)


def all_logits(model, tokens=TOKENS):
    return np.concatenate(list(scoring.logits(model, tokens)))


def test_a_draft_model_is_loaded_and_closed_with_the_model_that_it_drafts_for(shared_data):
    path = shared_data / "models" / "stories260K.gguf"
    sampling = Sampling(seed=3, temperature=1.0)
    with load(path, threads=1, speculation=False) as plain:
        tokens = plain.encode("Once upon a time")
        expected = plain.context(tokens).generate(sampling, max_tokens=60).text
    with load(path, threads=1, draft=str(path)) as model:
        assert model.context(tokens).generate(sampling, max_tokens=60).text == expected
        assert model.engine.stats.accepted_tokens > 0
        draft = model._parts.draft
    assert draft.engine.closed
    with load(path, threads=1) as draft:
        load(path, threads=1, draft=draft).close()
        assert not draft.engine.closed  # it is somebody else's


def test_a_draft_of_another_vocabulary_is_refused_and_closed(shared_data):
    models = shared_data / "models"
    before = threading.active_count()
    with pytest.raises(ModelError, match=r"cannot draft for this model: .* use a draft of the same family"):
        load(models / "stories260K.gguf", threads=1, draft=models / "qwen3.gguf")
    assert threading.active_count() <= before


@pytest.mark.parametrize("name", ["qwen3", "gemma3"])
def test_logits_are_those_of_transformers(shared_data, name):
    with load(shared_data / "models" / f"{name}.gguf", kv="f32", threads=1) as model:
        expected = np.load(shared_data / "models" / f"{name}.logits.npy")
        np.testing.assert_allclose(all_logits(model), expected, atol=1e-4)


def test_a_split_model_is_the_whole_model(shared_data):
    whole = load(shared_data / "models" / "stories260K.gguf", threads=1)
    split = load(shared_data / "models" / "split" / "s-00002-of-00003.gguf", threads=1)
    tokens = whole.encode("Once upon a time there was a little girl")
    assert np.array_equal(all_logits(whole, tokens), all_logits(split, tokens))
    greedy = Sampling(temperature=0)
    text = whole.context(tokens).generate(greedy, max_tokens=40).text
    assert text == split.context(tokens).generate(greedy, max_tokens=40).text
    assert text.startswith(" named ")
    whole.close()
    split.close()


def test_a_model_says_what_it_is(shared_data):
    path = shared_data / "models" / "stories260K.gguf"
    with load(path, threads=2, ctx_size=100) as model:
        assert (model.architecture, model.name, model.path, model.threads) == ("llama", "llama", path, 2)
        assert (model.vocab_size, model.embedding_length, model.context_length) == (512, 64, 2048)
        assert model.context_size == 100
        assert model.n_parameters == 292_800
        assert model.nbytes >= 4 * model.n_parameters
        assert model.metadata["llama.block_count"] == 5
        assert "tokenizer.ggml.tokens" not in model.metadata
        assert re.fullmatch("[0-9a-f]{64}", model.sha256)
        assert model.chat_template is None
        assert "linear_group" in explain(model.program)


def test_dequantized_weights_are_the_values_that_the_file_means(tmp_path, quantized):
    path, reference = quantized
    with load(path, kv="f32", dequantized=True, threads=1) as model:
        np.testing.assert_allclose(all_logits(model, [3, 4, 5]), reference([3, 4, 5]), atol=2e-4)
        exact = model.identity
    with load(path, kv="f32", threads=1) as model:
        logits = all_logits(model, [3, 4, 5])
        assert model.identity.difference(exact) == "dequantized"
        np.testing.assert_allclose(logits, reference([3, 4, 5]), atol=0.3)
        assert not np.allclose(logits, reference([3, 4, 5]), atol=2e-4)


def test_progress_counts_bytes_and_may_stop_the_load(shared_data):
    path, seen = shared_data / "models" / "stories260K.gguf", []
    load(path, progress=lambda *a: seen.append(a)).close()
    assert seen[-1] == ("loading", 1_171_200, 1_171_200)
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)

    def stop(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load(path, progress=stop)


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ({"kv": "f8"}, "kv must be one of f16, f32, vq8, q8, not 'f8'"),
        ({"threads": 0}, "threads must be a whole number from 1 to 1024, not 0"),
        ({"threads": "2"}, "threads must be a whole number from 1 to 1024, not '2'"),
        ({"max_rows": 0}, "max_rows must be a whole number from 1 to 8192, not 0"),
        ({"max_sequences": 0}, "max_sequences must be a whole number from 1 on, not 0"),
        ({"max_sequences": -1}, "max_sequences must be a whole number from 1 on, not -1"),
        ({"max_queue": -1}, "max_queue must be a whole number from 0 on, not -1"),
        ({"page_tokens": 8}, "page_tokens must be a whole number from 16 to 1024, not 8"),
        ({"kv_budget": 1.5e9}, "kv_budget must be a whole number from 0 on, not 1500000000.0"),
        ({"kv_budget": 0}, "kv_budget must be at least [0-9]+ bytes for this model, not 0"),
        ({"prefix_cache": -1}, "prefix_cache must be a whole number from 0 on, not -1"),
        ({"ctx_size": 0}, "ctx_size must be a whole number from 1 on, not 0"),
        ({"ctx_size": True}, "ctx_size must be a whole number from 1 on, not True"),
        ({"max_stall": "soon"}, "max_stall is 'soon'; write 2.5x"),
        ({"max_stall": 2.5}, "max_stall is 2.5; write 2.5x"),
    ],
)
def test_an_argument_out_of_range_is_named(shared_data, argument, message):
    with pytest.raises(ValueError, match=message):
        load(shared_data / "models" / "stories260K.gguf", **argument)


class TestBadFiles:
    def test_an_unknown_architecture_is_named(self, shared_data):
        with pytest.raises(ArchitectureError, match="'rwkv6' is not supported"):
            load(shared_data / "models" / "rwkv6.gguf")

    def test_a_plan_that_the_backend_refuses_names_the_file(self, write_model):
        def tiny(keys, tensors):
            keys["llama.rope.scaling.type"] = "linear"
            keys["llama.rope.scaling.factor"] = np.float32(1e-42)

        path = write_model(tiny)
        with pytest.raises(ModelError, match=r"model\.gguf: what its metadata describe cannot be computed: "):
            load(path)

    def test_a_missing_key_is_named(self, write_model):
        path = write_model(lambda keys, tensors: keys.pop("llama.block_count"))
        with pytest.raises(MetadataError, match=r"the key llama\.block_count is missing"):
            load(path)

    def test_a_missing_tensor_is_named(self, write_model):
        path = write_model(lambda keys, tensors: tensors.pop("blk.1.ffn_up.weight"))
        with pytest.raises(TensorError, match=r"model\.gguf .*blk\.1\.ffn_up\.weight is missing \(48 x 32\)"):
            load(path)

    def test_a_wrong_shape_is_named(self, write_model):
        def change(keys, tensors):
            tensors["output_norm.weight"] = np.zeros(31, np.float32)

        with pytest.raises(
            TensorError, match=r"output_norm\.weight is a vector of 31 but must be a vector of 32"
        ):
            load(write_model(change))

    def test_a_stack_of_matrices_is_refused_where_it_does_not_fit(self, write_model):
        def change(keys, tensors):
            tensors["output_norm.weight"] = np.zeros((2, 4, 5), np.float32)

        with pytest.raises(TensorError, match=r"output_norm\.weight is 8 x 5 but must be a vector of 32"):
            load(write_model(change))

    def test_a_format_without_kernels_is_named(self, write_model):
        path = write_model(formats={"blk.0.ffn_up.weight": ("I8", 48 * 32)})
        with pytest.raises(
            TensorError, match=r"blk\.0\.ffn_up\.weight .* has the format I8; supported are BF16, F16"
        ):
            load(path)

    def test_what_is_no_model_at_all_says_so(self, tmp_path):
        (tmp_path / "text.gguf").write_text("hello")
        with pytest.raises(ModelError, match=r"text\.gguf"):
            load(tmp_path / "text.gguf")
        with pytest.raises(OSError, match="No such file"):
            load(tmp_path / "none.gguf")


@pytest.fixture
def write_model(tmp_path, small_model):
    """`write_model(change)`: a small llama as a file, after `change(metadata, arrays)`."""

    def write(change=lambda keys, tensors: None, formats=None, quantize=None):
        small = small_model("llama", **{"attention.head_count": 2, "attention.head_count_kv": 1})
        c, b = small.config, small.config.blocks[0]
        keys = {
            "general.architecture": "llama",
            "llama.block_count": c.layers,
            "llama.context_length": c.context_length,
            "llama.embedding_length": c.width,
            "llama.feed_forward_length": b.hidden,
            "llama.attention.head_count": b.heads,
            "llama.attention.head_count_kv": b.kv_heads,
            "llama.attention.key_length": b.k_dim,
            "llama.attention.value_length": b.v_dim,
            "llama.attention.layer_norm_rms_epsilon": c.eps,
            "llama.vocab_size": c.vocab,
        }
        tensors = {name: t.values for name, t in small.tensors.items()}
        change(keys, tensors)
        stored = []
        for name, values in tensors.items():
            kind, data = "F32", values.tobytes()
            if formats and name in formats:
                kind, size = formats[name]
                data = bytes(size)
            elif quantize and values.ndim == 2:
                kind, data = "Q8_0", quantize(values)
            stored.append(gguf.TensorData(name, kind, values.shape, data))
        path = tmp_path / "model.gguf"
        gguf.write(path, keys, stored)
        return path

    return write


@pytest.fixture
def quantized(write_model, small_model):
    """A Q8_0 file, and the reference logits of what its numbers mean."""
    import llamay_kernels as kernels

    meant = {}

    def quantize(values):
        data = kernels.quantize(np.ascontiguousarray(values).reshape(-1), "Q8_0")
        meant[values.tobytes()] = kernels.dequantize(np.frombuffer(data, np.uint8), "Q8_0", values.size)
        return bytes(data)

    def change(keys, tensors):
        # Rows of whole blocks of 32.
        keys["llama.feed_forward_length"] = 64
        rng = np.random.default_rng(5)
        for name, values in tensors.items():
            if "ffn_down" in name:
                tensors[name] = (rng.normal(size=(32, 64)) / 5).astype(np.float32)
            elif "ffn" in name and values.ndim == 2:
                tensors[name] = (rng.normal(size=(64, 32)) / 4).astype(np.float32)
        change.tensors = tensors

    path = write_model(change, quantize=quantize)
    small = small_model(
        "llama", feed_forward_length=64, **{"attention.head_count": 2, "attention.head_count_kv": 1}
    )
    for name, values in change.tensors.items():
        small.tensors[name].values = (
            meant[values.tobytes()].reshape(values.shape) if values.ndim == 2 else values
        )
    return path, small.reference


def shapes_of(width):
    """Return the matrices of a layer of a small llama."""
    attention = dict.fromkeys(("attn_q", "attn_k", "attn_v", "attn_output"), (width, width))
    up = dict.fromkeys(("ffn_gate", "ffn_up"), (2 * width, width))
    return attention | up | {"ffn_down": (width, 2 * width)}


def some(rng, rows, cols):
    return rng.standard_normal((rows, cols)).astype(np.float32) * np.float32(0.05)


def test_a_loaded_model_keeps_none_of_the_weights_in_the_mapped_file(tmp_path):
    """Pages that were packed are given up: memory holds every weight once."""
    smaps = Path("/proc/self/smaps")
    if not smaps.exists():
        pytest.skip("only Linux says what of a mapped file is in memory")
    rng, width, layers = np.random.default_rng(0), 512, 4
    names = {
        f"blk.{i}.{stem}.weight": shape for i in range(layers) for stem, shape in shapes_of(width).items()
    }
    tensors = [gguf.TensorData("token_embd.weight", "F32", (2048, width), some(rng, 2048, width))]
    tensors += [gguf.TensorData(name, "F32", shape, some(rng, *shape)) for name, shape in names.items()]
    tensors += [
        gguf.TensorData(name, "F32", (width,), np.ones(width, np.float32))
        for name in (
            "output_norm.weight",
            *(f"blk.{i}.{n}_norm.weight" for i in range(layers) for n in ("attn", "ffn")),
        )
    ]
    keys = {
        "general.architecture": "llama",
        "llama.block_count": layers,
        "llama.context_length": 64,
        "llama.embedding_length": width,
        "llama.feed_forward_length": 2 * width,
        "llama.attention.head_count": 4,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.vocab_size": 2048,
    }
    path = tmp_path / "model.gguf"
    gguf.write(path, keys, tensors)
    size = path.stat().st_size
    assert size > 32 << 20
    with load(path, threads=2) as model:
        model.context(TOKENS).close()
        kept, ours = 0, False
        for line in smaps.read_text().splitlines():
            if re.match("[0-9a-f]+-[0-9a-f]+ ", line):
                ours = line.endswith(str(path))
            elif ours and line.startswith("Rss:"):
                kept += int(line.split()[1]) << 10
    assert kept < size / 20
