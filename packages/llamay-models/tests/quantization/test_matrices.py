"""Which tensors are quantized: matrices that engines multiply, by names that a rule knows; nothing else."""

import importlib.util
import json
import re
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest

import llamay_kernels as kernels
import llamay_models
from llamay_models import gguf, scoring
from llamay_models.architectures import ARCHITECTURES as READ
from llamay_models.gguf import TensorData, write
from llamay_models.quantization import QuantizeError, decide, quantize_file
from llamay_models.quantization.architectures import ARCHITECTURES
from llamay_models.quantization.matrices import judge

from ..architecture_names import TEXT

FLOATS = {"F32", "F16", "BF16"}
LARGE = 4 << 20
"""Bytes of the files that these tests leave out."""

# What llama.cpp's graphs read by element, or keep in full: parts of the names of tensors that have rows.
BY_ELEMENT = re.compile(
    r"norm|conv1d|shortconv\.conv\.|ssm_[ad]$|_inp\.|_inp_shexp\.|lerp|time_mix_(first|decay|[wavg][012]|[kr]_)"
    r"|altup|laurel|per_layer_model_proj|position_embd|token_types|rel_b|rope_|\.bias|exp_probs_b"
)


def files(folder):
    """Return the small models of a folder by name."""
    found = {path.stem: path for path in sorted(folder.glob("*.gguf")) if path.stat().st_size < LARGE}
    return {name: path for name, path in found.items() if not name.startswith("lora")}


def decisions(path, kind="Q4_K_M"):
    with gguf.open(path) as file:
        return decide(file, kind), file.metadata["general.architecture"]


@pytest.mark.parametrize(
    ("name", "shape", "quantized", "reason"),
    [
        ("token_embd.weight", (512, 64), True, "table of rows"),
        ("blk.3.attn_q.weight", (64, 64), True, "matrix"),
        ("dec.blk.3.cross_attn_o.weight", (64, 64), True, "matrix"),
        ("v.blk.3.attn_out.weight", (64, 64), True, "matrix"),
        ("blk.3.ffn_up_exps.weight", (4, 64, 64), True, "matrix of each expert"),
        ("blk.3.ffn_up.2.weight", (64, 64), True, "matrix of each expert"),
        ("blk.3.attn_k_b.weight", (4, 64, 64), True, "matrix of each head"),
        ("blk.3.attn_q.weight", (64,), False, "vector"),
        ("blk.3.channel_mix_lerp_k.weight", (1, 1, 64), False, "vector"),
        ("cls.output.weight", (1, 64), False, "vector"),
        ("blk.3.attn_q_norm.weight", (4, 16), False, "norm"),
        ("blk.3.ffn_up_exps.bias", (4, 64), False, "bias or scale of each expert"),
        ("blk.3.ffn_gate_inp.weight", (4, 64), False, "router"),
        ("blk.3.ffn_gate_inp_shexp.weight", (2, 64), False, "router"),
        ("blk.3.ssm_conv1d.weight", (64, 4), False, "kernel of a convolution"),
        ("blk.3.ssm_conv1d_q.weight", (1, 64, 1, 4), False, "kernel of a convolution"),
        ("blk.3.shortconv.conv.weight", (64, 3), False, "kernel of a convolution"),
        ("posnet.0.attn_q.weight", (64, 64, 1), False, "kernel of a convolution"),
        ("blk.3.ssm_a", (64, 16), False, "numbers of a recurrent state"),
        (
            "blk.3.time_mix_lerp_fused.weight",
            (6, 1, 1, 64),
            False,
            "numbers of a recurrent state",
        ),
        ("blk.3.time_mix_w2.weight", (5, 32, 16), False, "small matrix of RWKV's decay and gates"),
        ("enc.blk.0.attn_rel_b.weight", (8, 4), False, "table of positions or types"),
        ("altup_proj.weight", (3, 64, 64), False, "small matrix that mixes parallel streams"),
    ],
)
def test_the_name_says_what_a_tensor_is(name, shape, quantized, reason):
    verdict = judge(name, shape)
    assert (verdict.quantized, verdict.reason, verdict.known) == (quantized, reason, True)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("blk.3.mystery.weight", (64, 64)),
        ("attn_q_of_something.weight", (64, 64)),
        ("blk.3.attn_q.weight", (2, 64, 64)),  # a layout that nobody has described
        ("blk.3.ffn_up_exps.weight", (2, 2, 64, 64)),
        ("blk.3.attn_q", (64, 64)),
        ("mm.input_projection.weight", (64, 64)),  # engines multiply it transposed
    ],
)
def test_what_no_rule_knows_is_kept(name, shape):
    verdict = judge(name, shape)
    assert (verdict.quantized, verdict.reason, verdict.known) == (False, "no rule knows it", False)


