"""The JSON Schema test suite: how many groups are exactly right, and that nothing invalid is ever accepted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers import accepts

import llamay_grammar as lg

GOALS = {"draft4": 0.9, "draft6": 0.9, "draft7": 0.9, "draft2019-09": 0.8, "draft2020-12": 0.8}


@pytest.mark.parametrize("draft", GOALS)
def test_groups_are_right_and_none_accepts_too_much(
    draft: str, test_data: Path, bytes_vocabulary: lg.Vocabulary
) -> None:
    suite = test_data / "json-schema-test-suite"
    remotes = {
        f"http://localhost:1234/{p.relative_to(suite / 'remotes').as_posix()}": p.read_text("utf-8")
        for p in (suite / "remotes").rglob("*.json")
    }
    specifications = pytest.importorskip("jsonschema_specifications").REGISTRY

    def resolver(uri: str) -> Any:
        if uri in remotes:
            return remotes[uri]
        for name in (uri, uri + "#"):
            if name in specifications:
                return specifications[name].contents
        return None

    groups = right = 0
    over = []
    for file in sorted((suite / "tests" / draft).glob("*.json")):
        for group in json.loads(file.read_text("utf-8")):
            groups += 1
            try:
                grammar = lg.compile_json_schema(
                    group["schema"], bytes_vocabulary, draft=draft.removeprefix("draft"), resolver=resolver
                )
            except lg.CompileError as error:
                right += "no document" in str(error) and not any(t["valid"] for t in group["tests"])
                continue
            ok = True
            for test in group["tests"]:
                got = accepts(grammar, json.dumps(test["data"]).encode())
                ok &= got == test["valid"]
                if got and not test["valid"]:
                    over.append((file.name, group["description"], test["description"]))
            right += ok
    assert over == []
    assert right / groups >= GOALS[draft]
