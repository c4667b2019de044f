"""A file whose tensors do not fit is refused before anything runs, and every fault is named."""

import re

import numpy as np
import pytest

from llamay_models.architectures import ARCHITECTURES
from llamay_models.errors import TensorError
from llamay_models.plan import check

NAMES = sorted(ARCHITECTURES)


@pytest.fixture
def refused(small_model):
    def run(change, *expected):
        model = small_model("qwen2")
        change(model.tensors)
        with pytest.raises(TensorError) as error:
            check(model.architecture.build, model.config, model.tensors, "file.gguf")
        for text in ("the tensors of file.gguf do not fit the architecture", *expected):
            assert text in str(error.value)

    return run


@pytest.mark.parametrize("name", NAMES)
def test_a_fitting_file_passes(small_model, name):
    model = small_model(name)
    needs = check(model.architecture.build, model.config, model.tensors)
    assert set(needs.wanted) == set(model.tensors)


def test_a_missing_tensor_is_named_with_its_shape(refused):
    refused(lambda t: t.pop("blk.1.attn_k.weight"), "blk.1.attn_k.weight is missing (32 x 32)")


def test_a_missing_bias_is_named(refused):
    refused(lambda t: t.pop("blk.0.attn_q.bias"), "blk.0.attn_q.bias is missing (a vector of 64)")


def test_a_wrong_shape_is_named_with_both(refused):
    def change(tensors):
        tensors["blk.2.ffn_up.weight"].values = np.zeros((48, 33), np.float32)

    refused(change, "blk.2.ffn_up.weight is 48 x 33 but must be 48 x 32")


def test_a_tensor_that_nothing_reads_is_named(refused):
    def change(tensors):
        tensors["blk.0.attn_q_norm.weight"] = tensors["blk.0.attn_norm.weight"]

    refused(change, "blk.0.attn_q_norm.weight is not used by this architecture")


def test_all_faults_come_at_once(refused):
    def change(tensors):
        del tensors["output_norm.weight"], tensors["blk.0.ffn_up.weight"]

    refused(change, "output_norm.weight is missing", "blk.0.ffn_up.weight is missing")


def test_many_faults_are_counted_not_listed(small_model):
    model = small_model("llama")
    with pytest.raises(TensorError, match=re.escape("; and ")) as error:
        check(model.architecture.build, model.config, {})
    assert len(str(error.value)) < 800


def test_rope_factors_of_another_length_are_refused(small_model):
    model = small_model("llama")
    table = model.tensors["output_norm.weight"]
    model.tensors["rope_freqs.weight"] = type(table)("rope_freqs.weight", np.ones(7, np.float32))
    with pytest.raises(TensorError, match=r"rope_freqs\.weight is a vector of 7 but must be a vector of 8"):
        check(model.architecture.build, model.config, model.tensors)


def test_experts_are_matrices_on_top_of_each_other(small_model):
    model = small_model("qwen3moe", block_count=1)
    up = model.tensors["blk.0.ffn_up_exps.weight"]
    up.values = up.values[:-16]
    del model.tensors["blk.0.ffn_down_exps.weight"]
    with pytest.raises(TensorError) as error:
        check(model.architecture.build, model.config, model.tensors)
    assert "blk.0.ffn_up_exps.weight is 64 x 32 but must be 5 of 16 x 32" in str(error.value)
    assert "blk.0.ffn_down_exps.weight is missing (5 of 32 x 16)" in str(error.value)


def test_dimensions_of_1_do_not_count_in_vectors(small_model):
    model = small_model("mamba2", block_count=1)
    for name in ("ssm_a", "ssm_d"):
        model.tensors[f"blk.0.{name}"].values = model.tensors[f"blk.0.{name}"].values.reshape(-1, 1)
    norm = model.tensors["blk.0.ssm_norm.weight"]
    norm.values = norm.values.reshape(2, -1)
    check(model.architecture.build, model.config, model.tensors)
    assert model.reference([3, 4]).shape == (2, 61)
    norm.values = norm.values[:, :-1]
    with pytest.raises(TensorError, match=r"ssm_norm\.weight is 2 x 23 but must be a vector of 48"):
        check(model.architecture.build, model.config, model.tensors)
