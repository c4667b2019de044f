"""Hyper-parameters come from the metadata as llama.cpp means them; a missing or wrong key is named."""

import math
import re
from typing import ClassVar

import numpy as np
import pytest

from llamay_models.architectures import ARCHITECTURES, Experts, Keys, find
from llamay_models.errors import ArchitectureError, MetadataError
from llamay_models.plan import LinearScaling, Llama3Scaling, YarnScaling, memories

from ..architecture_names import DENSE

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
    assert (c.vocab, c.layers, len(c.blocks), len(set(c.blocks))) == (1000, 12, 12, 1)
    b = c.blocks[0]
    assert (b.kv_heads, b.k_dim, b.v_dim, b.hidden, b.window, b.experts) == (12, 64, 64, 2048, 0, None)
    assert b.scale == 0.125
    assert (b.rope.dims, b.rope.base, b.rope.style, b.rope.scaling) == (64, 10000.0, "pairs", None)


@pytest.mark.parametrize("name", ["qwen2", "qwen3", "gemma3"])
def test_only_llama_keeps_neighbouring_pairs(name):
    assert read(name).blocks[-1].rope.style == "half"


def test_explicit_head_sizes_win():
    b = read(attention__key_length=128, attention__value_length=96, rope__dimension_count=32).blocks[0]
    assert (b.k_dim, b.v_dim, b.rope.dims) == (128, 96, 32)
    assert b.scale == 1 / math.sqrt(128)


def test_the_tokenizer_decides_the_size_of_the_vocabulary():
    metadata = {f"llama.{k}": v for k, v in COMMON.items()}
    tokens = {"general.architecture": "llama", "tokenizer.ggml.tokens": ["a", "b", "c"]}
    assert find({**metadata, **tokens})[1].vocab == 3


class TestLayers:
    """What differs from layer to layer comes as a list."""

    def test_a_number_is_for_all_layers_and_a_list_for_each(self):
        c = read(block_count=3, attention__head_count_kv=[4, 2, 12], feed_forward_length=[64, 128, 256])
        assert [b.kv_heads for b in c.blocks] == [4, 2, 12]
        assert [b.hidden for b in c.blocks] == [64, 128, 256]
        assert [b.heads for b in c.blocks] == [12, 12, 12]

    def test_heads_of_each_layer_have_their_own_size_scale_and_rotation(self):
        c = read(block_count=2, attention__key_length=np.array([64, 32], np.uint32))
        assert [(b.k_dim, b.v_dim, b.rope.dims) for b in c.blocks] == [(64, 64, 64), (32, 32, 32)]
        assert [b.scale for b in c.blocks] == [1 / 8, 1 / math.sqrt(32)]

    def test_key_and_value_heads_follow_the_query_heads_of_their_layer(self):
        c = read(block_count=2, attention__head_count=[12, 8], attention__key_length=64)
        assert [b.kv_heads for b in c.blocks] == [12, 8]

    @pytest.mark.parametrize("name", DENSE)
    def test_the_plan_follows_them(self, small_model, name):
        keys = {"block_count": 2, "attention.head_count": [4, 6], "attention.head_count_kv": [2, 3]}
        keys |= {"attention.key_length": [16, 8], "attention.value_length": [8, 8]}
        model = small_model(name, **keys, feed_forward_length=[48, 24])
        kept = memories(model.trace())
        assert [(m.layer, m.heads, m.k_dim, m.v_dim) for m in kept] == [(0, 2, 16, 8), (1, 3, 8, 8)]
        assert np.isfinite(model.reference([3, 4, 5])).all()

    @pytest.mark.parametrize(
        ("how", "message"),
        [
            (
                {"attention__head_count_kv": [4, 2]},
                "llama.attention.head_count_kv has 2 entries for 12 layers",
            ),
            (
                {"block_count": 2, "attention__head_count_kv": [4, 5]},
                "llama.attention.head_count = 12 must be a multiple of llama.attention.head_count_kv = 5 in layer 1",
            ),
            (
                {"block_count": 2, "attention__head_count_kv": [4, 0]},
                "llama.attention.head_count_kv must be a whole number from 1 to 65536, not 0",
            ),
            (
                {"block_count": 2, "feed_forward_length": ["64", 32]},
                "llama.feed_forward_length must be a whole number from 1 to 16777216, not '64'",
            ),
        ],
    )
    def test_a_wrong_list_is_named(self, how, message):
        check_error(message, **how)