def test_there_are_rules_for_every_architecture_that_is_read_here():
    assert set(READ) <= ARCHITECTURES


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_K_M"])
def test_what_engines_read_by_element_is_kept_in_every_architecture(shared_data, kind):
    seen = set()
    for path in files(shared_data / "models").values():
        found, architecture = decisions(path, kind)
        seen.add(architecture)
        for d in found:
            assert d.known, (architecture, d.name)
            # Rows count: a vector may be written as a matrix of one.
            by_element = BY_ELEMENT.search(d.name) or int(np.prod(d.shape)) == d.shape[-1]
            assert d.kept == bool(by_element), (architecture, d.name, d.reason)
            assert d.target == d.source if d.kept else d.target not in FLOATS or d.shape[-1] % 32, d
    assert {"rwkv6", "rwkv7", "lfm2moe", "nemotron_h", "kimi-linear", "qwen3next", "gemma3n", "t5"} <= seen


def test_experts_are_quantized_each_by_itself(shared_data, tmp_path):
    path = shared_data / "models" / "qwen3next.gguf"
    chosen = quantize_file(path, tmp_path / "q.gguf", "Q4_0")
    experts = [d for d in chosen if d.reason == "matrix of each expert" and d.target == "Q4_0"]
    assert experts
    with gguf.open(path) as before, gguf.open(tmp_path / "q.gguf") as after:
        for d in experts:
            count, rows, columns = d.shape
            values = before.tensors[d.name].data.view(np.float32).reshape(count, rows, columns)
            alone = b"".join(kernels.quantize(np.ascontiguousarray(matrix), "Q4_0") for matrix in values)
            assert after.tensors[d.name].shape == d.shape
            assert after.tensors[d.name].data.tobytes() == alone


def outputs(path):
    """Return the logits after each token of a text, of an encoder its pooled states: float64 (rows, width)."""
    with llamay_models.load(path, threads=1) as model:
        tokens = [token % model.config.vocab for token in TEXT]
        if model.writes:
            return np.concatenate(list(scoring.logits(model, tokens))).astype(np.float64)
        return model.embed([tokens], "mean", normalize=False).astype(np.float64)


def test_every_quantized_model_loads_and_is_near_its_original(shared_data, request, tmp_path):
    """Errors by the length of a row, the median of the rows: at most 1/16 with Q8_0 and 1/3 with Q4_K_M.

    The weights are random and rows short, so that Q4_K_M is Q5_0 and Q8_0. Some rows of Falcon-Mamba, which
    normalises vectors that are nearly 0, are further away even in F16.
    """
    committed = request.path.parents[1] / "data" / "parity"
    models = {**files(committed), **files(shared_data / "models")}
    seen = set()
    for name, path in models.items():
        with gguf.open(path) as file:
            architecture = file.metadata["general.architecture"]
        if architecture not in READ:
            continue
        seen.add(architecture)
        exact = outputs(path)
        for kind, bound in (("Q8_0", 1 / 16), ("Q4_K_M", 1 / 3)):
            chosen = quantize_file(path, tmp_path / "q.gguf", kind, threads=1)
            assert any(d.target not in FLOATS for d in chosen), name
            found = outputs(tmp_path / "q.gguf")
            assert np.isfinite(found).all()
            errors = np.linalg.norm(found - exact, axis=1) / np.linalg.norm(exact, axis=1)
            assert np.median(errors) < bound, (name, kind, errors)
    assert seen == set(READ)


LLAMA_CPP = """
import json, sys
import xllamacpp

path, tokens = sys.argv[1], json.loads(sys.argv[2])
p = xllamacpp.CommonParams()
p.model.path, p.embedding, p.pooling_type = path, True, xllamacpp.llama_pooling_type(1)
p.n_ctx, p.n_gpu_layers, p.n_parallel, p.warmup, p.cpuparams.n_threads = 64, 0, 1, False, 1
data = xllamacpp.Server(p).handle_embeddings({"input": [tokens], "encoding_format": "float"})["data"]
print("states", json.dumps(data[0]["embedding"]))
"""


