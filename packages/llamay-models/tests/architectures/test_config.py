"""Hyper-parameters come from the metadata as llama.cpp means them; a missing or wrong key is named."""

import math
import re

import pytest

from llamay_models.architectures import ARCHITECTURES, find
from llamay_models.errors import ArchitectureError, MetadataError
from llamay_models.plan import Linear, Llama3, Yarn

COMMON = {
    "block_count": 12,
    "context_length": 4096,
    "embedding_length": 768,
    "feed_forward_length": 2048,
    "attention.head_count": 12,
    "attention.layer_norm_rms_epsilon": 1e-6,
    "vocab_size": 1000,
}


def read(name="llama", without=(), **changes):
    keys = {**COMMON, **{k.replace("__", "."): v for k, v in changes.items()}}
    metadata = {f"{name}.{k}": v for k, v in keys.items() if k not in without}
    return find({"general.architecture": name, **metadata})[1]


def check_error(text, **how):
    with pytest.raises(MetadataError, match=re.escape(text)):
        read(**how)


def test_defaults_follow_from_what_is_there():
    c = read()
    assert (c.kv_heads, c.k_dim, c.v_dim, c.vocab) == (12, 64, 64, 1000)
    assert c.scale == 0.125
    assert (c.rope.dims, c.rope.base, c.rope.style, c.rope.scaling) == (64, 10000.0, "pairs", None)


@pytest.mark.parametrize("name", ["qwen2", "qwen3", "gemma3"])
def test_only_llama_keeps_neighbouring_pairs(name):
    assert read(name).rope.style == "half"


def test_explicit_head_sizes_win():
    c = read(attention__key_length=128, attention__value_length=96, rope__dimension_count=32)
    assert (c.k_dim, c.v_dim, c.rope.dims) == (128, 96, 32)
    assert c.scale == 1 / math.sqrt(128)


def test_the_tokenizer_decides_the_size_of_the_vocabulary():
    metadata = {f"llama.{k}": v for k, v in COMMON.items()}
    tokens = {"general.architecture": "llama", "tokenizer.ggml.tokens": ["a", "b", "c"]}
    assert find({**metadata, **tokens})[1].vocab == 3


def test_the_same_number_for_every_layer_is_one_number():
    assert read(attention__head_count_kv=[4] * 12).kv_heads == 4


@pytest.mark.parametrize("key", [k for k in COMMON if k != "vocab_size"])
def test_a_missing_key_is_named(key):
    check_error(f"the key llama.{key} is missing", without=(key,))


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"block_count": 0}, "llama.block_count must be a whole number from 1 to 4096, not 0"),
        ({"block_count": "12"}, "llama.block_count must be a whole number from 1 to 4096, not '12'"),
        ({"block_count": True}, "llama.block_count must be a whole number from 1 to 4096, not True"),
        (
            {"context_length": 1.5},
            "llama.context_length must be a whole number from 1 to 2147483648, not 1.5",
        ),
        (
            {"attention__head_count_kv": 5},
            "llama.attention.head_count = 12 must be a multiple of llama.attention.head_count_kv = 5",
        ),
        (
            {"attention__head_count_kv": [4, 2]},
            "llama.attention.head_count_kv differs from layer to layer ([4, 2])",
        ),
        (
            {"embedding_length": 770},
            "llama.embedding_length = 770 must be a multiple of llama.attention.head_count = 12",
        ),
        (
            {"attention__layer_norm_rms_epsilon": 0.0},
            "llama.attention.layer_norm_rms_epsilon must be a positive number, not 0.0",
        ),
        ({"attention__layer_norm_rms_epsilon": math.nan}, "must be a positive number, not nan"),
        ({"rope__freq_base": -1.0}, "llama.rope.freq_base must be a positive number, not -1.0"),
        ({"rope__freq_base": 1.0}, "llama.rope.freq_base must be more than 1, not 1.0"),
        (
            {"rope__dimension_count": 66},
            "llama.rope.dimension_count must be even and at most the head's 64, not 66",
        ),
        (
            {"rope__dimension_count": 31},
            "llama.rope.dimension_count must be even and at most the head's 64, not 31",
        ),
        (
            {"rope__scaling__type": "longrope", "rope__scaling__factor": 2.0},
            "llama.rope.scaling.type must be one of none, linear, yarn, llama3, not 'longrope'",
        ),
        ({"expert_count": 8}, "llama.expert_count is 8, but a mixture of experts is not supported for llama"),
    ],
)
def test_a_wrong_value_is_named_with_what_it_must_be(how, message):
    check_error(message, **how)


def test_scaling_is_read_in_every_form():
    assert read(rope__scaling__type="linear", rope__scaling__factor=2.0).rope.scaling == Linear(2.0)
    assert read(rope__scale_linear=4.0).rope.scaling == Linear(4.0)
    assert read(rope__scaling__type="none", rope__scaling__factor=2.0).rope.scaling is None
    yarn = read(
        rope__scaling__type="yarn", rope__scaling__factor=4.0, rope__scaling__original_context_length=1024
    )
    assert yarn.rope.scaling == Yarn(4.0, 1024, 32.0, 1.0, 0.0)
    llama3 = read(
        rope__scaling__type="llama3", rope__scaling__factor=8.0, rope__scaling__original_context_length=8192
    )
    assert llama3.rope.scaling == Llama3(8.0, 8192, 1.0, 4.0)


def test_an_unknown_architecture_lists_the_known_ones():
    with pytest.raises(
        ArchitectureError,
        match=r"'mamba' is not supported; supported are gemma3, gpt2, llama, qwen2, qwen3$",
    ):
        find({"general.architecture": "mamba"})
    with pytest.raises(MetadataError, match=r"the key general\.architecture is missing"):
        find({})


def test_gpt2_has_norms_of_another_kind_and_no_rotation():
    keys = {"attention__layer_norm_epsilon": 1e-5}
    c = read("gpt2", without=("attention.layer_norm_rms_epsilon",), **keys)
    assert (c.eps, c.kv_heads, c.k_dim, c.context_length) == (1e-5, 12, 64, 4096)
    assert not hasattr(c, "rope")
    check_error("the key gpt2.attention.layer_norm_epsilon is missing", name="gpt2")


class TestGemma3:
    def test_defaults_are_those_of_files_that_lack_the_keys(self):
        c = read("gemma3", attention__sliding_window=512)
        assert [c.is_local(i) for i in range(7)] == [True, True, True, True, True, False, True]
        assert c.local_rope.base == 10000.0

    def test_keys_win_over_defaults(self):
        keys = {
            "attention__sliding_window": 64,
            "attention__sliding_window_pattern": 2,
            "rope__freq_base_swa": 500.0,
        }
        c = read("gemma3", **keys)
        assert [c.is_local(i) for i in range(4)] == [True, False, True, False]
        assert c.local_rope.base == 500.0

    def test_without_a_window_all_layers_are_global(self):
        assert not any(read("gemma3").is_local(i) for i in range(12))

    def test_scaling_stretches_global_layers_only(self):
        c = read("gemma3", rope__scaling__type="linear", rope__scaling__factor=8.0)
        assert c.rope.scaling == Linear(8.0)
        assert c.local_rope.scaling is None

    def test_the_largest_model_scales_by_its_width(self):
        c = read(
            "gemma3",
            block_count=62,
            embedding_length=5376,
            attention__head_count=32,
            attention__key_length=128,
        )
        assert c.scale == 1 / math.sqrt(168)


def test_every_architecture_is_registered_under_its_name():
    assert list(ARCHITECTURES) == sorted(ARCHITECTURES)
    assert all(name == a.name for name, a in ARCHITECTURES.items())
