"""What cannot bind the output is one clear error: which option, which file, which keyword, where."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from llamay_cli.errors import CliError
from llamay_cli.options.constraint import build_constraint

DEEP = '{"not":' * 100_000 + "{}" + "}" * 100_000


class Words:
    vocab_size = 257
    eog = (256,)

    def token_bytes(self, token: int) -> bytes:
        return bytes([token]) if token < 256 else b"</s>"

    def token_text(self, token: int) -> str:
        return chr(token) if token < 256 else "</s>"

    def is_special(self, token: int) -> bool:
        return token >= 256


MODEL: Any = SimpleNamespace(tokenizer=Words(), vocab_size=260)


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        ("schema", "missing.json", "--schema: there is no file 'missing.json'"),
        ("schema", "x" * 5000, "--schema: there is no file"),
        ("schema", "a\0b", "--schema: there is no file 'a\\\\x00b'"),
        ("schema", '{"type": ', "--schema is not JSON: Expecting value: line 1 column 10"),
        ("schema", "bad.json", "--schema: bad.json is not JSON: Expecting ',' delimiter: line 2 column 1"),
        ("schema", "empty.json", "--schema: empty.json is not JSON"),
        ("schema", "binary.json", "binary.json is not UTF-8 text"),
        ("schema", DEEP, "--schema is nested too deep"),
        ("schema", '{"properties": {"a": {"type": "objekt"}}}', "--schema: /properties/a/type: unknown type"),
        ("schema", '{"items": {"pattern": "(a)\\\\1"}}', "--schema: /items/pattern: a back-reference"),
        ("schema", '{"minimum": 5, "maximum": 3, "type": "integer"}', "no document satisfies this schema"),
        ("schema", '{"$ref": "http://example.com/x"}', "--schema: /$ref: the reference"),
        ("regex", "(a", "--regex: missing ')'"),
        ("regex", "(?<=a)b", "--regex: a lookbehind"),
        ("grammar", "missing.gbnf", "--grammar: there is no file 'missing.gbnf'"),
        ("grammar", 'root ::= "a" nope', "--grammar: the rule 'nope', used in 'root', is not defined"),
        ("grammar", 'tree ::= "a"', "--grammar: "),
    ],
)
def test_a_constraint_that_cannot_be_built_says_why(
    kind: str, text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.json").write_text('{"type": "object"\n', "utf-8")
    Path("empty.json").write_text("", "utf-8")
    Path("binary.json").write_bytes(b"\xff\xfe")
    with pytest.raises(CliError) as caught:
        build_constraint(MODEL, kind, text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_the_argument_or_the_file_it_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    schema = {"type": "boolean"}
    Path("true.json").write_text(json.dumps(schema), "utf-8")
    Path("g.gbnf").write_text('root ::= "true"\n', "utf-8")
    for kind, text in (
        ("schema", json.dumps(schema)),
        ("schema", "true.json"),
        ("schema", "true"),
        ("grammar", "g.gbnf"),
        ("grammar", 'root ::= "true"'),
        ("regex", "true|false"),
    ):
        matcher = build_constraint(MODEL, kind, text)
        for byte in b"true":
            matcher.accept(byte)
        assert matcher.is_complete, (kind, text)