@pytest.mark.skipif(importlib.util.find_spec("xllamacpp") is None, reason="xllamacpp is not installed")
@pytest.mark.parametrize("name", ["rwkv6", "lfm2moe", "nemotron_h"])
def test_llama_cpp_computes_what_is_quantized_here(shared_data, tmp_path, name):
    """Kernels of convolutions, RWKV's small matrices and routers are where its graphs expect F32."""

    def states(path):
        command = [sys.executable, "-c", LLAMA_CPP, str(path), json.dumps(TEXT)]
        out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return np.array(json.loads(re.search(r"states (\[.*?\])", out)[1]))

    exact = states(shared_data / "models" / f"{name}.gguf")
    for kind, bound in (("Q8_0", 1 / 16), ("Q4_K_M", 1 / 3)):
        quantize_file(shared_data / "models" / f"{name}.gguf", tmp_path / "q.gguf", kind)
        assert np.linalg.norm(states(tmp_path / "q.gguf") - exact) < bound * np.linalg.norm(exact)


# -- mixes of experts, and of Falcon


def toy(path, architecture, tensors, **keys):
    """Write a file of zeros: tensors by name and shape."""
    written = [TensorData(name, "F32", shape, np.zeros(shape, np.float32)) for name, shape in tensors.items()]
    write(path, {"general.architecture": architecture, **keys}, written)
    return path


def layers(count, *stems):
    return {f"blk.{i}.{stem}.weight": (256, 256) for i in range(count) for stem in stems}


def targets(path, kind, **options):
    with gguf.open(path) as file:
        return {d.name: d.target for d in decide(file, kind, **options)}


def test_a_model_of_eight_experts_spends_more_on_attention(tmp_path):
    tensors = {
        "token_embd.weight": (32, 256),
        "output.weight": (32, 256),
        **layers(1, "attn_q", "attn_k", "attn_v", "attn_output"),
        "blk.0.ffn_gate_inp.weight": (8, 256),
        "blk.0.ffn_down_exps.weight": (8, 256, 256),
    }
    eight = toy(tmp_path / "8.gguf", "llama", tensors, **{"llama.expert_count": 8})
    found = targets(eight, "Q4_K_M")
    assert [found[f"blk.0.{stem}.weight"] for stem in ("attn_q", "attn_k", "attn_v", "attn_output")] == [
        "Q4_K",
        "Q8_0",
        "Q8_0",
        "Q5_K",
    ]
    assert (found["blk.0.ffn_gate_inp.weight"], found["blk.0.ffn_down_exps.weight"]) == ("F32", "Q6_K")
    assert targets(eight, "Q3_K_L")["blk.0.attn_output.weight"] == "Q3_K"
    found = targets(eight, "IQ2_XS")
    assert [found[f"blk.0.attn_{stem}.weight"] for stem in ("q", "k", "v", "output")] == [
        "IQ2_XS",
        "Q4_K",
        "Q4_K",
        "Q5_K",
    ]
    assert set(targets(eight, "Q4_K_M", pure=True).values()) == {"F32", "Q4_K"}
    more = toy(tmp_path / "64.gguf", "llama", tensors, **{"llama.expert_count": 64})
    assert targets(more, "Q4_K_M")["blk.0.attn_k.weight"] == "Q4_K"
    assert targets(more, "IQ2_XS")["blk.0.attn_v.weight"] == "Q4_K"


def test_mxfp4_is_for_experts_where_there_are_some(tmp_path):
    tensors = {
        "token_embd.weight": (32, 256),
        "output.weight": (32, 256),
        **layers(1, "attn_q", "ffn_down_shexp"),
        "blk.0.ffn_down_exps.weight": (4, 256, 256),
    }
    found = targets(toy(tmp_path / "e.gguf", "gpt-oss", tensors, **{"gpt-oss.expert_count": 4}), "MXFP4")
    assert {name for name, kind in found.items() if kind == "MXFP4"} == {"blk.0.ffn_down_exps.weight"}
    assert set(found.values()) == {"MXFP4", "Q8_0"}
    del tensors["blk.0.ffn_down_exps.weight"]
    assert targets(toy(tmp_path / "d.gguf", "llama", tensors), "MXFP4")["blk.0.attn_q.weight"] == "MXFP4"


