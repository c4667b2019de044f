"""What a context depends on: snapshots of the first form restore, and nothing of another form is taken for this one."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

import llamay_kv
from llamay_models.backend import CPU
from llamay_models.errors import IdentityMismatchError

DATA = Path(__file__).parent / "data"
FIRST = json.loads((DATA / "first_form.json").read_text())
"""Snapshots as they were written before identities had operations, layer kinds and the device."""
TOKENS = [5 + i * 11 % 50 for i in range(40)]

# What other backends compute are other bits, and so are their snapshots.
pytestmark = pytest.mark.parametrize("backend", [CPU], ids=["cpu"], indirect=True, scope="session")


@pytest.mark.parametrize("name", FIRST)
def test_a_snapshot_of_the_first_form_goes_on_as_it_did(make_model, name):
    then = FIRST[name]
    model = make_model(name, precision="f16")
    stored = llamay_kv.inspect(DATA / f"first_form_{name}.kv").identity
    assert stored.to_json() == then["identity"]
    context = model.restore(DATA / f"first_form_{name}.kv")
    assert list(context.tokens) == then["tokens"]
    assert hashlib.sha256(context.logits.tobytes()).hexdigest() == then["logits"]
    assert list(context.generate(max_tokens=20, ignore_eos=True).tokens) == then["continues"]


@pytest.mark.parametrize("name", FIRST)
def test_the_first_form_is_another_key_for_prefixes(make_model, name):
    now = make_model(name, precision="f16").identity
    old = llamay_kv.Identity.from_json(FIRST[name]["identity"])
    assert now.digest != old.digest
    assert now.fields.items() > old.fields.items()


def test_what_the_first_form_says_has_to_agree(make_model):
    with pytest.raises(IdentityMismatchError) as info:
        make_model("llama", precision="f16", seed=1).restore(DATA / "first_form_llama.kv")
    assert info.value.field == "weights"
    with pytest.raises(IdentityMismatchError) as info:
        make_model("qwen3", precision="f16").restore(DATA / "first_form_gemma3.kv")
    assert info.value.field in ("architecture", "layout")


@pytest.mark.parametrize("name", ["mamba2", "qwen3moe"])
def test_newer_architectures_imply_nothing(make_model, name):
    now = make_model(name).identity
    old = {k: v for k, v in now.fields.items() if k not in ("operations", "layer_kinds", "device")}
    with pytest.raises(llamay_kv.IdentityMismatchError):
        now.require(llamay_kv.Identity(old))


def test_a_device_of_another_class_is_another_state(make_model, tmp_path):
    model = make_model()
    model.context(TOKENS).save(tmp_path / "here")
    other = make_model()
    other._parts = replace(other._parts, backend=replace(other._parts.backend, device="another"))
    with pytest.raises(IdentityMismatchError, match="another device") as info:
        other.restore(tmp_path / "here")
    assert info.value.field == "device"


def test_operations_and_layers_are_in_it(make_model):
    plain, windows = make_model("llama").identity, make_model("gemma3").identity
    assert plain.fields["operations"] != windows.fields["operations"]
    assert plain.fields["layer_kinds"] != windows.fields["layer_kinds"]
