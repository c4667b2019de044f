"""The weights of a model are those that were loaded, or an error says that somebody wrote to its file."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from llamay_models import gguf, load
from llamay_models.errors import ModelError, SnapshotError

SOURCE = Path(__file__).parents[1] / "data" / "parity" / "qwen3.gguf"
SETTINGS = {"threads": 1, "kv_budget": 1 << 24}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    copy = tmp_path / "model.gguf"
    copy.write_bytes(SOURCE.read_bytes())
    return copy


def rewrite(path: Path) -> None:
    """Other weights in place, of the same size."""
    with path.open("r+b") as file:
        file.seek(-64, os.SEEK_END)
        file.write(bytes(range(64)))


def rewrite_with_the_old_time(path: Path) -> None:
    before = path.stat()
    rewrite(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def cut(path: Path) -> None:
    """A shorter file copied over."""
    path.write_bytes(path.read_bytes()[:5000])


def lengthen(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


CHANGES: list[Callable[[Path], None]] = [rewrite, rewrite_with_the_old_time, cut, lengthen]


@pytest.mark.parametrize("change", CHANGES)
def test_no_snapshot_is_saved_under_the_weights_of_a_file_that_was_changed(
    path: Path, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    with load(path, **SETTINGS) as model:
        context = model.context([1, 20, 33])
        change(path)
        with pytest.raises(SnapshotError, match=r"model\.gguf: the file was changed after it was opened"):
            context.save(tmp_path / "it")
        with pytest.raises(ModelError, match="load it again"):
            _ = model.sha256
        assert not (tmp_path / "it").exists()
        assert len(context.generate(max_tokens=2, ignore_eos=True).tokens) == 2  # what was loaded goes on


@pytest.mark.parametrize("change", CHANGES[:2])
def test_a_file_that_changes_while_it_is_loaded_is_refused(
    path: Path, change: Callable[[Path], None]
) -> None:
    def progress(stage: str, done: int, total: int) -> None:
        if done == total:
            change(path)

    with pytest.raises(ModelError, match="was changed after it was opened"):
        load(path, progress=progress, **SETTINGS)


def test_a_file_that_is_replaced_by_another_stays_the_file_that_was_opened(
    path: Path, tmp_path: Path
) -> None:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    with gguf.open(path) as file:
        other = tmp_path / "other.gguf"
        other.write_bytes(path.read_bytes() + b"more")
        other.replace(path)
        assert file.sha256() == digest
    with load(path, **SETTINGS) as model:
        path.unlink()
        assert model.sha256 != digest


def test_a_digest_that_was_taken_stays(path: Path) -> None:
    with gguf.open(path) as file:
        digest = file.sha256()
        rewrite(path)
        assert file.sha256() == digest


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts descriptors as Linux shows them")
def test_descriptors_are_given_back(path: Path) -> None:
    def held() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = held()
    file = gguf.open(path)
    assert held() == before + 1
    file.close()
    assert held() == before
    dropped = gguf.open(path)
    del dropped
    assert held() == before
    cut(path)
    with pytest.raises(gguf.GGUFError):
        gguf.open(path)
    assert held() == before


def run(code: str, path: Path) -> str:
    """Run code in a process of its own, which a signal may end. Returns what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    return done.stdout


LARGE = """
    import os, sys, numpy as np
    from llamay_models import gguf
    path = sys.argv[1]
    data = np.random.default_rng(0).integers(0, 255, (64, 1 << 15), np.uint8)
    tensors = [gguf.TensorData(f"t{i}", "I8", (1 << 15,), row.tobytes()) for i, row in enumerate(data)]
    gguf.write(path, {"general.architecture": "x"}, tensors)
    def cut():
        os.truncate(path, os.path.getsize(path) // 2)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the signal for lost pages is Linux's")
@pytest.mark.parametrize("faults", ["", "import faulthandler; faulthandler.enable()"])
def test_a_file_that_is_cut_short_while_it_is_read_is_an_error_and_no_signal(
    tmp_path: Path, faults: str
) -> None:
    code = f"""{textwrap.dedent(LARGE)}
{faults}
with gguf.open(path) as file:
    first, last = file.tensors["t0"].data, file.tensors["t63"].data
    {faults or "pass"}
    with gguf.open(path):
        cut()
    assert (first == data[0]).all()
    assert (last == 0).all()
    try:
        file.check_unchanged()
    except gguf.GGUFError as error:
        print(error)
"""
    assert "was changed after it was opened" in run(code, tmp_path / "large.gguf")


HANDLERS = {
    "faulthandler": "import faulthandler; faulthandler.enable(open(os.devnull, 'w'))",
    "default": "import signal; signal.signal(signal.SIGBUS, signal.SIG_DFL)",
    "ignored": "import signal; signal.signal(signal.SIGBUS, signal.SIG_IGN)",
    "a function": "import signal; signal.signal(signal.SIGBUS, print)",
}


@pytest.mark.skipif(sys.platform != "linux", reason="the signal for lost pages is Linux's")
@pytest.mark.parametrize("install", HANDLERS.values(), ids=HANDLERS)
def test_a_file_can_be_cut_short_also_after_another_handler_was_installed(
    tmp_path: Path, install: str
) -> None:
    code = f"""{textwrap.dedent(LARGE)}
with gguf.open(path) as file:
    info = file.tensors["t63"]
    view = info.data
    {install}
    cut()
    assert (info.data == 0).all() and (view == 0).all()
    try:
        file.check_unchanged()
    except gguf.GGUFError as error:
        print(error)
