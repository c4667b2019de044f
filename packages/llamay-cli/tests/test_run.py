"""`run`: the answer on stdout, everything else on stderr, and a documented exit code."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llamay_cli.options import loading
from llamay_cli.options.sampling import SAMPLING_DEFAULTS
from llamay_models import Sampling


def test_cl03_the_answer_alone_goes_to_stdout(fake: Any, llamay: Callable[..., Any]) -> None:
    fake.setup = lambda model: model.script.append("Paris.")

    result = llamay("run", fake.path, "-p", "Where?")

    assert (result.exit_code, result.stdout, result.stderr) == (0, "Paris.\n", "")
    assert fake.model.rendered == [[{"role": "user", "content": "Where?"}]]
    assert fake.model.closed
    assert all(context.closed for context in fake.model.open)


def test_system_prompt_files_and_options_reach_the_model(
    fake: Any, llamay: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("file text\n")

    result = llamay(
        "run", fake.path, "-p", "Sum up:", "-f", tmp_path / "a.txt", "-s", "Be brief.", "--seed", 7,
        "--temperature", 0.5, "--top-k", 3, "--top-p", 0.5, "--min-p", 0.1, "--repeat-penalty", 1.5,
        "-n", 4, "--ctx-size", 512, "--threads", 1, "--kv", "f32",
    )  # fmt: skip

    assert result.exit_code == 0, result.stderr
    assert fake.model.rendered == [
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Sum up:\n\nfile text"}]
    ]
    assert fake.model.sampled == [
        Sampling(seed=7, temperature=0.5, top_k=3, top_p=0.5, min_p=0.1, repeat_penalty=1.5)
    ]
    assert {k: fake.model.options[k] for k in ("threads", "kv", "ctx_size")} == {
        "threads": 1,
        "kv": "f32",
        "ctx_size": 512,
    }


def test_the_defaults_in_the_help_are_the_engines() -> None:
    default = Sampling()

    assert {name: getattr(default, name) for name in SAMPLING_DEFAULTS} == dict(SAMPLING_DEFAULTS)


def test_every_sampling_option_has_llama_cpps_name(fake: Any, llamay: Callable[..., Any]) -> None:
    given = {
        "--temp": 1.5,
        "--typical": 0.9,
        "--top-nsigma": 1.5,
        "--xtc-probability": 0.5,
        "--xtc-threshold": 0.2,
        "--dry-multiplier": 0.8,
        "--dry-base": 2,
        "--dry-allowed-length": 3,
        "--dry-penalty-last-n": 100,
        "--dynatemp-range": 0.5,
        "--dynatemp-exp": 2,
        "--mirostat": 2,
        "--mirostat-ent": 4,
        "--mirostat-lr": 0.2,
        "--samplers": "dry;temperature",
    }
    pairs = [x for pair in given.items() for x in pair]

    result = llamay(
        "run", fake.path, "-p", "Go", "--seed", 3, *pairs, "--dry-sequence-breaker", "x",
        "--dry-sequence-breaker", "y", "-l", "5+1.5", "-l", "7-inf",
    )  # fmt: skip

    assert result.exit_code == 0, result.stderr
    assert fake.model.sampled == [
        Sampling(
            seed=3,
            temperature=1.5,
            typical_p=0.9,
            top_n_sigma=1.5,
            xtc_probability=0.5,
            xtc_threshold=0.2,
            dry_multiplier=0.8,
            dry_base=2.0,
            dry_allowed_length=3,
            dry_penalty_last_n=100,
            dynatemp_range=0.5,
            dynatemp_exponent=2.0,
            mirostat=2,
            mirostat_tau=4.0,
            mirostat_eta=0.2,
            samplers=("dry", "temperature"),
            dry_sequence_breakers=("x", "y"),
            logit_bias={5: 1.5, 7: -math.inf},
        )
    ]


def test_a_draft_memory_and_folders_reach_the_engine(
    fake: Any, llamay: Callable[..., Any], tmp_path: Path
) -> None:
    loaded: dict[str, Any] = {}
    fake.setup = lambda model: loaded.update(model.options)

    result = llamay(
        "run", fake.path, "-p", "Go", "--draft", fake.path, "--ctx-mem-budget", "1.5g",
        "--ctx-spill-dir", tmp_path / "spill", "--prefix-cache-dir", tmp_path / "kept",
    )  # fmt: skip

    assert result.exit_code == 0, result.stderr
    assert loaded["draft"] == fake.path
    assert loaded["kv_budget"] == 3 << 29
    assert loaded["disk_cache"] == str(tmp_path / "kept")
    assert loaded["spill"] is not None
    assert (tmp_path / "spill").is_dir()

    loaded.clear()
    assert llamay("run", fake.path, "-p", "Go").exit_code == 0
    assert not {"draft", "kv_budget", "disk_cache", "spill"} & loaded.keys()


@pytest.mark.parametrize("size", ["lots", "0", "-1g", "1x", "9" * 400])
def test_a_size_that_is_none_is_refused(fake: Any, llamay: Callable[..., Any], size: str) -> None:
    result = llamay("run", fake.path, "-p", "Go", "--ctx-mem-budget", size)

    assert result.exit_code == 2
    assert "is not a size; write 512m or 4g" in result.stderr


def test_samplers_may_be_letters_and_breakers_may_be_none(fake: Any, llamay: Callable[..., Any]) -> None:
    result = llamay(
        "run", fake.path, "-p", "Go", "--seed", 1, "--sampling-seq", "kt", "--dry-sequence-breaker", "none"
    )

    assert result.exit_code == 0, result.stderr
    assert fake.model.sampled == [
        Sampling(seed=1, samplers=("top_k", "temperature"), dry_sequence_breakers=())
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--sampling-seq", "kz"], "'z' is no sampler"),
        (["--samplers", "top_k;tail_free"], "samplers must be among"),
        (["--samplers", "top_k", "--sampling-seq", "k"], "exclude each other"),
        (["--logit-bias", "five+1"], "'five+1' is not a token id and a signed number"),
        (["--mirostat", "3"], "mirostat"),
    ],
)
def test_a_wrong_sampler_is_told(
    fake: Any, llamay: Callable[..., Any], arguments: list[str], message: str
) -> None:
    result = llamay("run", fake.path, "-p", "Go", *arguments)

    assert result.exit_code != 0
    assert message in result.stderr


def test_raw_text_is_continued_as_it_is(fake: Any, llamay: Callable[..., Any]) -> None:
    result = llamay("run", fake.path, "--raw", "-p", "Once\n", "-n", 2)

    assert result.exit_code == 0
    assert fake.model.rendered == []
    assert fake.model.open[0].tokens[: len("\0Once\n")] == fake.model.encode("Once\n")


def test_cl03_stdin_is_the_prompt_when_there_is_no_other(fake: Any, llamay: Callable[..., Any]) -> None:
    assert llamay("run", fake.path, stdin="from a pipe\n").exit_code == 0
    assert fake.model.rendered[0][0]["content"] == "from a pipe"


def test_json_has_text_tokens_reason_usage_and_timings(fake: Any, llamay: Callable[..., Any]) -> None:
    fake.setup = lambda model: model.script.append('say "ä"')

    result = llamay("run", fake.path, "-p", "Go", "--json", "--seed", 5)

    document = json.loads(result.stdout)
    assert document["text"] == 'say "ä"'
    assert document["finish_reason"] == "stop"
    assert document["seed"] == 5
    assert document["usage"] == {"prompt_tokens": 6, "cached_tokens": 0, "completion_tokens": 8}
    assert document["timings"]["decode_tokens_per_second"] == pytest.approx(14.0)


def test_verbose_prints_timings_on_stderr(fake: Any, llamay: Callable[..., Any]) -> None:
    fake.setup = lambda model: model.script.append("Paris.")

    result = llamay("run", fake.path, "-p", "Where?", "-v")

    assert result.stdout == "Paris.\n"
    assert [line.split()[0] for line in result.stderr.splitlines()] == ["load", "prompt", "answer"]


def test_cl05_ctrl_c_keeps_what_was_said_and_exits_130(fake: Any, llamay: Callable[..., Any]) -> None:
    def setup(model: Any) -> None:
        model.script.append("a long story")
        model.interrupt_after = 6

    fake.setup = setup
    result = llamay("run", fake.path, "-p", "Go")

    assert (result.exit_code, result.stdout) == (130, "a long\n")
    assert fake.model.closed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("x", "-p", "y"), "give one of them"),
        (("-p", "y", "--schema", "{}", "--regex", "a"), "exclude each other"),
        (("-p", "y", "--regex", "a", "--ignore-eos"), "would break"),
        (("-p", "y", "--temperature", "-1"), "--temperature"),
        (("-p", "y", "--top-p", "1.5"), "--top-p"),
        (("-p", "y", "--seed", "-1"), "--seed"),
        (("-p", "y", "--temperature", "nan"), "temperature"),
        (("-p", "y", "--max-tokens", "-1"), "--max-tokens"),
        (("-p", "y", "--kv", "q2"), "--kv"),
        (("-p", "y", "--threads", "0"), "--threads"),
        (("-p", "y", "--logprobs", "3"), "--json"),
        (("--json",), "the prompt is empty"),
    ],
)
def test_wrong_usage_is_told_and_exits_2(
    fake: Any, llamay: Callable[..., Any], arguments: Any, message: str
) -> None:
    result = llamay("run", fake.path, *arguments)

    assert result.exit_code in (1, 2)
    assert result.stderr.startswith("error: ")
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_a_prompt_that_does_not_fit_is_one_line(fake: Any, llamay: Callable[..., Any]) -> None:
    result = llamay("run", fake.path, "-p", "x" * 100, "--ctx-size", 50)

    assert result.exit_code == 1
    assert result.stderr.splitlines()[0].startswith(
        "error: the prompt has 104 tokens but the context holds 50"
    )
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("model", "code"),
    [("nothing-like-it", 3), ("./missing.gguf", 3), ("../x", 3), ("a b", 2), ("pypi:no_such!", 2)],
)
def test_a_model_that_is_not_there_exits_3_and_no_name_2(
    llamay: Callable[..., Any], model: str, code: int
) -> None:
    result = llamay("run", model, "-p", "x")

    assert result.exit_code == code
    assert result.stderr.startswith("error: ")
    assert len(result.stderr.splitlines()) <= 2


def test_a_system_prompt_without_a_template_is_refused(fake: Any, llamay: Callable[..., Any]) -> None:
    fake.setup = lambda model: setattr(model, "chat_template", None)

    result = llamay("run", fake.path, "-p", "x", "-s", "y")

    assert result.exit_code == 1
    assert "chat template" in result.stderr


def test_a_file_that_is_no_text_is_refused(fake: Any, llamay: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"ok\xff")

    result = llamay("run", fake.path, "-f", tmp_path / "b")

    assert result.exit_code == 1
    assert "is not UTF-8 text (byte 2)" in result.stderr


def test_cl06_what_this_model_cannot_be_loaded_with_is_no_defect(
    llamay: Callable[..., Any], fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(*arguments: Any, **options: Any) -> Any:
        raise ValueError("ctx_size must be at most 64, not 512")

    monkeypatch.setattr(loading, "load_model", lambda: load)
    result = llamay("run", fake.path, "-p", "Well?", "--ctx-size", 512)

    assert (result.exit_code, result.stderr) == (2, "error: ctx_size must be at most 64, not 512\n")
