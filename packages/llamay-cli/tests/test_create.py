"""`create`: Modelfiles, and the models that they describe."""

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llamay_cli.errors import CliError
from llamay_cli.models import modelfile, resolve
from llamay_cli.store import Store
from llamay_models import gguf as gguf_files
from llamay_server import Profile
from llamay_server import modelfile as written

TEXT = '''# a comment
from ./model.gguf
Parameter temperature 0.5
PARAMETER stop "<a b>"
parameter STOP <c>
PARAMETER num_ctx 512
SYSTEM """
You are "Sam".
# not a comment
"""
TEMPLATE "{{ .Prompt }}\\n"
MESSAGE user Hi there
MESSAGE assistant """Two
lines"""
LICENSE MIT
LICENSE """And
more"""
REQUIRES 0.14.0
'''


def test_cl10_what_a_modelfile_says() -> None:
    assert modelfile.read("FROM a\nADAPTER ./x.gguf\nadapter y.gguf") == {
        "from": "a",
        "adapters": ["./x.gguf", "y.gguf"],
    }
    assert modelfile.read(TEXT) == {
        "from": "./model.gguf",
        "parameters": {"temperature": 0.5, "stop": ["<a b>", "<c>"], "num_ctx": 512},
        "system": '\nYou are "Sam".\n# not a comment\n',
        "template": "{{ .Prompt }}\n",
        "messages": [
            {"role": "user", "content": "Hi there"},
            {"role": "assistant", "content": "Two\nlines"},
        ],
        "license": ["MIT", "And\nmore"],
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("FROM a\nPARAMETRE x 1", "line 2"),
        ("FROM a\n\nPARAMETER temperature", "line 3: write PARAMETER NAME VALUE"),
        ("FROM a\nFROM b", "line 2: there is a FROM already"),
        ("FROM a\nMESSAGE pope Hi", "line 2: a MESSAGE is of"),
        ('FROM a\nSYSTEM """never', "line 2: three quotes are not closed"),
        ('FROM a\nSYSTEM """x""" y', "line 2"),
        ("FROM", "line 1: FROM says nothing"),
        ("hello", "line 1: 'HELLO' is no instruction of a Modelfile"),
        ("FROM a\n???", "line 2"),
        ("SYSTEM x", "no FROM"),
    ],
)
def test_cl10_errors_name_the_line(text: str, words: str) -> None:
    with pytest.raises(CliError) as caught:
        modelfile.read(text)
    assert words in caught.value.message


WORDS = (
    st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), min_size=1)
    .map(str.strip)
    .filter(bool)
)


# Tables of all characters are made with the first draw, which takes seconds on a machine that is busy.
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    st.builds(
        Profile,
        template=st.none() | WORDS,
        system=st.none() | WORDS,
        license=st.lists(WORDS, max_size=2).map(tuple),
        parameters=st.fixed_dictionaries(
            {},
            optional={
                "temperature": st.floats(0, 2),
                "num_ctx": st.integers(1, 9),
                "stop": st.lists(WORDS, min_size=1),
            },
        ),
        messages=st.lists(
            st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant"]), "content": WORDS}), max_size=2
        ).map(tuple),
    )
)  # fmt: skip
def test_cl10_what_show_writes_create_reads(profile: Profile) -> None:
    said = modelfile.read(written("model", profile))
    assert said.pop("from") == "model"
    expected = {"template": profile.template, "system": profile.system, "license": list(profile.license)}
    expected |= {"parameters": dict(profile.parameters), "messages": list(profile.messages)}
    assert said == {key: value for key, value in expected.items() if value}


@given(st.text())
def test_cl10_no_text_breaks_the_reader(text: str) -> None:
    with contextlib.suppress(CliError):
        modelfile.read(text)


@pytest.fixture
def folder(tmp_path: Path, tiny_model: bytes) -> Path:
    (tmp_path / "model.gguf").write_bytes(tiny_model)
    (tmp_path / "Modelfile").write_text(TEXT)
    return tmp_path


@pytest.fixture
def tiny_model(tmp_path: Path) -> bytes:
    """A GGUF file with a header and no weights."""
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(tmp_path / "written.gguf", "llama")
    writer.add_name("tiny")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return (tmp_path / "written.gguf").read_bytes()


