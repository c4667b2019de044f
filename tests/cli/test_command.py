"""`llamay`, process by process: what goes where, what comes back, and how it ends."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import llamay_models
from llamay_models import Sampling

Run = Callable[..., subprocess.CompletedProcess[str]]
START = "Once upon a time"


def test_cl09_help_imports_nothing_heavy(environment: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "llamay_cli", "--help"],
        capture_output=True,
        text=True,
        env=environment,
    )

    imported = {
        line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time")
    }
    assert done.returncode == 0
    heavy = {
        "numpy",
        "httpx",
        "rich",
        "prompt_toolkit",
        "llamay_models",
        "llamay_kernels",
        "llamay_server",
        "pip",
    }
    assert not heavy & imported


def test_the_text_is_the_one_that_python_gets(llamay: Run, stories: Path) -> None:
    with llamay_models.load(stories) as model, model.context(START) as context:
        text = context.generate(Sampling(seed=11, temperature=0.9), max_tokens=40).text

    done = llamay("run", stories, "--raw", "-p", START, "--seed", 11, "--temperature", 0.9, "-n", 40)

    assert (done.returncode, done.stdout, done.stderr) == (0, text.removesuffix("\n") + "\n", "")
    assert len(text) > 40


@pytest.mark.parametrize(
    "options", [("--threads", 1), ("--threads", 3), ("--ctx-size", 128), ("--progress", "none")]
)
def test_what_must_not_matter_does_not(llamay: Run, stories: Path, options: tuple[Any, ...]) -> None:
    plain = llamay("run", stories, "--raw", "-p", START, "--seed", 3, "-n", 30)

    assert (
        llamay("run", stories, "--raw", "-p", START, "--seed", 3, "-n", 30, *options).stdout == plain.stdout
    )


def test_what_is_piped_in_follows_the_argument_and_not_the_option(llamay: Run, stories: Path) -> None:
    both = llamay("run", stories, "--raw", "Once\n\nupon", "--temperature", 0, "-n", 10)
    piped = llamay("run", stories, "--raw", "Once", "--temperature", 0, "-n", 10, stdin="upon\n")
    left = llamay("run", stories, "--raw", "-p", "Once", "--temperature", 0, "-n", 10, stdin="upon\n")
    once = llamay("run", stories, "--raw", "-p", "Once", "--temperature", 0, "-n", 10)

    assert both.stdout == piped.stdout
    assert left.stdout == once.stdout


def test_cl05_an_answer_that_nobody_reads_any_more_ends_quietly(
    environment: dict[str, str], stories: Path
) -> None:
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "llamay_cli",
            "run",
            stories,
            "--raw",
            "-p",
            START,
            "--ignore-eos",
            "-n",
            "400",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        env=environment,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(5)
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()

    assert (process.wait(60), errors) == (141, b"")


def test_ctrl_c_ends_an_answer_with_130_and_keeps_what_was_said(
    environment: dict[str, str], stories: Path
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "llamay_cli", "run", stories, "--raw", "-p", START, "--ignore-eos"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        env=environment,
    )
    assert process.stdout is not None
    said = process.stdout.read(20)
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    rest, errors = process.communicate(timeout=60)

    assert process.returncode == 130
    assert time.monotonic() - began < 10
    assert (said + rest).endswith(b"\n")
    assert errors == b""


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "empty"),
        (b"GGUF", ""),
        (b"PK\x03\x04" + bytes(100), "GGUF"),
        (b"GGUF\x03\0\0\0" + b"\xff" * 16, ""),
    ],
)
def test_a_file_that_is_no_model_is_one_clear_line(
    llamay: Run, tmp_path: Path, content: bytes, word: str
) -> None:
    (tmp_path / "bad.gguf").write_bytes(content)

    done = llamay("run", "./bad.gguf", "-p", "x")

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: ")
    assert "bad.gguf" in done.stderr
    assert word in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) <= 2


def test_a_split_model_is_pulled_whole_and_says_the_same(llamay: Run, data: Path, stories: Path) -> None:
    first = next((data / "models" / "split").glob("*-00001-of-*.gguf"))

    assert llamay("pull", first, "--name", "split").returncode == 0
    assert llamay("show", "split", "--check").returncode == 0
    ours = llamay("run", "split", "--raw", "-p", START, "--temperature", 0, "-n", 20)
    assert ours.returncode == 0, ours.stderr
    assert ours.stdout == llamay("run", stories, "--raw", "-p", START, "--temperature", 0, "-n", 20).stdout
    assert llamay("ctx", "build", "split", "-p", START, "-o", "a.llamay").returncode == 0
    assert llamay("ctx", "run", "a.llamay", "--temperature", 0, "-n", 20).stdout == ours.stdout


def test_cl11_the_store_from_pull_to_rm(llamay: Run, stories: Path) -> None:
    assert llamay("pull", stories, "--name", "me/stories:260k").returncode == 0

    listed = json.loads(llamay("list", "--json").stdout)
    assert [entry["name"] for entry in listed] == ["me/stories:260k"]
    shown = json.loads(llamay("show", "ME/Stories:260K", "--json").stdout)
    assert shown["sha256"] == listed[0]["sha256"][0]
    assert shown["architecture"] == "llama"
    assert llamay("run", "me/stories:260k", "--raw", "-p", "A", "-n", 2).returncode == 0
    Path(shown["path"]).chmod(0o644)
    with Path(shown["path"]).open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\xee")
    checked = llamay("show", "me/stories:260k", "--check")
    assert checked.returncode == 1
    assert "is damaged" in checked.stderr
    assert llamay("rm", "me/stories:260k").returncode == 0
    assert llamay("rm", "me/stories:260k").returncode == 3
    assert llamay("list", "-q").stdout == ""


def test_a_context_goes_on_in_another_process_as_if_it_had_never_stopped(llamay: Run, stories: Path) -> None:
    llamay("pull", stories, "--name", "s")
    assert llamay("ctx", "build", "s", "-p", START, "-o", "a.llamay").returncode == 0

    whole = llamay("run", "s", "--raw", "-p", START, "--temperature", 0, "-n", 30).stdout
    first = llamay("ctx", "run", "a.llamay", "--temperature", 0, "-n", 10, "-o", "b.llamay")
    assert first.returncode == 0, first.stderr
    # How it was sampled is part of the context.
    rest = llamay("ctx", "run", "b.llamay", "-n", 20)
    assert first.stdout.removesuffix("\n") + rest.stdout == whole


def test_branches_get_their_own_texts(llamay: Run, stories: Path) -> None:
    llamay("pull", stories, "--name", "s")
    llamay("ctx", "build", "s", "-p", START, "-o", "a.llamay")

    done = llamay("ctx", "fork", "a.llamay", "--append", ", a dog", "--append", ", a cat", "-o", "b{}.llamay")

    assert done.returncode == 0, done.stderr
    for name, text in (("b1", "Once upon a time, a dog"), ("b2", "Once upon a time, a cat")):
        ids = [int(i) for i in llamay("ctx", "inspect", f"{name}.llamay", "--tokens").stdout.split()]
        with llamay_models.load(stories) as model:
            # A vocabulary of whole words may put a space between the two texts.
            assert model.decode(ids).replace(" ", "").endswith(text.replace(" ", ""))
    again = llamay("ctx", "fork", "a.llamay", "-n", 2, "-o", "b{}.llamay")
    assert again.returncode == 5
    assert "b1.llamay exists already" in again.stderr


def test_a_context_file_says_what_it_holds_and_a_damaged_one_what_is_wrong(
    llamay: Run, stories: Path, tmp_path: Path, data: Path
) -> None:
    llamay("pull", stories, "--name", "s")
    llamay("ctx", "build", "s", "-p", START, "-o", "a.llamay", "--kv", "f32")

    document = json.loads(llamay("ctx", "inspect", "a.llamay", "--json").stdout)
    assert document["model"] == "s"
    assert document["tokens"] > 3
    assert llamay("ctx", "run", "a.llamay", "-n", 1).returncode == 0  # in the precision that it has

    raw = bytearray((tmp_path / "a.llamay").read_bytes())
    raw[len(raw) // 2] ^= 1
    (tmp_path / "a.llamay").write_bytes(raw)
    for verb in ("inspect", "run", "fork"):
        done = llamay("ctx", verb, "a.llamay")
        assert done.returncode == 1
        assert "a.llamay" in done.stderr
        assert len(done.stderr.splitlines()) <= 2

    other = llamay("ctx", "run", "a.llamay", "-m", data / "models" / "qwen3.gguf")
    assert other.returncode == 1


@pytest.mark.parametrize("model", ["stories260K.gguf", "gemma3.gguf", "qwen3.gguf"])
@pytest.mark.slow
def test_verify_finds_no_difference(llamay: Run, data: Path, model: str) -> None:
    done = llamay("verify", data / "models" / model, "--json", "--tokens", 100, timeout=280)

    document = json.loads(done.stdout)
    assert done.returncode == 0
    assert document["ok"] is True
    assert [check["difference"] for check in document["checks"]] == [0.0] * 7


def test_bench_gives_rates_limits_and_no_pages(llamay: Run, stories: Path) -> None:
    done = llamay("bench", stories, "--json", "--repeat", 1)

    assert done.returncode == 0, done.stderr
    found = {m["name"]: m for m in json.loads(done.stdout)["measurements"]}
    assert list(found) == [
        "prefill",
        "decode",
        "fork at 32 pages",
        "fork at 512 pages",
        "snapshot",
        "restore",
    ]
    assert all(m["rate"] > 0 for m in found.values())
    assert found["fork at 512 pages"]["pages_allocated"] == 0
    for name in ("prefill", "decode", "snapshot", "restore"):
        m = found[name]
        assert m["fraction"] > 0
        assert m["limit"] in ("int8_ops", "read_bandwidth", "file_write", "file_read")


@pytest.fixture
def chat(environment: dict[str, str], stories: Path) -> Iterator[Callable[[str, str], str]]:
    """A chat in a terminal: `chat(keys, expected)` types, waits for the pattern, returns all that was seen."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(environment, TERM="xterm", PROMPT_TOOLKIT_NO_CPR="1")
        command = [sys.executable, "-m", "llamay_cli", "run", str(stories), "--temperature=0", "-n20"]
        os.execv(sys.executable, command)
    seen = ""

    def talk(keys: str, expected: str) -> str:
        nonlocal seen
        seen = ""
        os.write(terminal, keys.encode())
        deadline = time.monotonic() + 60
        while not re.search(expected, seen, re.DOTALL):
            ready, _, _ = select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise AssertionError(f"waited for {expected!r}, saw {seen!r}")
            try:
                seen += os.read(terminal, 1 << 16).decode("utf-8", "replace")
            except OSError:
                break
        return seen

    yield talk
    os.close(terminal)
    os.waitpid(pid, 0)


