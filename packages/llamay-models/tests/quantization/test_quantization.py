"""Which tensor gets which format, and that the file which is written is the model in those formats."""

import errno
import re
import shutil

import numpy as np
import pytest

import llamay_kernels as kernels
import llamay_models
from llamay_models import gguf
from llamay_models.gguf import FORMATS, TensorData, write
from llamay_models.quantization import (
    MIXES,
    Place,
    QuantizeError,
    decide,
    fitting,
    format_of,
    quantize_file,
)

WIDTH, HIDDEN, VOCAB, LAYERS = 256, 512, 96, 16


@pytest.fixture
def model(tmp_path):
    """Return a function that writes a small model of a kind of Qwen2 in F16, or in what is asked for."""

    def make(name="model.gguf", *, tied=True, width=WIDTH, source="F16", values=None, **metadata):
        rng = np.random.default_rng(0)
        tensors = []

        def put(tensor, *shape):
            array = (rng.standard_normal(shape) * 0.05).astype(np.float32)
            if values is not None:
                array = values(tensor, array)
            kind = source if len(shape) > 1 else "F32"
            data = np.frombuffer(kernels.quantize(array, kind), np.uint8)
            tensors.append(TensorData(tensor, kind, shape, data))

        put("token_embd.weight", VOCAB, width)
        if not tied:
            put("output.weight", VOCAB, width)
        put("output_norm.weight", width)
        for i in range(LAYERS):
            for stem, rows, columns in (
                ("attn_q", width, width),
                ("attn_k", width // 4, width),
                ("attn_v", width // 4, width),
                ("attn_output", width, width),
                ("ffn_gate", HIDDEN, width),
                ("ffn_up", HIDDEN, width),
                ("ffn_down", width, HIDDEN),
            ):
                put(f"blk.{i}.{stem}.weight", rows, columns)
                if stem in ("attn_q", "attn_k", "attn_v"):
                    put(f"blk.{i}.{stem}.bias", rows)
            put(f"blk.{i}.attn_norm.weight", width)
            put(f"blk.{i}.ffn_norm.weight", width)
        keys = {
            "general.architecture": "qwen2",
            "general.name": "small",
            "qwen2.block_count": LAYERS,
            "qwen2.context_length": 128,
            "qwen2.embedding_length": width,
            "qwen2.feed_forward_length": HIDDEN,
            "qwen2.attention.head_count": 8,
            "qwen2.attention.head_count_kv": 2,
            "qwen2.attention.layer_norm_rms_epsilon": 1e-6,
            "qwen2.vocab_size": VOCAB,
            **metadata,
        }
        path = tmp_path / name
        write(path, keys, tensors)
        return path

    return make


def formats(path):
    with gguf.open(path) as file:
        return {name: info.format for name, info in file.tensors.items()}


# -- the recipe


def test_q4_k_m_spends_more_bits_on_outer_layers(model, tmp_path):
    quantize_file(model(), tmp_path / "q.gguf", "Q4_K_M")
    found = formats(tmp_path / "q.gguf")
    assert found["token_embd.weight"] == "Q6_K"  # it gives the logits too
    more = {i for i in range(LAYERS) if found[f"blk.{i}.ffn_down.weight"] == "Q6_K"}
    assert more == {0, 1, 4, 7, 10, 13, 14, 15}
    assert more == {i for i in range(LAYERS) if found[f"blk.{i}.attn_v.weight"] == "Q6_K"}
    assert {f for n, f in found.items() if n.endswith(("ffn_up.weight", "attn_q.weight"))} == {"Q4_K"}
    assert {f for n, f in found.items() if n.endswith(("norm.weight", "bias"))} == {"F32"}


def test_an_untied_model_keeps_its_logits_finer_than_its_table(model, tmp_path):
    quantize_file(model(tied=False), tmp_path / "q.gguf", "Q4_K_S")
    found = formats(tmp_path / "q.gguf")
    assert (found["output.weight"], found["token_embd.weight"]) == ("Q6_K", "Q4_K")
    assert [found[f"blk.{i}.attn_v.weight"] for i in range(5)] == ["Q5_K"] * 4 + ["Q4_K"]
    assert [found[f"blk.{i}.ffn_down.weight"] for i in range(3)] == ["Q5_K"] * 2 + ["Q4_K"]


def test_rows_that_are_no_whole_blocks_take_a_format_with_smaller_blocks():
    sizes = {name: size for name, (size, _) in kernels.FORMATS.items()}
    assert [fitting(name, 896, sizes) for name in ("Q4_K", "Q5_K", "Q6_K", "IQ4_XS", "TQ2_0", "Q8_0")] == [
        "Q5_0",
        "Q5_1",
        "Q8_0",
        "IQ4_NL",
        "Q4_0",
        "Q8_0",
    ]
    assert fitting("Q4_K", 100, sizes) == "F16"
    assert fitting("Q4_K", 512, sizes) == "Q4_K"


@pytest.mark.parametrize("kind", MIXES)
def test_every_mix_is_made_of_formats_that_can_be_written(kind):
    mix = MIXES[kind]
    stems = ("attn_q", "attn_k", "attn_v", "attn_qkv", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
    for shared in (1, 8):
        for layer in range(24):
            for stem in stems:
                name = format_of(mix, f"blk.{layer}.{stem}.weight", Place(layer, 24, shared), tied=True)
                block, _ = kernels.FORMATS[name]
                kernels.quantize(np.zeros(block, np.float32), name)


def test_options_override_the_mix(model):
    with gguf.open(model(tied=False)) as file:
        pure = {d.target for d in decide(file, "Q4_K_M", pure=True) if len(d.shape) > 1}
        chosen = {d.name: d.target for d in decide(file, "Q4_K_M", output="Q8_0", embedding="F16")}
    assert pure == {"Q4_K"}
    assert (chosen["output.weight"], chosen["token_embd.weight"]) == ("Q8_0", "F16")


def test_positions_are_kept(tmp_path):
    data = np.zeros((64, 32), np.float32)
    path = tmp_path / "g.gguf"
    tensors = [TensorData(n, "F32", data.shape, data) for n in ("position_embd.weight", "token_embd.weight")]
    write(path, {"general.architecture": "gpt2"}, tensors)
    with gguf.open(path) as file:
        assert {d.name: d.target for d in decide(file, "Q8_0")} == {
            "position_embd.weight": "F32",
            "token_embd.weight": "Q8_0",
        }


# -- the file


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_K_M", "BF16"])
def test_the_file_holds_each_tensor_quantized_by_itself(model, tmp_path, kind, monkeypatch):
    source, target = model(), tmp_path / "q.gguf"
    monkeypatch.setattr("llamay_models.quantization.file._PIECE", 3000)  # many pieces, and a shorter last one
    done = []
    decisions = quantize_file(source, target, kind, threads=3, progress=lambda *p: done.append(p))
    with gguf.open(source) as before, gguf.open(target) as after:
        for d in decisions:
            old, new = before.tensors[d.name], after.tensors[d.name]
            values = kernels.dequantize(old.data.data, old.format, int(np.prod(old.shape)))
            expected = (
                old.data.tobytes()
                if d.source == d.target
                else kernels.quantize(values.reshape(old.shape), d.target)
            )
            assert new.format == d.target
            assert new.data.tobytes() == expected
            assert new.nbytes == d.target_bytes
    assert all(
        stage == "quantizing" and total == sum(d.source_bytes for d in decisions) for stage, _, total in done
    )
    amounts = [amount for _, amount, _ in done]
    assert amounts == sorted(amounts)
    assert abs(amounts[-1] / done[-1][2] - 1) < 0.01


def test_metadata_keep_their_values_and_types(model, tmp_path):
    keys = {
        "x.long": np.uint64(5),
        "x.short": np.int8(-3),
        "x.double": np.float64(0.1),
        "x.flag": True,
        "x.words": ["a", "é"],
        "x.numbers": np.array([1, 2], np.int64),
        "split.no": np.uint16(0),
        "general.file_type": 1,
    }
    source = model(**keys)
    quantize_file(source, tmp_path / "q.gguf", "Q8_0")
    with gguf.open(source) as before, gguf.open(tmp_path / "q.gguf") as after:
        for key in before.metadata:
            if key in ("split.no", "general.file_type"):
                continue
            assert after.metadata.type_of(key) == before.metadata.type_of(key)
            assert np.array_equal(after.metadata.raw(key), before.metadata.raw(key))
        assert "split.no" not in after.metadata
        assert after.metadata["general.file_type"] == 7
        assert after.metadata["general.quantization_version"] == 2


def test_the_quantized_model_is_near_the_original(model, tmp_path):
    source, tokens = model(), list(range(1, 40))
    with llamay_models.load(source, threads=1) as loaded, loaded.context(tokens) as context:
        exact = np.array(context.logits, np.float64)
    errors = {}
    for kind in ("Q8_0", "Q5_K_M", "Q4_K_M", "Q2_K"):
        quantize_file(source, tmp_path / "q.gguf", kind)
        with llamay_models.load(tmp_path / "q.gguf", threads=1) as loaded, loaded.context(tokens) as context:
            errors[kind] = float(np.abs(context.logits - exact).mean() / np.abs(exact).mean())
    assert list(errors.values()) == sorted(errors.values())
    assert errors["Q8_0"] < 0.05
    assert errors["Q2_K"] < 1.0


def test_a_split_model_becomes_one_file(shared_data, tmp_path):
    part = shared_data / "models" / "split" / "s-00001-of-00003.gguf"
    whole = shared_data / "models" / "stories260K.gguf"
    quantize_file(part, tmp_path / "a.gguf", "Q8_0", requantize=True)
    quantize_file(whole, tmp_path / "b.gguf", "Q8_0", requantize=True)
    with gguf.open(tmp_path / "a.gguf") as a, gguf.open(tmp_path / "b.gguf") as b:
        assert {n: t.data.tobytes() for n, t in a.tensors.items()} == {
            n: t.data.tobytes() for n, t in b.tensors.items()
        }


# -- what is refused


def test_an_unknown_type_lists_the_known_ones(model, tmp_path):
    with pytest.raises(QuantizeError, match=r"there is no type 'Q9_Z'; the types are F32, F16, .*MXFP4"):
        quantize_file(model(), tmp_path / "q.gguf", "Q9_Z")


def test_a_format_that_is_not_there_is_refused_before_anything_is_written(model, tmp_path):
    with pytest.raises(QuantizeError, match="there is no format 'Q7' to write"):
        quantize_file(model(), tmp_path / "q.gguf", "Q8_0", embedding="Q7")
    assert not (tmp_path / "q.gguf").exists()


def test_what_is_quantized_already_needs_permission(model, tmp_path):
    source = model(source="Q8_0")
    with pytest.raises(QuantizeError, match=r"token_embd\.weight is Q8_0 already"):
        quantize_file(source, tmp_path / "q.gguf", "Q4_K_M")
    quantize_file(source, tmp_path / "q.gguf", "Q4_K_M", requantize=True)
    quantize_file(source, tmp_path / "same.gguf", "Q8_0")  # nothing changes, so nothing is lost


def test_the_source_is_never_the_target(model, tmp_path):
    source = model()
    (tmp_path / "link.gguf").symlink_to(source)
    before = source.read_bytes()
    for target in (source, tmp_path / "link.gguf"):
        with pytest.raises(QuantizeError, match="is the source; write to another file"):
            quantize_file(source, target, "Q8_0")
    assert source.read_bytes() == before


def test_a_value_that_no_block_holds_names_its_tensor_and_leaves_nothing(model, tmp_path):
    def spoil(name, values):
        if name == "blk.3.ffn_up.weight":
            values[0, 0] = np.nan
        return values

    target = tmp_path / "q.gguf"
    target.write_bytes(b"what was there")
    with pytest.raises(
        QuantizeError, match=re.escape("the tensor blk.3.ffn_up.weight cannot be written as Q8_0")
    ):
        quantize_file(model(values=spoil), target, "Q8_0")
    assert target.read_bytes() == b"what was there"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.gguf", "q.gguf"]


def test_stopping_leaves_nothing(model, tmp_path):
    def stop(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        quantize_file(model(), tmp_path / "q.gguf", "Q8_0", progress=stop)
    assert [p.name for p in tmp_path.iterdir()] == ["model.gguf"]


def test_a_full_disk_is_said_before_anything_is_written(model, tmp_path, monkeypatch):
    source = model()
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    with pytest.raises(OSError, match=r"bytes are needed but 1,000 are free") as error:
        quantize_file(source, tmp_path / "q.gguf", "Q8_0")
    assert error.value.errno == errno.ENOSPC


def test_every_format_of_files_has_a_size_here():
    assert set(kernels.FORMATS) <= set(FORMATS)