class TestExperts:
    MOE: ClassVar = {"expert_count": 8, "expert_used_count": 2, "expert_feed_forward_length": 96}

    @pytest.mark.parametrize("name", ["llama", "qwen3moe"])
    def test_they_stand_in_place_of_the_mlp(self, name):
        c = read(name, **self.MOE)
        assert c.blocks[5].experts == Experts(8, 2, 96, "softmax", True)

    def test_their_width_is_that_of_an_mlp_where_nothing_else_is_said(self):
        assert read(expert_count=8, expert_used_count=2).blocks[0].experts.hidden == 2048

    def test_the_first_layers_may_have_none(self):
        c = read("qwen3moe", **self.MOE, block_count=3, leading_dense_block_count=1)
        assert [b.experts is None for b in c.blocks] == [True, False, False]

    def test_how_many_are_used_may_differ_from_layer_to_layer(self):
        c = read("qwen3moe", **{**self.MOE, "expert_used_count": [2, 4]}, block_count=2)
        assert [b.experts.used for b in c.blocks] == [2, 4]

    def test_a_scale_of_0_is_none(self):
        assert read(**self.MOE, expert_weights_scale=0.0).blocks[0].experts.scale == 1.0
        assert read(**self.MOE, expert_weights_scale=2.5).blocks[0].experts.scale == 2.5

    @pytest.mark.parametrize(
        ("name", "how", "message"),
        [
            ("qwen3", {}, "qwen3.expert_count is 8, but a mixture of experts is not supported for qwen3"),
            (
                "llama",
                {"expert_used_count": 9},
                "llama.expert_used_count must be a whole number from 1 to 8, not 9",
            ),
            (
                "llama",
                {"expert_used_count": 0},
                "expert_used_count must be a whole number from 1 to 8, not 0",
            ),
            (
                "llama",
                {"expert_gating_func": 2},
                "llama.expert_gating_func is 2 (sigmoid), but experts of llama are chosen by softmax",
            ),
            (
                "llama",
                {"expert_weights_norm": False},
                "llama.expert_weights_norm is False, but weights of llama are divided by their sum",
            ),
            (
                "llama",
                {"expert_group_count": 3},
                "llama.expert_count = 8 must be a multiple of llama.expert_group_count = 3",
            ),
            ("llama", {"expert_count": 1 << 20}, "expert_count must be a whole number from 0 to 16384"),
        ],
    )
    def test_a_wrong_value_is_named(self, name, how, message):
        check_error(message, name=name, **{**self.MOE, **how})


class TestMamba:
    SSM: ClassVar = {
        "ssm__conv_kernel": 4,
        "ssm__inner_size": 1536,
        "ssm__state_size": 16,
        "ssm__time_step_rank": 48,
        "ssm__group_count": 8,
    }

    def test_a_mixer_needs_no_heads(self):
        c = read("mamba2", without=("attention.head_count", "feed_forward_length"), **self.SSM)
        assert (c.taps, c.inner, c.heads, c.groups, c.state) == (4, 1536, 48, 8, 16)
        c = read("mamba", **self.SSM, ssm__dt_b_c_rms=True).mixer
        assert (c.taps, c.inner, c.rank, c.state, c.normed) == (4, 1536, 48, 16, True)

    @pytest.mark.parametrize(
        ("how", "message"),
        [
            (
                {"ssm__time_step_rank": 7},
                "mamba2.ssm.inner_size = 1536 must be a multiple of mamba2.ssm.time_step_rank = 7",
            ),
            (
                {"ssm__group_count": 5},
                "mamba2.ssm.time_step_rank = 48 must be a multiple of mamba2.ssm.group_count = 5",
            ),
            ({"ssm__conv_kernel": 1}, "mamba2.ssm.conv_kernel must be a whole number from 2 to 65536, not 1"),
            ({"ssm__dt_b_c_rms": 2}, "mamba.ssm.dt_b_c_rms must be true or false, not 2"),
        ],
    )
    def test_a_wrong_value_is_named(self, how, message):
        name = "mamba" if "ssm__dt_b_c_rms" in how else "mamba2"
        check_error(message, name=name, **{**self.SSM, **how})