"""
    assert "was changed after it was opened" in run(code, tmp_path / "large.gguf")


@pytest.mark.skipif(sys.platform != "linux", reason="the signal for lost pages is Linux's")
@pytest.mark.parametrize("install", HANDLERS.values(), ids=HANDLERS)
def test_a_load_survives_a_handler_that_is_installed_meanwhile(path: Path, install: str) -> None:
    code = f"""
import os, sys
from llamay_models import load
from llamay_models.errors import ModelError
def progress(*_):
    {install}
    os.truncate(sys.argv[1], 4096)
try:
    load(sys.argv[1], progress=progress, threads=1, kv_budget=1 << 24)
except ModelError as error:
    print(error)
"""
    assert "was changed after it was opened" in run(code, path)


@pytest.mark.skipif(sys.platform != "linux", reason="the signal for lost pages is Linux's")
def test_another_handler_gets_the_bus_errors_of_others_once(tmp_path: Path) -> None:
    code = f"""{textwrap.dedent(LARGE)}
import faulthandler, mmap
with gguf.open(path) as file, open(path, "rb") as other:
    faulthandler.enable()
    file.tensors["t0"].data
    own = mmap.mmap(other.fileno(), 0, prot=mmap.PROT_READ)
    cut()
    own[-1]
"""
    command = [sys.executable, "-c", code, str(tmp_path / "large.gguf")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == -signal.SIGBUS
    assert done.stderr.count("Fatal Python error: Bus error") == 1


@pytest.mark.parametrize("length", [0x7FFFFFFFFFFFFFFF, 0xFFFFFFFFFFFFFFFF, 1 << 33, 1000, 0])
def test_lengths_that_change_after_they_were_checked_lead_no_read_astray(
    tmp_path: Path, shared_data: Path, length: int
) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes((shared_data / "models" / "stories260K.gguf").read_bytes())
    code = f"""
import sys
from llamay_models import gguf, tokenizer
from llamay_models.errors import ModelError
path, key = sys.argv[1], b"tokenizer.ggml.tokens"
with gguf.open(path) as file, open(path, "r+b", buffering=0) as other:
    content = other.read()
    at = content.index(key) + len(key) + 8
    count = int.from_bytes(content[at : at + 8], "little")
    at += 8
    for i in range(count):
        if i % 7 == 3:
            other.seek(at)
            other.write(({length}).to_bytes(8, "little"))
        at += 8 + int.from_bytes(content[at : at + 8], "little")
    tokens = file.metadata["tokenizer.ggml.tokens"]
    assert len(list(tokens)) == count == len([tokens.raw(i) for i in range(count)])
    try:
        tokenizer.from_gguf(file)
    except ModelError as error:
        print(error)
"""
    assert "was changed after it was opened" in run(code, path)


def test_what_the_metadata_say_stays_what_was_checked(path: Path) -> None:
    with gguf.open(path) as file:
        before = {
            key: value for key, value in file.metadata.items() if isinstance(value, bool | int | float | str)
        }
        names = list(file.tensors)
        with path.open("r+b") as other:
            other.seek(24)
            other.write(b"\xff" * (min(info.offset for info in file.tensors.values()) - 24))
        assert {key: file.metadata[key] for key in before} == before
        for key in file.metadata:
            _ = file.metadata[key], file.metadata.raw(key), file.metadata.type_of(key)
        assert list(file.tensors) == names
        with pytest.raises(gguf.GGUFError, match="was changed after it was opened"):
            file.check_unchanged()


@pytest.mark.skipif(sys.platform != "linux", reason="the signal for lost pages is Linux's")
def test_other_bus_errors_still_end_the_process(tmp_path: Path) -> None:
    code = f"""{textwrap.dedent(LARGE)}
import mmap, signal
file = gguf.open(path)
with open(path, "rb") as other:
    own = mmap.mmap(other.fileno(), 0, prot=mmap.PROT_READ)
    cut()
    own[-1]
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "a")], capture_output=True, check=False)
    assert done.returncode == -signal.SIGBUS
    code = code.split("with open")[0] + "signal.raise_signal(signal.SIGBUS)"
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "b")], capture_output=True, check=False)
    assert done.returncode == -signal.SIGBUS


@pytest.mark.parametrize("what", ["load", "quantize", "adapter"])
def test_a_file_that_is_cut_short_while_it_is_used_is_refused(
    path: Path, tmp_path: Path, shared_data: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if what == "load":

        def progress(stage: str, done: int, total: int) -> None:
            os.truncate(path, 4096)

        with pytest.raises(ModelError, match="was changed after it was opened"):
            load(path, progress=progress, **SETTINGS)
    elif what == "quantize":
        from llamay_models.quantization import quantize_file

        with pytest.raises(ModelError, match="was changed after it was opened"):
            quantize_file(path, tmp_path / "q.gguf", "Q8_0", progress=lambda *_: os.truncate(path, 4096))
        assert list(tmp_path.iterdir()) == [path]
    else:
        import llamay_models.adapters

        adapter = tmp_path / "adapter.gguf"
        adapter.write_bytes((shared_data / "models" / "lora-random-r4.gguf").read_bytes())
        pack = llamay_models.adapters.pack

        def cut_first(*given: object, **named: object) -> object:
            os.truncate(adapter, 4096)
            return pack(*given, **named)

        monkeypatch.setattr(llamay_models.adapters, "pack", cut_first)
        base = shared_data / "models" / "stories260K.gguf"
        with pytest.raises(ModelError, match="was changed after it was opened"):
            load(base, adapters=[adapter], **SETTINGS)
