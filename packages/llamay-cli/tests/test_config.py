"""The file of settings: flags go before the environment, that before the file, and nothing in it is ignored."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llamay_cli.options.sampling import SAMPLING_DEFAULTS

Llamay = Callable[..., Any]
Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write config.toml where the command looks for it."""

    def write(text: str) -> Path:
        path = tmp_path / "config" / "llamay" / "config.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return write


def test_cl08_flags_go_before_the_environment_and_that_before_the_file(
    fake: Any, llamay: Llamay, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    def threads(*flags: object) -> Any:
        fake.setup = lambda model: model.script.append("Yes.")
        result = llamay("run", fake.path, "-p", "Well?", *flags)
        assert result.exit_code == 0, result.stderr
        return fake.model.options["threads"]

    assert threads() is None
    write("threads = 5\n")
    assert threads() == 5
    monkeypatch.setenv("LLAMA_ARG_THREADS", "4")
    assert threads() == 4
    monkeypatch.setenv("LLAMAY_THREADS", "3")
    assert threads() == 3
    assert threads("--threads", 2) == 2


def test_a_verbs_own_table_goes_before_what_all_verbs_share(fake: Any, llamay: Llamay, write: Write) -> None:
    write(
        'kv = "f32"\ntemperature = 0.5\nstop = ["END"]\n[run]\ntemp = 0.25\nkv = "q8"\n[ctx.run]\nkv = "vq8"\n'
    )
    fake.setup = lambda model: model.script.append("one END two")

    result = llamay("chat", fake.path, "-p", "Well?")

    assert (result.exit_code, result.stderr) == (0, "")
    assert fake.model.options["kv"] == "q8"
    assert fake.model.sampled[0].temperature == 0.25


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("temperatur = 1\n", "temperatur is not an option that verbs share"),
        ("[runn]\ntemperature = 1\n", "[runn] is not a verb"),
        ("[run]\ntemperatur = 1\n", "[run] temperatur is not an option of `llamay run`"),
        ("[serve]\nport = 1\n", "server.toml"),
        ("[run]\ntemperature = 'hot'\n", "'hot'"),
        ("[run]\ntemperature = -1\n", "--temperature"),
        ("[run]\ntemperature = true\n", "[run] temperature is not true or false"),
        ("[run]\nraw = 'yes'\n", "[run] raw is true or false"),
        ("[run]\nsystem = 2026-01-01\n", "[run] system must be"),
        ("[run]\nsystem = ['a']\n", "takes one value"),
        ("[run]\nstop = [true]\n", "[run] stop must be"),
        ("[run]\nhelp = true\n", "[run] help is not an option"),
        ("[ctx]\nbuild = 1\n", "write [ctx.build]"),
        ("[run\n", "line 1"),
        ("a = '\x00'\n", "config.toml"),
    ],
)
def test_cl06_what_the_file_cannot_mean_is_an_error_that_names_the_file(
    fake: Any, llamay: Llamay, write: Write, text: str, said: str
) -> None:
    path = write(text)

    verb = ("ctx", "inspect", "x") if "[ctx" in text else ("run", fake.path, "-p", "Well?")
    result = llamay(*verb)

    assert result.exit_code in (1, 2)
    assert said in result.stderr
    assert str(path) in result.stderr
    assert "Traceback" not in result.output
    shown = llamay("config", "show")
    assert shown.exit_code in (1, 2)
    assert said in shown.stderr


def test_a_file_that_is_not_text_is_an_error(fake: Any, llamay: Llamay, write: Write) -> None:
    write("").write_bytes(b"\xff\xfe")

    assert "config.toml" in llamay("list").stderr


def test_help_and_completion_do_not_read_the_file(llamay: Llamay, write: Write) -> None:
    write("[nonsense")

    assert llamay("--help").exit_code == 0
    assert llamay("--version").exit_code == 0


def test_cl08_show_says_what_holds_and_where_it_came_from(
    llamay: Llamay, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = llamay("config", "show")
    assert (nothing.exit_code, nothing.stdout) == (0, "")

    path = write("threads = 5\n[run]\ntemperature = 0.2\nstop = ['a', 'b']\n")
    monkeypatch.setenv("LLAMAY_CTX_MEM_BUDGET", "4g")
    result = llamay("config", "show", "--origin")
    assert result.exit_code == 0, result.stderr
    run = result.stdout[result.stdout.index("[run]") :].split("\n\n")[0]
    assert [line.split("  # ") for line in map(str.rstrip, run.splitlines()[1:])] == [
        ['stop = ["a", "b"]'.ljust(40), f"file {path}"],
        ["temperature = 0.2".ljust(40), f"file {path}"],
        ["threads = 5".ljust(40), f"file {path}"],
        [f"ctx-mem-budget = {4 << 30}".ljust(40), "environment LLAMAY_CTX_MEM_BUDGET"],
    ]

    found = {each["name"]: each for each in json.loads(llamay("config", "show", "run", "--json").stdout)}
    assert found["threads"] == {"verb": "run", "name": "threads", "value": 5, "origin": f"file {path}"}
    assert found["top-k"] == {"verb": "run", "name": "top-k", "value": 40, "origin": "default"}
    assert found["seed"]["value"] is None


def test_what_show_prints_is_a_file_of_the_same_meaning(llamay: Llamay, write: Write) -> None:
    write(
        'threads = 5\n[run]\ntemperature = 0.2\nstop = ["\\"a\\n"]\nraw = true\n[ctx.build]\nctx-size = 99\n'
    )
    shown = llamay("config", "show").stdout

    write(shown)

    assert llamay("config", "show").stdout == shown
    assert "[ctx.build]" in shown


def test_show_of_one_verb_lists_every_option(llamay: Llamay) -> None:
    shown = llamay("config", "show", "run").stdout

    assert all(name.replace("_", "-") in shown for name in SAMPLING_DEFAULTS)
    assert llamay("config", "show", "chat").stdout == shown
    assert "[ctx.build]" in llamay("config", "show", "ctx", "build").stdout
    below = llamay("config", "show", "ctx").stdout
    assert "[ctx.build]" in below
    assert "[ctx.run]" in below
    assert "[run]" not in below
    assert llamay("config", "show", "nonsense").exit_code == 2


def test_the_servers_settings_are_shown_from_its_own_file(llamay: Llamay, write: Write) -> None:
    write("threads = 5\n").with_name("server.toml").write_text("port = 4242\napi_keys = ['secret']\n")

    shown = llamay("config", "show", "serve")

    assert "port = 4242" in shown.stdout
    assert "threads = 0" in shown.stdout
    listed = llamay("config", "show", "serve", "--json").stdout
    assert {each["name"]: each["value"] for each in json.loads(listed)}["port"] == 4242
    assert "secret" not in shown.stdout + listed


def test_path_says_where_the_file_would_be(
    llamay: Llamay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert llamay("config", "path").stdout.strip() == str(tmp_path / "config" / "llamay" / "config.toml")
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setenv("HOME", "/home/someone")
    assert llamay("config", "path").stdout.strip() == "/home/someone/.config/llamay/config.toml"
    monkeypatch.delenv("HOME")
    assert llamay("config", "path").exit_code == 1
    assert llamay("list").exit_code == 0