class TestHybrids:
    def test_layers_without_key_and_value_heads_are_recurrent(self):
        keys = {"block_count": 3, "attention__head_count_kv": [0, 4, 0]}
        c = read("lfm2", **keys, shortconv__l_cache=3)
        assert [b.is_recurrent for b in c.blocks] == [True, False, True]
        assert c.taps == 3
        c = read("jamba", **keys, **TestMamba.SSM, **TestExperts.MOE)
        assert [b.is_recurrent for b in c.blocks] == [True, False, True]
        assert c.mixer.normed
        assert c.blocks[0].experts == Experts(8, 2, 96, "softmax", False)

    def test_what_is_left_out_of_a_list_is_not_guessed(self):
        check_error(
            "lfm2.attention.head_count_kv has 2 entries for 12 layers",
            name="lfm2",
            attention__head_count_kv=[0, 4],
            shortconv__l_cache=3,
        )
        check_error(
            "jamba.expert_weights_norm is True, but weights of jamba are not divided by their sum",
            name="jamba",
            expert_weights_norm=True,
            **TestMamba.SSM,
            **TestExperts.MOE,
        )


class TestBert:
    EPS: ClassVar = {"attention__layer_norm_epsilon": 1e-12}

    @pytest.mark.parametrize(
        ("how", "pooling", "output"),
        [
            ({}, "none", "rows"),
            ({"pooling_type": 0}, "none", "rows"),
            ({"pooling_type": 1}, "mean", "pooled"),
            ({"pooling_type": 2}, "cls", "pooled"),
            ({"pooling_type": 3}, "last", "pooled"),
            ({"pooling_type": 4}, "cls", "pooled"),
            ({"classifier__output_labels": ["yes"]}, "cls", "pooled"),
        ],
    )
    def test_a_text_is_pooled_as_its_file_says(self, how, pooling, output):
        c = read("bert", **self.EPS, **how)
        assert (c.pooling, c.output) == (pooling, output)

    def test_it_is_an_encoder_and_the_others_are_not(self):
        kinds = {name: a.kind for name, a in ARCHITECTURES.items()}
        assert {name for name, kind in kinds.items() if kind == "encoder"} == {"bert"}
        assert read("llama").output == "logits"

    def test_types_of_tokens_are_counted_by_the_tokenizer(self):
        metadata = {f"bert.{k.replace('__', '.')}": v for k, v in {**COMMON, **self.EPS}.items()}
        metadata["general.architecture"] = "bert"
        assert find(metadata)[1].types == 1
        assert find({**metadata, "tokenizer.ggml.token_type_count": 2})[1].types == 2
        with pytest.raises(
            MetadataError, match=r"token_type_count must be a whole number from 1 to 65536, not 0"
        ):
            find({**metadata, "tokenizer.ggml.token_type_count": 0})

    def test_a_causal_one_is_refused(self):
        check_error("bert.attention.causal is true", name="bert", **self.EPS, attention__causal=True)


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
        ({"embedding_length": [768, 512]}, "llama.embedding_length differs from layer to layer ([768, 512])"),
        (
            {"attention__head_count": 60000, "attention__key_length": 60000, "attention__head_count_kv": 1},
            "llama.attention.head_count = 60000 heads of 60000 values are more than 16777216",
        ),
        (
            {"embedding_length": 1 << 21},
            "llama.embedding_length must be a whole number from 1 to 1048576, not 2097152",
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
    ],
)
def test_a_wrong_value_is_named_with_what_it_must_be(how, message):
    check_error(message, **how)


def test_scaling_is_read_in_every_form():
    assert read(rope__scaling__type="linear", rope__scaling__factor=2.0).blocks[
        0
    ].rope.scaling == LinearScaling(2.0)
    assert read(rope__scale_linear=4.0).blocks[0].rope.scaling == LinearScaling(4.0)
    assert read(rope__scaling__type="none", rope__scaling__factor=2.0).blocks[0].rope.scaling is None
    yarn = read(
        rope__scaling__type="yarn", rope__scaling__factor=4.0, rope__scaling__original_context_length=1024
    )
    assert yarn.blocks[0].rope.scaling == YarnScaling(4.0, 1024, 32.0, 1.0, 0.0)
    llama3 = read(
        rope__scaling__type="llama3", rope__scaling__factor=8.0, rope__scaling__original_context_length=8192
    )
    assert llama3.blocks[0].rope.scaling == Llama3Scaling(8.0, 8192, 1.0, 4.0)


def test_an_unknown_architecture_lists_the_known_ones():
    known = ", ".join(sorted(ARCHITECTURES))
    with pytest.raises(ArchitectureError, match=rf"'rwkv' is not supported; supported are {known}$"):
        find({"general.architecture": "rwkv"})
    with pytest.raises(MetadataError, match=r"the key general\.architecture is missing"):
        find({})


