"""The exit codes of docs/cli.md hold for every verb: wrong usage, what is not there, what is refused."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from llamay_cli.errors import Exit, WrongUsageError
from llamay_cli.verbs import COMMANDS
from llamay_cli.verification.text import text_tokens

WRONG_USAGE = """
run MODEL -p x --temperature hot
run MODEL -p x --samplers bogus
run MODEL -p x --sampling-seq Q
run MODEL -p x --logit-bias five
run MODEL -p x --logprobs 3
run MODEL -p x --schema {
run MODEL -p x --seed 1.5
run MODEL -p ""
run "a b" -p x
run pypi:no! -p x
pull tiny
pull pypi:no!
pull hf:x
pull https://
pull foo://x
pull MODEL --name "a b"
pull MODEL --sha256 xyz
pull MODEL --max-size x
list --bogus
show "a b"
show MODEL --bogus
cp none "a b"
rm
rm "a b"
create "a b" -f FILE
create x -f FILE -q Q9
quantize MODEL q.gguf
quantize MODEL q.gguf --type Q9
quantize MODEL q.gguf --type Q8_0 --output-type Q9
quantize MODEL q.gguf --type Q8_0 --embedding-type Q9
verify MODEL --tokens x
bench MODEL --bogus
embed MODEL --dimensions 0 x
rerank MODEL
serve MODEL --port x
serve MODEL --port 99999999
serve MODEL --profile x
ps --server ftp://x
ps --server http://
stop
stop x --server ftp://x
config show bogus
config bogus
completion tcsh
doctor --bogus
ctx build MODEL -p x
ctx build MODEL --tokens x -o new
ctx build MODEL --messages FILE -p x -o new
ctx fork
ctx run
ctx inspect
ctx verify
ctx diff FILE
ctx rekey FILE
ctx rekey FILE --generate
ctx gc FOLDER --older-than soon
ctx gc FOLDER --budget x
ctx explain-miss FILE
"""
NOT_THERE = """
run none -p x
run ./none.gguf -p x
run MODEL/none -p x
run MODEL -f none
run MODEL -p x --schema none.json
run MODEL -p x --grammar none
run MODEL -p x --draft none
run ~nobody-of-this-name/x.gguf -p x
pull ./none.gguf
show none
show ./none.gguf
show pypi:none
cp none x
rm none
create x -f none
create x -f FROM-NONE
quantize none.gguf q.gguf --type Q8_0
verify none
bench none
embed none x
embed MODEL --file none
embed MODEL x -o none/x.npy
rerank none q d
rerank MODEL q --file none
serve none
serve MODEL --config none.toml
serve MODEL --api-key-file none
serve MODEL --tls-cert none --tls-key none
serve MODEL --draft none
serve MODEL --lora none
serve MODEL --lora m=none:0.5
ctx build none -p x -o new
ctx build MODEL --file none -o new
ctx build MODEL --messages none -o new
ctx build MODEL -p x -o none/new
ctx fork none
ctx run none -p x
ctx inspect none
ctx inspect FILE/none
ctx verify none
ctx verify FILE --key none
ctx diff none none
ctx rekey none --decrypt
ctx rekey FILE --new-key none
ctx gc none
ctx explain-miss FOLDER none
"""
REFUSED = """
run pypi:none -p x --offline
pull hf:a/none --offline
ctx build MODEL -p x -o FILE
ctx rekey FILE --new-key FILE --generate
quantize MODEL FILE --type Q8_0
"""
FAILED = """
run MODEL -f BINARY
create x -f FILE
ctx inspect FILE
ctx verify FILE
ctx gc FILE
ctx run FOLDER -p x
ctx rekey FOLDER --decrypt
ctx verify FILE --key FILE
"""
CASES = [
    (code, line)
    for code, lines in (
        (Exit.USAGE, WRONG_USAGE),
        (Exit.NOT_FOUND, NOT_THERE),
        (Exit.REFUSED, REFUSED),
        (Exit.ERROR, FAILED),
    )
    for line in lines.strip().splitlines()
]
VERBS_WITHOUT_FILES = {"list", "ps", "stop", "config", "doctor", "completion"}
"""The verbs that take no model and no file."""


@pytest.fixture
def places(fake: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What the words in capitals stand for, in a folder that is the current one."""
    here = tmp_path / "here"
    (here / "folder").mkdir(parents=True)
    (here / "file").write_text("neither a context nor a Modelfile")
    (here / "binary").write_bytes(b"\xff")
    (here / "from-none").write_text("FROM none\n")
    monkeypatch.chdir(here)
    return {
        "MODEL": str(fake.path),
        "FILE": "file",
        "FOLDER": "./folder",
        "BINARY": "binary",
        "FROM-NONE": "from-none",
    }


@pytest.mark.parametrize(("code", "line"), CASES, ids=[f"{code}: {line}" for code, line in CASES])
def test_every_verb_ends_with_the_documented_code(
    llamay: Callable[..., Any], places: dict[str, str], code: Exit, line: str
) -> None:
    arguments = shlex.split(line)
    for word, place in places.items():
        arguments = [f"{place}{a.removeprefix(word)}" if a.split("/")[0] == word else a for a in arguments]

    result = llamay(*arguments)

    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    assert "defect" not in result.stderr


def test_more_tokens_than_a_model_has_room_for_are_wrong_usage() -> None:
    model: Any = SimpleNamespace(pool=SimpleNamespace(layout=SimpleNamespace(groups=())), context_size=300)

    with pytest.raises(WrongUsageError, match="--tokens 400 leaves no room"):
        text_tokens(model, 400)


def test_every_verb_is_among_them() -> None:
    def verbs(lines: str) -> set[str]:
        return {line.split()[0] for line in lines.strip().splitlines()}

    assert verbs(WRONG_USAGE) == set(COMMANDS)
    assert verbs(NOT_THERE) == set(COMMANDS) - VERBS_WITHOUT_FILES


@pytest.mark.parametrize(
    "text", ["bogus = 1", "[", 'threads = "x"', "threads = [1]", "[run]\nbogus = 1", "\xff"]
)
def test_a_setting_in_the_users_file_that_cannot_be_is_wrong_usage(
    llamay: Callable[..., Any], fake: Any, tmp_path: Path, text: str
) -> None:
    file = tmp_path / "config" / "llamay" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_bytes(text.encode("latin-1"))

    result = llamay("run", fake.path, "-p", "x")

    assert result.exit_code == 2
    assert str(file) in result.stderr


@pytest.mark.parametrize("arguments", [("serve", "m"), ("ps",), ("config", "show", "serve")])
def test_a_setting_in_the_servers_file_that_cannot_be_is_wrong_usage(
    llamay: Callable[..., Any], tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    file = tmp_path / "config" / "llamay" / "server.toml"
    file.parent.mkdir(parents=True)
    file.write_text("bogus = 1")

    result = llamay(*arguments)

    assert result.exit_code == 2
    assert str(file) in result.stderr


def test_a_file_that_is_no_model_is_an_error_and_no_wrong_usage(
    llamay: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "x.gguf").write_bytes(b"GGUF, but nothing behind it")

    for model in (tmp_path, tmp_path / "x.gguf"):
        result = llamay("run", model, "-p", "x")
        assert (result.exit_code, result.stderr[:7]) == (1, "error: ")
