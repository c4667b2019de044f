"""A restored context goes on exactly; one that does not belong here, or is damaged, is refused."""

import subprocess
import sys

import numpy as np
import pytest

import llamay_kv
from llamay_models.engine import Sampling
from llamay_models.errors import (
    IdentityMismatchError,
    NotAllowedError,
    OutOfMemoryError,
    PromptError,
    SnapshotError,
)

from ...architecture_names import DENSE as NAMES

TOKENS = [5 + i * 11 % 50 for i in range(75)]


@pytest.mark.parametrize("page_tokens", [16, 64])
@pytest.mark.parametrize("name", NAMES)
def test_a_restored_context_goes_on_as_the_original(make_model, tmp_path, name, page_tokens):
    model = make_model(name)
    context = model.context(TOKENS)
    context.generate(Sampling(seed=9, temperature=1.5), max_tokens=20, ignore_eos=True).wait()
    context.save(tmp_path / "it")
    other = make_model(name, page_tokens=page_tokens)
    again = other.restore(tmp_path / "it")
    assert list(again.tokens) == list(context.tokens)
    assert np.array_equal(again.logits, context.logits)
    assert again.sampling == context.sampling
    expected = context.generate(max_tokens=30, ignore_eos=True).tokens
    assert again.generate(max_tokens=30, ignore_eos=True).tokens == expected
    assert np.array_equal(again.logits, context.logits)


def test_forks_keep_their_streams(make_model, tmp_path):
    model = make_model()
    sampling = Sampling(seed=2, temperature=3.0)
    for i, fork in enumerate(model.context([9]).fork(3)):
        fork.save(tmp_path / str(i))
        again = model.restore(tmp_path / str(i))
        assert again.generate(sampling, max_tokens=9).tokens == fork.generate(sampling, max_tokens=9).tokens


def test_every_option_survives(make_model, tmp_path):
    sampling = Sampling(7, 0.1, 3, 0.7, 0.2, 1.3, -1, 0.5, -0.25, {3: -np.inf, 4: 1.5}, 2)
    model = make_model()
    context = model.context([9])
    context.generate(sampling, max_tokens=2).wait()
    context.save(tmp_path / "it")
    assert model.restore(tmp_path / "it").sampling == sampling


@pytest.mark.parametrize(
    ("field", "how"),
    [
        ("weights", {"seed": 1}),
        ("precision", {"precision": "f16"}),
        ("rope", {"rope.freq_base": 20000.0}),
        ("attention", {"attention.scale": 0.3}),
    ],
)
def test_another_model_or_setting_is_refused_by_name(make_model, tmp_path, field, how):
    make_model().context(TOKENS).save(tmp_path / "it")
    other = make_model(**how)
    with pytest.raises((IdentityMismatchError, SnapshotError), match=field) as error:
        other.restore(tmp_path / "it")
    if field != "precision":  # the layout says so before the identity can
        assert error.value.field == field
    assert other.pool.used_bytes == 0