def test_falcon_has_choices_of_its_own(tmp_path):
    tensors = {"output.weight": (32, 256), **layers(16, "attn_output", "ffn_down")}
    falcon = toy(tmp_path / "f.gguf", "falcon", tensors)
    found = targets(falcon, "Q4_K_M")
    assert found["output.weight"] == "Q8_0"
    assert [found[f"blk.{i}.ffn_down.weight"] for i in range(5)] == ["Q6_K", "Q5_K", "Q4_K", "Q4_K", "Q5_K"]
    assert targets(falcon, "Q3_K_L")["blk.0.attn_output.weight"] == "Q4_K"
    assert targets(falcon, "F16")["output.weight"] == "F16"


def test_values_of_a_llama_of_70_billion_get_more(tmp_path):
    heads = {"llama.attention.head_count": 64, "llama.attention.head_count_kv": 8}
    large = toy(tmp_path / "l.gguf", "llama", layers(80, "attn_v"), **heads)
    assert Counter(targets(large, "Q4_K_M").values()) == {"Q5_K": 40, "Q6_K": 40}
    small = toy(tmp_path / "s.gguf", "llama", layers(32, "attn_v"), **heads)
    assert Counter(targets(small, "Q4_K_M").values()) == {"Q4_K": 16, "Q6_K": 16}


def test_values_are_counted_among_layers_with_attention(tmp_path):
    """A hybrid has attention in some layers: the first and last of these are the outer ones."""
    tensors = {f"blk.{i}.attn_v.weight": (256, 256) for i in range(3, 32, 4)} | layers(32, "ffn_down")
    heads = [0, 0, 0, 2] * 8
    keys = {"jamba.attention.head_count": 8, "jamba.attention.head_count_kv": np.array(heads, np.int32)}
    hybrid = toy(tmp_path / "j.gguf", "jamba", tensors, **keys)
    found = targets(hybrid, "Q3_K_M")
    assert [found[f"blk.{i}.attn_v.weight"] for i in range(3, 32, 4)] == ["Q5_K"] * 2 + ["Q4_K"] * 6
    # Four query heads share a key/value head in the layers that have any.
    assert {targets(hybrid, "IQ4_XS")[name] for name in tensors if "attn_v" in name} == {"Q5_K"}


def test_encoder_and_decoder_count_their_own_layers(tmp_path):
    names = [f"{stack}.blk.{i}.ffn_down.weight" for stack in ("enc", "dec") for i in range(8)]
    found = targets(toy(tmp_path / "t.gguf", "t5", dict.fromkeys(names, (256, 256))), "Q4_K_S")
    assert {name for name, kind in found.items() if kind == "Q5_K"} == {
        "enc.blk.0.ffn_down.weight",
        "dec.blk.0.ffn_down.weight",
    }


def test_the_table_of_each_layer_gets_what_the_table_gets(tmp_path):
    tensors = {"token_embd.weight": (32, 256), "per_layer_token_embd.weight": (32, 256)}
    tied = toy(tmp_path / "g.gguf", "gemma3n", tensors)
    assert set(targets(tied, "Q4_K_M").values()) == {"Q6_K"}
    assert targets(tied, "Q4_K_M", embedding="Q8_0")["per_layer_token_embd.weight"] == "Q8_0"
    untied = toy(tmp_path / "u.gguf", "gemma3n", tensors | {"output.weight": (32, 256)})
    assert targets(untied, "TQ2_0")["per_layer_token_embd.weight"] == "Q4_K"


def test_logits_of_rows_that_are_no_whole_blocks_are_q8_0(tmp_path):
    tied = toy(tmp_path / "t.gguf", "llama", {"token_embd.weight": (32, 96)})
    assert targets(tied, "IQ2_XS") == {"token_embd.weight": "Q8_0"}


# -- what is refused


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"general.architecture": "brandnew"}, "there are no rules for the architecture 'brandnew'"),
        ({}, "does not name its architecture (general.architecture)"),
        ({"general.architecture": 7}, "does not name its architecture (general.architecture)"),
        ({"general.architecture": "llama", "general.type": "adapter"}, "is an adapter, not a model"),
    ],
)
def test_a_file_that_is_no_model_with_rules_is_refused_before_anything_is_written(tmp_path, keys, words):
    data = np.zeros((32, 256), np.float32)
    write(tmp_path / "m.gguf", keys, [TensorData("token_embd.weight", "F32", data.shape, data)])
    for pure in (False, True):
        with pytest.raises(QuantizeError, match=re.escape(words)):
            quantize_file(tmp_path / "m.gguf", tmp_path / "q.gguf", "Q8_0", pure=pure)
    assert [p.name for p in tmp_path.iterdir()] == ["m.gguf"]