def test_cl03_cl15_a_chat_in_a_terminal(chat: Callable[[str, str], str], tmp_path: Path) -> None:
    chat("", ">")
    assert "Lily" in chat(f"{START} there was\r", "max-tokens is reached")
    assert "no command /nonsense" in chat("/nonsense\r", "/help shows")
    assert "tokens" in chat("/branches\r", "messages")
    chat(f"/save {tmp_path}/chat.llamay\r", r"bytes\).*>")
    chat("\x03", r"leaves\.")
    chat("/bye\r", "\0never")


def test_serve_answers_and_ends_when_told(environment: dict[str, str], stories: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "llamay_cli", "serve", f"tiny={stories}", "--port", "0"],
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        env=environment,
    )
    assert process.stderr is not None
    try:
        address = next(m[0] for line in process.stderr if (m := re.search(r"http://127\.0\.0\.1:\d+", line)))
        with urllib.request.urlopen(f"{address}/v1/models", timeout=60) as answer:
            assert [model["id"] for model in json.load(answer)["data"]] == ["tiny"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def test_serve_says_what_cannot_be_served(llamay: Run) -> None:
    assert llamay("serve").returncode == 3
    done = llamay("serve", "nothing-like-it")
    assert done.returncode == 3
    assert done.stderr.startswith("error: no model named nothing-like-it")


@pytest.mark.parametrize(
    "bound",
    [("--regex", "yes|no"), ("--grammar", 'root ::= "yes" | "no"'), ("--schema", '{"enum": [true, false]}')],
)
def test_a_bound_answer_fits_its_bound(llamay: Run, stories: Path, bound: tuple[str, str]) -> None:
    done = llamay("run", stories, "--raw", "-p", START, *bound, "--temperature", 0)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip() in {"yes", "no", "true", "false"}


def test_a_grammar_that_is_none_is_refused_with_its_place(llamay: Run, stories: Path) -> None:
    done = llamay("run", stories, "--raw", "-p", START, "--grammar", "root ::= missing")

    assert done.returncode != 0
    assert done.stderr.startswith("error: --grammar: ")
    assert "missing" in done.stderr


def test_serve_shows_copies_and_deletes_what_is_in_the_store(
    llamay: Run, environment: dict[str, str], stories: Path
) -> None:
    assert llamay("pull", stories, "--name", "tales").returncode == 0
    process = subprocess.Popen(
        [sys.executable, "-m", "llamay_cli", "serve", str(stories), "--port", "0"],
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        env=environment,
    )
    assert process.stderr is not None
    try:
        address = next(m[0] for line in process.stderr if (m := re.search(r"http://127\.0\.0\.1:\d+", line)))

        def ask(path: str, method: str = "POST", **body: object) -> tuple[int, str]:
            data = json.dumps(body).encode() if body else None
            request = urllib.request.Request(f"{address}{path}", data, method=method)
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    return answer.status, answer.read().decode()
            except urllib.error.HTTPError as error:
                with error:
                    return error.code, error.read().decode()

        def names() -> set[str]:
            return {model["name"] for model in json.loads(ask("/api/tags", "GET")[1])["models"]}

        assert "tales" in names()
        assert ask("/api/copy", source="tales", destination="fables:v1")[0] == 200
        assert ask("/api/generate", model="fables:v1", prompt="Once", stream=False)[0] == 200
        assert ask("/api/delete", "DELETE", model="tales")[0] == 200
        assert "tales" not in names()
        assert "fables:v1" in names()
        assert ask("/api/delete", "DELETE", model="tales")[0] == 404
        status, said = ask("/api/pull", model="/etc/passwd", stream=False)
        assert status == 404, said
    finally:
        process.terminate()
        process.wait()
        process.stderr.close()