def test_every_damaged_byte_is_refused(make_model, tmp_path):
    model = make_model()
    model.context([9, 8]).save(tmp_path / "it")
    data = bytearray((tmp_path / "it").read_bytes())
    rng = np.random.default_rng(0)
    for at in rng.choice(len(data), 60, replace=False):
        bad = bytearray(data)
        bad[at] ^= 1 << rng.integers(8)
        (tmp_path / "bad").write_bytes(bad)
        with pytest.raises(SnapshotError):
            model.restore(tmp_path / "bad")
    for size in (0, 1, 100, len(data) // 2, len(data) - 1):
        (tmp_path / "bad").write_bytes(data[:size])
        with pytest.raises(SnapshotError):
            model.restore(tmp_path / "bad")


@pytest.mark.parametrize(
    "side",
    [
        b"\n",
        b"{}\n",
        b"[]\n" + bytes(244),
        b'{"sampling": null, "stream": -1, "vocab": 61}\n' + bytes(244),
        b'{"sampling": null, "stream": 0, "vocab": 61}\n' + bytes(240),
        b'{"sampling": {"temperature": "hot", "logit_bias": []}, "stream": 0, "vocab": 61}\n' + bytes(244),
        b'{"sampling": {"colour": 1, "logit_bias": []}, "stream": 0, "vocab": 61}\n' + bytes(244),
        b"[" * 100000 + b"\n",
    ],
)
def test_side_state_that_makes_no_sense_is_refused(make_model, tmp_path, side):
    model = make_model()
    context = model.context([9, 8])
    context._state.kv.save(tmp_path / "it", identity=model.identity, side={"llamay.engine": (1, side)})
    used = model.pool.used_bytes
    with pytest.raises(SnapshotError, match="the engine's side state is not valid"):
        model.restore(tmp_path / "it")
    assert model.pool.used_bytes == used


def test_state_that_was_saved_without_logits_computes_them(make_model, tmp_path):
    model = make_model()
    context = model.context(TOKENS)
    context._state.kv.save(tmp_path / "it", identity=model.identity, side={})
    assert np.array_equal(model.restore(tmp_path / "it").logits, context.logits)


def test_what_cannot_be_read_or_written_says_so(make_model, tmp_path):
    model = make_model()
    with pytest.raises(SnapshotError, match=r"none cannot be read: No such file"):
        model.restore(tmp_path / "none")
    with pytest.raises(SnapshotError, match=r"cannot be saved to .*no/such: No such file"):
        model.context([9]).save(tmp_path / "no" / "such")
    with pytest.raises(PromptError, match="the context is empty"):
        model.context().save(tmp_path / "it")


def test_no_room_for_it_is_an_error_that_leaves_nothing(make_model, tmp_path):
    model = make_model()
    model.context(TOKENS).save(tmp_path / "it")
    small = make_model(budget=3 * sum(model.pool.page_bytes))
    with pytest.raises(OutOfMemoryError, match="no K/V memory is left for the snapshot"):
        small.restore(tmp_path / "it")
    assert small.pool.used_bytes == 0
    shorter = make_model(ctx_size=50)
    with pytest.raises(SnapshotError, match="holds 75 tokens but contexts hold 50 here"):
        shorter.restore(tmp_path / "it")
    assert shorter.pool.used_bytes == 0


def test_progress_counts_bytes(make_model, tmp_path):
    model, seen = make_model(), []
    context = model.context(TOKENS)
    context.save(tmp_path / "it", progress=lambda *a: seen.append(a))
    assert seen[-1][0] == "saving"
    assert seen[-1][1] == seen[-1][2] > 0
    model.restore(tmp_path / "it", progress=lambda *a: seen.append(a))
    assert seen[-1][0] == "restoring"
    assert seen[-1][1] == seen[-1][2] == (tmp_path / "it").stat().st_size


def test_the_engine_s_imports_do_not_start_a_process():
    """Nothing here needs the network, a compiler or a second process: importing is quick and quiet."""
    code = "import llamay_models.engine, sys; assert 'jinja2' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_kv_package_is_the_one_that_was_checked():
    assert llamay_kv.INTERFACE["kv_view"][0] == 1


def test_a_context_keeps_its_owner_and_marking_from_save_to_save(make_model, tmp_path):
    model = make_model()
    model.context(TOKENS).save(tmp_path / "1", owner="ann", marking="secret")
    for number in (1, 2, 3):  # also through a fork
        with pytest.raises(NotAllowedError):
            model.restore(tmp_path / str(number), owner="bob", markings=["secret"])
        with pytest.raises(NotAllowedError):
            model.restore(tmp_path / str(number), markings=["secret"])
        with pytest.raises(NotAllowedError):
            model.restore(tmp_path / str(number), owner="ann")
        again = model.restore(tmp_path / str(number), owner="ann", markings=["secret"])
        again.fork().save(tmp_path / str(number + 1))


def test_an_owner_is_cleared_by_none_and_a_marking_is_not(make_model, tmp_path):
    model = make_model()
    context = model.context(TOKENS)
    context.save(tmp_path / "ann's", owner="ann")
    context.save(tmp_path / "anybody's", owner=None)
    assert list(model.restore(tmp_path / "anybody's").tokens) == TOKENS
    context.save(tmp_path / "marked", owner="ann", marking="secret")
    with pytest.raises(SnapshotError, match="a marking stays"):
        context.save(tmp_path / "unmarked", owner=None, marking=None)
    assert not (tmp_path / "unmarked").exists()
    context.save(tmp_path / "after")  # what was refused changed nothing
    with pytest.raises(NotAllowedError):
        model.restore(tmp_path / "after", markings=["secret"])
