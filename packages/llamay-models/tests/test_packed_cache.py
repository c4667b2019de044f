"""Packed weights that are kept change nothing, save the packing, and are never believed."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from llamay_models import load, scoring
from llamay_models.backend import CPU
from llamay_models.loading import model_loader, packed_cache
from llamay_models.loading.packed_cache import PackedCache

TOKENS = [1, 20, 33, 47, 301, 8, 99, 100]


def logits(model):
    return np.concatenate(list(scoring.logits(model, TOKENS)))


@pytest.fixture
def model(shared_data, tmp_path):
    """A model file of our own, to be changed."""
    path = tmp_path / "model.gguf"
    shutil.copy(shared_data / "models" / "stories260K.gguf", path)
    return path


@pytest.fixture
def packings(monkeypatch):
    """How many times weights were packed."""
    done = []
    plain = model_loader.pack

    def pack(*arguments, **more):
        done.append(1)
        return plain(*arguments, **more)

    monkeypatch.setattr(model_loader, "pack", pack)
    return done


def kept(folder: Path) -> Path:
    (path,) = folder.glob("*.packed")
    return path


def test_the_second_load_does_not_pack_and_computes_the_same(model, tmp_path, packings):
    folder = tmp_path / "made" / "when needed"
    with load(model, threads=1) as plain:
        expected = logits(plain)
    with load(model, threads=2, packed_cache=folder) as first:
        assert np.array_equal(logits(first), expected)
    assert len(packings) == 2
    steps = []
    with load(model, threads=2, packed_cache=folder, progress=lambda *step: steps.append(step)) as second:
        assert np.array_equal(logits(second), expected)
    assert len(packings) == 2
    assert steps
    assert all(0 < done <= total for _, done, total in steps)


def test_every_damage_is_noticed_and_mended(model, tmp_path, packings):
    with load(model, threads=1, packed_cache=tmp_path) as first:
        expected = logits(first)
    path = kept(tmp_path)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    damages = [whole[:n] for n in (0, 7, 40, 100, len(whole) // 2, len(whole) - 5000)]
    for at in [0, 8, 12, 20, 47, 48, 100, *rng.integers(packed_cache._PAGE * 4, len(whole) - 8192, 20)]:
        damages.append(whole[:at] + bytes([whole[at] ^ 1 << int(rng.integers(8))]) + whole[at + 1 :])
    for damaged in damages:
        path.write_bytes(damaged)
        packings.clear()
        with load(model, threads=1, packed_cache=tmp_path) as again:
            assert np.array_equal(logits(again), expected)
        changed = damaged != path.read_bytes()
        assert len(packings) == (1 if changed else 0)  # a bit between two tensors is nobody's
        if changed:
            assert path.read_bytes() == whole


def _without(header, key):
    return {name: value for name, value in header.items() if name != key}


@pytest.mark.parametrize(
    "changed",
    [
        lambda h: [],
        lambda h: None,
        lambda h: _without(h, "layout"),
        lambda h: _without(h, "tensors"),
        lambda h: h | {"tensors": [1]},
        lambda h: h | {"tensors": [row[:4] for row in h["tensors"]]},
        lambda h: h | {"tensors": [[*row[:4], -(1 << 40), row[5]] for row in h["tensors"]]},
        lambda h: h | {"tensors": [[*row[:4], 1 << 80, row[5]] for row in h["tensors"]]},
        lambda h: h | {"tensors": [[*row[:4], 0.5, row[5]] for row in h["tensors"]]},
        lambda h: h | {"tensors": [[*row[:4], "0", row[5]] for row in h["tensors"]]},
        lambda h: h | {"tensors": [[*row[:5], "-1"] for row in h["tensors"]]},
        lambda h: h | {"tensors": [[*row[:5], "f" * 40] for row in h["tensors"]]},
        lambda h: h | {"tensors": [[*row[:5], 7] for row in h["tensors"]]},
    ],
)
def test_a_header_that_somebody_else_wrote_is_a_miss(model, tmp_path, packings, changed):
    with load(model, threads=1, packed_cache=tmp_path) as first:
        expected = logits(first)
    path = kept(tmp_path)
    whole = path.read_bytes()
    length = int.from_bytes(whole[8:16], "little")
    header = json.loads(whole[48 : 48 + length])
    text = json.dumps(changed(header)).encode()
    assert text != whole[48 : 48 + length]
    path.write_bytes(whole[:8] + len(text).to_bytes(8, "little") + hashlib.sha256(text).digest() + text)
    packings.clear()
    with load(model, threads=1, packed_cache=tmp_path) as again:
        assert np.array_equal(logits(again), expected)
    assert len(packings) == 1
    assert path.read_bytes() == whole


def test_another_file_under_the_same_name_is_another_model(model, shared_data, tmp_path, packings):
    load(model, threads=1, packed_cache=tmp_path / "c").close()
    shutil.copy(shared_data / "models" / "stories260K.gguf", model.with_suffix(".new"))
    model.with_suffix(".new").replace(model)
    load(model, threads=1, packed_cache=tmp_path / "c").close()
    assert len(packings) == 2


def test_known_content_is_found_wherever_it_lies(model, tmp_path, packings):
    digest = "0" * 64
    load(model, threads=1, packed_cache=tmp_path / "c", sha256=digest).close()
    moved = model.rename(tmp_path / "moved.gguf")
    load(moved, threads=1, packed_cache=tmp_path / "c", sha256=digest).close()
    assert len(packings) == 1


def test_another_layout_is_a_miss(model, tmp_path, packings):
    load(model, threads=1, packed_cache=tmp_path / "c").close()
    newer = replace(CPU, packed=replace(CPU.packed, layout=CPU.packed.layout + 1))
    load(model, threads=1, packed_cache=tmp_path / "c", backend=newer).close()
    assert len(packings) == 2


def test_a_backend_that_keeps_no_weights_says_so(model, tmp_path):
    with pytest.raises(ValueError, match="the backend cpu keeps no weights in files; load without it"):
        load(model, threads=1, packed_cache=tmp_path / "c", backend=replace(CPU, packed=None))


def test_dequantized_weights_are_not_kept(model, tmp_path):
    load(model, threads=1, packed_cache=tmp_path / "c", dequantized=True).close()
    assert not (tmp_path / "c").exists()


def test_a_folder_that_cannot_be_written_costs_only_the_cache(model, tmp_path, caplog):
    (tmp_path / "file").write_text("in the way")
    with load(model, threads=1, packed_cache=tmp_path / "file") as loaded:
        assert loaded.vocab_size == 512
    assert "are not kept" in caplog.text


def test_a_full_disk_and_a_small_budget_keep_nothing(model, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(packed_cache, "RESERVE", 1 << 60)
    load(model, threads=1, packed_cache=tmp_path / "c").close()
    assert "no room" in caplog.text
    assert not list((tmp_path / "c").iterdir())
    weight = CPU.weight(np.zeros(64, np.float32).data, "F32", 2, 32, name="w")
    monkeypatch.setattr(packed_cache, "RESERVE", 0)
    cache = PackedCache(tmp_path / "c", CPU.packed, budget_bytes=4096)
    assert not cache.write({"a": 1}, [weight], CPU.threads(1))
    assert not list((tmp_path / "c").iterdir())


def test_what_was_used_longest_ago_makes_room(tmp_path):
    threads = CPU.threads(1)
    weight = CPU.weight(np.zeros(64, np.float32).data, "F32", 2, 32, name="w")
    cache = PackedCache(tmp_path, CPU.packed, budget_bytes=3 * 8192)
    for number in range(3):
        assert cache.write({"a": number}, [weight], threads)
        os.utime(cache.path({"a": number}), (number, number))
    assert cache.read({"a": 0}, [("w", "F32", 2, 32)], threads) is not None  # used now
    assert cache.write({"a": 3}, [weight], threads)
    assert [cache.path({"a": n}).exists() for n in range(4)] == [True, False, True, True]


def test_what_a_killed_process_left_is_cleared_away(tmp_path):
    threads = CPU.threads(1)
    weight = CPU.weight(np.zeros(64, np.float32).data, "F32", 2, 32, name="w")
    old, young = tmp_path / "a-1.partial", tmp_path / "a-2.partial"
    for path in (old, young):
        path.write_bytes(b"x")
    os.utime(old, (time.time() - 7200,) * 2)
    assert PackedCache(tmp_path, CPU.packed).write({"a": 1}, [weight], threads)
    assert young.exists()
    assert not old.exists()


def test_a_write_that_fails_leaves_what_was_there(tmp_path, monkeypatch):
    threads = CPU.threads(1)
    weight = CPU.weight(np.zeros(64, np.float32).data, "F32", 2, 32, name="w")
    cache = PackedCache(tmp_path, CPU.packed)
    assert cache.write({"a": 1}, [weight], threads)
    before = kept(tmp_path).read_bytes()

    def full(file, data):
        file.write(data[:3])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(packed_cache, "_write_all", full)
    assert not cache.write({"a": 1}, [weight], threads)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [before]


def test_raising_from_progress_abandons_the_load(model, tmp_path):
    load(model, threads=1, packed_cache=tmp_path / "c").close()

    def stop(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load(model, threads=1, packed_cache=tmp_path / "c", progress=stop)
