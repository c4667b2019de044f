"""Which regular expressions are compiled, refused as bad syntax, and written under the format "regex"."""

from __future__ import annotations

import json
import random

import pytest
from helpers import accepts, walk

import llamay_grammar as lg

# Syntax errors of ECMA-262 with the flag u.
BAD = [
    "a**",
    "a{1,2}{2,3}",
    "a{2}*",
    "a+{2}",
    "a{2}?{3}",
    "a{3,2}",
    "*a",
    "a|*",
    "(+)",
    "{1}",
    "a|{1,2}",
    "^*",
    "${2}",
    "(",
    ")",
    "(?",
    "(?x)",
    "(?<a",
    "(?<>x)",
    "(?<1>x)",
    "(?<a-b>x)",
    "(?<a>x)(?<a>y)",
    "(?<a>(?<a>y))",
    "(?:(?<a>x)|b)(?<a>y)",
    "[",
    "[b-a]",
    "\\",
    "\\a",
    "\\u{}",
    "\\u{110000}",
    "\\u12",
    "\\x1",
    "\\c1",
    "\\01",
    "\\p{Nothing}",
    "[\\1]",
]
GOOD = [
    "^[a-z]+$",
    "\\d{3}-\\d{4}",
    "(?:a|b)*",
    "\\p{L}+",
    "^(?=.*[A-Z])(?=.*\\d).{8,}$",
    "^(?:(?!foo).)*$",
    "(?<year>\\d{4})-(?<month>\\d{2})-(?<day>\\d{2})",
    "^[\\w.+-]+@[\\w-]+\\.[\\w.-]+$",
    "^((25[0-5]|2[0-4]\\d)\\.){3}$",
    "^#?([a-fA-F0-9]{6}|[a-fA-F0-9]{3})$",
    '[^"]*',
    "^a|^b$",
    "x{2,5}",
    "\\u00e9\\u{1F}",
    "^\\+?[1-9]\\d{1,14}$",
    "",
    "^/(?:[^/]+/)*$",
    "a*?b+?c??",
]


@pytest.mark.parametrize("source", BAD)
def test_bad_syntax_is_refused_with_its_character(source: str, bytes_vocabulary: lg.Vocabulary) -> None:
    with pytest.raises(lg.CompileError, match=r"character [0-9]+ of the regular expression"):
        lg.compile_regex(source, bytes_vocabulary)
    with pytest.raises(lg.CompileError) as caught:
        lg.compile_json_schema({"patternProperties": {source: {}}}, bytes_vocabulary)
    assert caught.value.pointer == "/patternProperties"


@pytest.mark.parametrize(
    ("source", "good", "bad"),
    [
        ("a{,5}", ["a{,5}"], ["aa"]),
        ("{}]", ["{}]"], ["{}"]),
        ("\\-\\_\\é", ["-_é"], ["\\-"]),
        ("[\\d-z]", ["5", "-", "z"], ["a"]),
        ("[\\d-a-z]", ["5", "-", "a", "z"], ["b"]),
        ("(?=a)?b", ["b"], ["ab"]),
        ("(?<a>x)|(?<a>y)", ["x", "y"], ["xy"]),
        ("(?:a{2}){3}", ["aaaaaa"], ["aaaaa"]),
    ],
)
def test_what_browsers_read_without_the_flag_has_their_meaning(
    source: str, good: list[str], bad: list[str], bytes_vocabulary: lg.Vocabulary
) -> None:
    grammar = lg.compile_regex(source, bytes_vocabulary, whole=True)
    assert [t for t in good if not accepts(grammar, t.encode())] == []
    assert [t for t in bad if accepts(grammar, t.encode())] == []


def test_the_format_regex_takes_everyday_expressions_and_no_bad_ones(bytes_vocabulary: lg.Vocabulary) -> None:
    grammar = lg.compile_json_schema({"type": "string", "format": "regex"}, bytes_vocabulary)
    assert [s for s in GOOD if not accepts(grammar, json.dumps(s).encode())] == []
    assert [s for s in BAD if accepts(grammar, json.dumps(s).encode())] == []


def test_what_is_written_under_the_format_regex_is_no_bad_syntax(awkward_vocabulary: lg.Vocabulary) -> None:
    grammar = lg.compile_json_schema({"type": "string", "format": "regex"}, awkward_vocabulary)
    rng = random.Random(7)
    for _ in range(60):
        text = walk(grammar, rng, 40)
        if text is None:
            continue
        source = json.loads(text)
        # Beyond syntax, the compiler refuses what no automaton expresses, and what takes too many states.
        reason = ""
        try:
            lg.compile_regex(source, awkward_vocabulary, budget=lg.Budget(seconds=1))
        except lg.CompileError as error:
            reason = str(error)
        expected = ("", "not supported", "no text matches", "states", "budget", "a lookbehind")
        assert any(reason == words or (words and words in reason) for words in expected), source
