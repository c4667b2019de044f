"""Coding agents from npm, headless on loopback, finish a tool loop, and their second turn is cached.

The model's side is scripted, since what is tested is that agent and server understand each other. Installed by
`hatch run clients:install`; elsewhere what is not installed is skipped.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

MODULES = os.environ.get("LLAMAY_NODE_MODULES", "")
COMMAND = "echo proven > proof.txt"


def reply(prompt: str) -> str:
    """One command by whatever tool the agent has for it, then the last word."""
    if "<|im_start|>tool\n" in prompt or "<tool_response>" in prompt:
        return "The file is written."
    for name, argument in (("exec_command", "cmd"), ("bash", "command")):
        if f'"{name}"' in prompt:
            arguments = {argument: COMMAND, "description": "write the proof"}
            return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"
    return "A title"


class Turns:
    """The scripted model, and of each prompt its length and how much of it was computed before."""

    def __init__(self) -> None:
        from llamay_server_tests.fake_engine import FakeModel

        self.seen: list[tuple[int, int]] = []
        self.model: Any = FakeModel(context_length=500_000, script=reply)
        match = self.model.match

        def noted(tokens: Sequence[int], tenant: str) -> int:
            cached = match(tokens, tenant)
            self.seen.append((len(tokens), cached))
            return cached

        self.model.match = noted


@pytest.fixture
def turns() -> Turns:
    return Turns()


@pytest.fixture
def url(turns: Turns) -> Iterator[str]:
    from llamay_server_tests.conftest import running

    with running(turns.model) as server:
        yield server.url


def agent(name: str) -> str:
    path = Path(MODULES, "node_modules", ".bin", name)
    if not MODULES or not path.exists():
        pytest.skip(f"LLAMAY_NODE_MODULES names no folder where {name} is installed")
    return str(path)


def run(command: list[str], folder: Path, home: Path, **more: str) -> str:
    environment = os.environ | {"HOME": str(home), "XDG_CONFIG_HOME": str(home / ".config")} | more
    environment |= {
        "PWD": str(folder),
        "XDG_DATA_HOME": str(home / "data"),
        "XDG_STATE_HOME": str(home / "state"),
    }
    done = subprocess.run(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=150, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def check(turns: Turns, folder: Path, said: str) -> None:
    assert "The file is written." in said
    assert (folder / "proof.txt").read_text() == "proven\n"
    (first, _), (second, cached) = [turn for turn in turns.seen if turn[0] > 10_000][:2]
    assert second > first
    assert cached >= 0.95 * first


def test_ag01_codex(turns: Turns, url: str, tmp_path: Path) -> None:
    program = agent("codex")
    home, folder = tmp_path / "home", tmp_path / "work"
    folder.mkdir()
    (home / ".codex").mkdir(parents=True)
    (home / ".codex" / "config.toml").write_text(
        'model = "fake"\nmodel_provider = "llamay"\n[model_providers.llamay]\nname = "llamay"\n'
        f'base_url = "{url}/v1"\nwire_api = "responses"\n'
    )
    options = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
    said = run([program, "exec", *options, "write the proof"], folder, home, CODEX_HOME=str(home / ".codex"))
    check(turns, folder, said)


def test_ag01_opencode(turns: Turns, url: str, tmp_path: Path) -> None:
    program = agent("opencode")
    home, folder = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    folder.mkdir()
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "llamay",
        "options": {"baseURL": f"{url}/v1"},
        "models": {"fake": {"name": "fake"}},
    }
    config = {"provider": {"llamay": provider}, "model": "llamay/fake", "permission": {"bash": "allow"}}
    (folder / "opencode.json").write_text(json.dumps(config))
    check(turns, folder, run([program, "run", "write the proof"], folder, home))