def test_gpt2_has_norms_of_another_kind_and_no_rotation():
    keys = {"attention__layer_norm_epsilon": 1e-5}
    c = read("gpt2", without=("attention.layer_norm_rms_epsilon",), **keys)
    b = c.blocks[0]
    assert (c.eps, b.kv_heads, b.k_dim, c.context_length) == (1e-5, 12, 64, 4096)
    assert b.rope is None
    check_error("the key gpt2.attention.layer_norm_epsilon is missing", name="gpt2")


class TestGemma3:
    def test_defaults_are_those_of_files_that_lack_the_keys(self):
        c = read("gemma3", attention__sliding_window=512)
        assert [b.window for b in c.blocks[:7]] == [512, 512, 512, 512, 512, 0, 512]
        assert c.blocks[0].rope.base == 10000.0

    def test_keys_win_over_defaults(self):
        keys = {
            "attention__sliding_window": 64,
            "attention__sliding_window_pattern": 2,
            "rope__freq_base_swa": 500.0,
        }
        c = read("gemma3", **keys)
        assert [b.window for b in c.blocks[:4]] == [64, 0, 64, 0]
        assert c.blocks[0].rope.base == 500.0

    @pytest.mark.parametrize("base", [1e-45, 1.0])
    def test_a_base_that_turns_nothing_is_refused(self, base):
        check_error(
            f"gemma3.rope.freq_base_swa must be more than 1, not {base!r}",
            name="gemma3",
            attention__sliding_window=64,
            rope__freq_base_swa=base,
        )

    def test_a_list_says_it_of_each_layer(self):
        for one, no in ((True, False), (1, 0)):
            pattern = np.array([one, no, no], np.bool_ if one is True else np.uint8)
            c = read(
                "gemma3",
                block_count=3,
                attention__sliding_window=64,
                attention__sliding_window_pattern=pattern,
            )
            assert [b.window for b in c.blocks] == [64, 0, 0]
        check_error(
            "gemma3.attention.sliding_window_pattern has 2 entries for 12 layers",
            name="gemma3",
            attention__sliding_window_pattern=[True, False],
        )
        check_error(
            "gemma3.attention.sliding_window_pattern must be true or false, not 2",
            name="gemma3",
            block_count=2,
            attention__sliding_window_pattern=[2, 0],
        )

    def test_without_a_window_all_layers_are_global(self):
        assert not any(b.window for b in read("gemma3").blocks)

    def test_scaling_stretches_global_layers_only(self):
        c = read("gemma3", rope__scaling__type="linear", rope__scaling__factor=8.0)
        assert {b.rope.scaling for b in c.blocks} == {LinearScaling(8.0)}  # all are global
        keys = {
            "rope__scaling__type": "linear",
            "rope__scaling__factor": 8.0,
            "attention__sliding_window": 64,
        }
        c = read("gemma3", **keys)
        assert [b.rope.scaling for b in c.blocks[4:6]] == [None, LinearScaling(8.0)]

    def test_the_largest_model_scales_by_its_width(self):
        c = read(
            "gemma3",
            block_count=62,
            embedding_length=5376,
            attention__head_count=32,
            attention__key_length=128,
        )
        assert {b.scale for b in c.blocks} == {1 / math.sqrt(168)}


def test_every_architecture_is_registered_under_its_name():
    assert list(ARCHITECTURES) == sorted(ARCHITECTURES)
    assert all(name == a.name for name, a in ARCHITECTURES.items())


@pytest.mark.parametrize("tokens", [7, 1.5, True])
def test_a_vocabulary_that_is_no_list_is_named(tokens):
    with pytest.raises(MetadataError, match=r"tokenizer\.ggml\.tokens must be a list of strings"):
        Keys({"tokenizer.ggml.tokens": tokens}, "llama").vocabulary()


def test_a_type_of_file_that_is_a_list_is_no_adapter():
    with pytest.raises(MetadataError, match=r"general\.architecture is missing"):
        find({"general.type": np.array([1, 2])})


def test_a_list_may_ask_for_what_is_not_built():
    with pytest.raises(MetadataError, match="is not supported for gpt2"):
        Keys({"gpt2.expert_count": np.array([0, 2])}, "gpt2").refuse("expert_count", "a mixture of experts")
    Keys({"gpt2.expert_count": np.array([0, 0])}, "gpt2").refuse("expert_count", "a mixture of experts")