def test_a_model_is_created_from_a_file_shown_and_created_again(
    folder: Path, llamay: Callable[..., Any], store: Store
) -> None:
    result = llamay("create", "sam", "-f", folder / "Modelfile")

    assert result.exit_code == 0, result.stderr
    assert result.stdout == ""
    (folder / "model.gguf").unlink()
    own = resolve("sam").settings()
    assert own["parameters"] == {"temperature": 0.5, "stop": ["<a b>", "<c>"], "num_ctx": 512}
    shown = llamay("show", "sam", "--modelfile").stdout
    assert shown.startswith("FROM sam\n")
    assert llamay("create", "again", "-f", "-", stdin=shown).exit_code == 0
    assert {k: v for k, v in resolve("again").settings().items() if k != "parent"} == {
        k: v for k, v in own.items() if k != "parent"
    }
    assert llamay("show", "again", "--system").stdout.strip() == own["system"].strip()
    assert llamay("show", "again", "--template").stdout == "{{ .Prompt }}\n\n"
    assert len(list(store.blobs.iterdir())) == 1
    other = "FROM again\nPARAMETER temperature 1\n"
    assert llamay("create", "third", "-f", "-", stdin=other).exit_code == 0
    assert resolve("third").settings()["parameters"]["temperature"] == 1
    assert llamay("cp", "third", "fourth").exit_code == 0
    assert resolve("fourth").settings() == resolve("third").settings()
    assert llamay("rm", "sam", "again", "third").exit_code == 0
    assert resolve("fourth").path.is_file()


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("FROM nothing-here", 3, "nothing-here"),
        ("FROM ./nothing.gguf", 3, "does not exist"),
        ("FROM ./model.gguf\nPARAMETER temperature hot", 1, "temperature"),
        ("FROM ./model.gguf\nPARAMETER heat 1", 1, "heat"),
        ("FROM ./model.gguf\nTEMPLATE {{ .Secret }}", 1, ".Secret"),
        ("FROM ./Modelfile", 1, "GGUF"),
        ("FROM ./model.gguf\nADAPTER a", 3, "a does not exist"),
        ("FROM ./model.gguf\nADAPTER ./model.gguf", 1, "model.gguf is not an adapter"),
    ],
)
def test_what_cannot_be_created_leaves_nothing(
    folder: Path, llamay: Callable[..., Any], store: Store, text: str, code: int, words: str
) -> None:
    (folder / "Modelfile").write_text(text)
    result = llamay("create", "new", "-f", folder / "Modelfile")
    assert (result.exit_code, result.stdout) == (code, "")
    assert words in result.stderr
    assert result.stderr.startswith("error: ")
    assert store.names() == []
    assert llamay("create", "new", "-f", folder / "none").exit_code == 3
    assert llamay("cp", "none", "other").exit_code == 3
    assert json.loads(llamay("list", "--json").stdout) == []


def write_adapter(path: Path, seed: int = 0) -> Path:
    values = np.random.default_rng(seed).normal(size=(4, 32)).astype(np.float32)
    tensors = [
        gguf_files.TensorData(f"blk.0.attn_q.weight.lora_{half}", "F32", shape, values.tobytes())
        for half, shape in (("a", (4, 32)), ("b", (32, 4)))
    ]
    keys = {"general.architecture": "llama", "general.type": "adapter", "adapter.type": "lora"}
    gguf_files.write(path, {**keys, "adapter.lora.alpha": np.float32(4)}, tensors)
    return path


def test_cl10_an_adapter_becomes_part_of_the_model(
    llamay: Callable[..., Any], store: Store, tmp_path: Path, fake: Any
) -> None:
    gguf_files.write(tmp_path / "model.gguf", {"general.architecture": "llama"}, [])
    one, two = write_adapter(tmp_path / "one.gguf", 1), write_adapter(tmp_path / "two.gguf", 2)
    (tmp_path / "Modelfile").write_text("FROM ./model.gguf\nADAPTER one.gguf\n")
    bytes_of = one.read_bytes()
    assert llamay("create", "adapted", "-f", tmp_path / "Modelfile").exit_code == 0
    one.unlink()

    found = resolve("adapted", store=store)
    assert [path.read_bytes() for path in found.adapters] == [bytes_of]
    assert found.sha256 == resolve("adapted").sha256
    fake.setup = lambda model: model.script.append("Yes.")
    result = llamay("run", "adapted", "-p", "Well?", "--lora", f"{two}:0.5", "--lora", two)
    assert result.exit_code == 0, result.stderr
    assert fake.model.options["adapters"] == [*found.adapters, (str(two), 0.5), (str(two), 1.0)]

    # What is written of it makes it again, and an adapter that is there already is not added once more.
    text = llamay("show", "adapted", "--modelfile").stdout
    assert f"ADAPTER {found.adapters[0]}" in text
    again = llamay("create", "again", "-f", "-", stdin=text)
    assert again.exit_code == 0, again.stderr
    assert resolve("again").adapters == found.adapters
    both = llamay("create", "both", "-f", "-", stdin=f"FROM again\nADAPTER {two}\n")
    assert both.exit_code == 0, both.stderr
    assert [path.read_bytes() for path in resolve("both").adapters] == [bytes_of, two.read_bytes()]
