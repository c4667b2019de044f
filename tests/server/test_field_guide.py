"""The guide to adding a dialect's field, followed to the letter: applied to a copy of the server, the field works."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from ..guides import DOCS, apply_diff, copy_sources, examples

PACKAGE = DOCS.parent / "packages" / "llamay-server"
SCRIPT = """
import json

import llamay_server
from conftest import running
from fake_engine import FakeModel

assert llamay_server.__file__.startswith(COPY), llamay_server.__file__
THOUGHT = "".join(f"so {n}, " for n in range(60))
ASK = {"messages": [{"role": "user", "content": "Hello"}], "enable_thinking": True, "max_tokens": 300}


def reply(prompt):
    return "The answer." if "</think>" in prompt else f"<think>{THOUGHT}</think>The answer."


with running(FakeModel(thinks=True, script=reply)) as server:

    def ask(**more):
        return server.client.post("/v1/chat/completions", json=ASK | more)

    free = ask(max_tokens=3000).json()["choices"][0]["message"]
    whole = ask(thinking_budget=30).json()
    bound = whole["choices"][0]["message"]
    assert free["content"] == bound["content"] == "The answer.", (free, bound)
    assert THOUGHT.startswith(bound["reasoning_content"].strip()), bound
    assert len(bound["reasoning_content"]) < 50 < len(free["reasoning_content"])
    assert ask(thinking_budget=None, max_tokens=3000).json()["choices"][0]["message"] == free

    streamed = {"content": "", "reasoning_content": ""}
    for line in ask(thinking_budget=30, stream=True).text.splitlines():
        if line.startswith("data: {"):
            for choice in json.loads(line[6:])["choices"]:
                for name in streamed:
                    streamed[name] += choice["delta"].get(name) or ""
    assert streamed == {name: bound[name] for name in streamed}

    for value in (0, -1, "many", 1.5):
        refused = ask(thinking_budget=value)
        assert refused.status_code == 400, value
        assert refused.json()["error"]["param"] == "thinking_budget", refused.text
    for more in ({"n": 2}, {"return_progress": True, "stream": True}):
        refused = ask(thinking_budget=30, **more)
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "unsupported_parameter")

    schemas = server.client.get("/openapi.json").json()["components"]["schemas"]
    assert "thinking_budget" in schemas["ChatCompletionRequest"]["properties"]
"""


def test_a_field_is_a_line_of_the_schema_and_its_meaning_in_the_reader(tmp_path: Path) -> None:
    copy = copy_sources(PACKAGE / "src" / "llamay_server", tmp_path)
    (diff,) = examples("server.md", "To add a field", "diff")
    changed = apply_diff(diff, tmp_path)
    assert [path.name for path in changed] == ["schema.py", "reading.py"]
    (tmp_path / "script.py").write_text(f"COPY = {str(copy)!r}\n{SCRIPT}")
    path = os.pathsep.join([str(copy.parent), str(PACKAGE / "tests"), *sys.path])
    done = subprocess.run(
        [sys.executable, "-W", "error", "script.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
