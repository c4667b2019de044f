"""Regular expressions, GBNF, EBNF and tool envelopes."""

from __future__ import annotations

import ctypes
import itertools
import json
import random
import re
from typing import Any

import numpy as np
import pytest
from helpers import accepts, mask_bits, tagged
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import llamay_grammar as lg


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        ("^a+$", ["a", "aa"], ["", "b", "ab"]),
        ("b", ["b", "abc"], ["", "ac"]),
        ("^(?!ab)[a-c]{2}$", ["aa", "ba"], ["ab", "a"]),
        ("^(?=.*\\d)\\w{2,3}$", ["a1", "12", "ab3"], ["ab", "a", "abcd"]),
        ("^\\p{Lu}\\P{L}$", ["A1", "\u00c91"], ["a1", "AB"]),
        ("^\\p{Cased_Letter}\\p{Combining_Mark}?$", ["a", "e\u0301"], ["1", "\u0301", "\u4e2d"]),
        ("^[^\\p{Surrogate}]$", ["a", "\u20ac"], ["", "ab"]),
        ("^[^<>]{1,3}$", ["a", "\u20ac\U0001f600x"], ["", "<", "abcd"]),
        ("^\\u{1F600}|\\ud83d\\ude01$", ["\U0001f600", "x\U0001f601"], ["x\U0001f600"]),
        ("a$|^b", ["xa", "bx"], ["ax", "xb"]),
        ("^.$", ["x", "\u20ac"], ["\n", "", "xx"]),
        ("^(a|b)*c{2}$", ["cc", "abcc"], ["c", "abc"]),
        ("(?i)^ab$", ["AB", "aB"], ["ac"]),
    ],
)
def test_regular_expressions(
    pattern: str, good: list[str], bad: list[str], bytes_vocabulary: lg.Vocabulary
) -> None:
    grammar = lg.compile_regex(pattern, bytes_vocabulary)
    assert [t for t in good if not accepts(grammar, t.encode())] == []
    assert [t for t in bad if accepts(grammar, t.encode())] == []
    if not pattern.startswith("(?i)"):
        inside = lg.compile_json_schema({"type": "string", "pattern": pattern}, bytes_vocabulary)
        assert [t for t in good if not accepts(inside, json.dumps(t).encode())] == []
        assert [t for t in bad if accepts(inside, json.dumps(t, ensure_ascii=False).encode())] == []


@st.composite
def patterns(draw: st.DrawFn) -> str:
    piece = st.sampled_from(["a", "b", "[ab]", "[^a]", ".", "(?:a|bc)", "(?:b|)", "(?=a)", "(?!b)"])
    count = st.sampled_from(["", "", "*", "+", "?", "{2}", "{0,2}", "{1,}"])
    parts = draw(st.lists(st.tuples(piece, count), max_size=4))
    body = "".join(p + (c if not p.startswith("(?=") and not p.startswith("(?!") else "") for p, c in parts)
    return draw(st.sampled_from(["", "^"])) + body + draw(st.sampled_from(["", "$"]))


@settings(max_examples=150, deadline=None)
@given(pattern=patterns(), texts=st.lists(st.text("abcx", max_size=5), min_size=1, max_size=8))
def test_regular_expressions_agree_with_pythons(
    bytes_vocabulary: lg.Vocabulary, pattern: str, texts: list[str]
) -> None:
    try:
        grammar = lg.compile_regex(pattern, bytes_vocabulary)
    except lg.CompileError as refusal:
        reject = str(refusal)
    else:
        reject = ""
    if reject:
        nothing = not any(re.search(pattern, t) for t in texts)
        assert "not supported" in reject or ("no text" in reject and nothing)
        return
    for text in texts:
        # Python's '$' also matches before a final newline; there is none here.
        assert accepts(grammar, text.encode()) == bool(re.search(pattern, text)), (pattern, text)


ARITHMETIC = r"""
# a comment
root  ::= (expr "=" ws term "\n")+
expr  ::= term ([-+*/] term)*
term  ::= ident | num | "(" ws expr ")" ws
ident ::= [a-z] [a-z0-9_]* ws
num   ::= [0-9]{1,3} ws
ws    ::= [ \t\n]*
"""


def test_gbnf(bytes_vocabulary: lg.Vocabulary) -> None:
    grammar = lg.compile_gbnf(ARITHMETIC, bytes_vocabulary)
    assert accepts(grammar, b"(a +12)*b=3\n")
    assert accepts(grammar, b"x=1\ny_1*((2))=z\n")
    for text in (b"x=1", b"(a+12*b=3\n", b"1234=5\n", b"=1\n", b""):
        assert not accepts(grammar, text)


def test_gbnf_masks_are_what_trying_every_token_says(awkward_vocabulary: lg.Vocabulary) -> None:
    grammar = lg.compile_gbnf(
        'root ::= "{" pair ("," pair)* "}" | "[" root* "]"\npair ::= "\\"" [a-z]+ "\\":" (root | [0-9]+)',
        awkward_vocabulary,
    )
    matcher = grammar.matcher()
    for text in (
        b"{",
        b'"',
        b"a",
        b"b",
        b'":',
        b"1",
        b",",
        b'"',
        b"name",
        b'"',
        b":",
        b"{",
        b'"',
        b"a",
        b'":',
        b"12",
        b"}",
        b"}",
    ):
        allowed = mask_bits(matcher)
        assert allowed == [t for t in range(len(awkward_vocabulary)) if matcher.allows(t)]
        matcher.accept(next(t for t in allowed if awkward_vocabulary.bytes_of(t) == text))
    assert matcher.is_complete


LEFT_RECURSIVE = {
    "through another rule": (
        'root ::= a\na ::= b "x" | "w"\nb ::= a "y" | "z"',
        'root ::= (("z" "x") | "w") ("yx")*',
    ),
    "through three": (
        'root ::= a\na ::= b "1" | c "2"\nb ::= c "3" | "b"\nc ::= a "4" | "c"',
        'root ::= ("c31" | "b1" | "c2") ("431" | "42")*',
    ),
    "with nesting": (
        'root ::= call\ncall ::= access "(" call? ")" | "f"\naccess ::= call "." [a-b] | call',
        'root ::= call\ncall ::= "f" (("." [a-b])? "(" call? ")")*',
    ),
    "in a group": ('root ::= (root "+" | "-") "a" | "b"', 'root ::= ("-a" | "b") ("+a")*'),
    "ambiguous": (
        'root ::= e\ne ::= t | "(" e ")"\nt ::= e "+" e | "a"',
        'root ::= e\ne ::= p ("+" p)*\np ::= "a" | "(" e ")"',
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LEFT_RECURSIVE)
def test_left_recursion_says_the_same_as_a_repetition(name: str, bytes_vocabulary: lg.Vocabulary) -> None:
    left, right = (lg.compile_gbnf(text, bytes_vocabulary) for text in LEFT_RECURSIVE[name])
    rng = random.Random(name)
    for _ in range(30):
        a, b = left.matcher(), right.matcher()
        for _ in range(24):
            allowed = mask_bits(a)
            assert allowed == mask_bits(b)
            token = rng.choice(allowed)
            if token == 256:
                break
            a.accept(token), b.accept(token)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(
    rules=st.fixed_dictionaries(
        {
            rule: st.lists(st.lists(st.sampled_from("abcxyz"), max_size=3), min_size=1, max_size=3)
            for rule in "abc"
        }
    )
)
def test_rules_that_begin_with_each_other_say_what_they_say(
    rules: dict[str, list[list[str]]], bytes_vocabulary: lg.Vocabulary
) -> None:
    """Against the least fixed point of the rules, cut at a length."""
    longest = 4
    language: dict[str, set[str]] = {rule: set() for rule in rules}
    while True:
        found = {}
        for rule, alternatives in rules.items():
            texts = set()
            for parts in alternatives:
                so_far = {""}
                for part in parts:
                    ends = language.get(part, {part})
                    so_far = {x + y for x in so_far for y in ends if len(x + y) <= longest}
                texts |= so_far
            found[rule] = texts
        if found == language:
            break
        language = found

    def spelled(parts: list[str]) -> str:
        return " ".join(p if p in rules else f'"{p}"' for p in parts) or '""'

    lines = (f"{rule} ::= " + " | ".join(map(spelled, alternatives)) for rule, alternatives in rules.items())
    try:
        grammar = lg.compile_gbnf("root ::= a\n" + "\n".join(lines), bytes_vocabulary)
    except lg.CompileError as error:
        why = str(error)
        assume(not any(reason in why for reason in ("may be empty", "no finite text", "time budget")))
        raise
    for n in range(longest + 1):
        for letters in itertools.product("xyz", repeat=n):
            text = "".join(letters)
            try:
                accepted = accepts(grammar, text.encode())
            except ValueError as error:
                assume("too ambiguous" not in str(error))
                raise
            assert accepted == (text in language["a"]), text


def test_left_recursion_behind_what_may_be_left_out(bytes_vocabulary: lg.Vocabulary) -> None:
    text = 'root ::= a\na ::= s b "x" | "w"\nb ::= s a "y" | "z"\ns ::= " "?'
    grammar = lg.compile_gbnf(text, bytes_vocabulary)
    for good in (b"w", b"zx", b" zx", b"wyx", b"  zxyx", b" wyxyx", b"   wyxyxyx"[1:]):
        assert accepts(grammar, good), good
    for bad in (b" w", b"x", b"wx", b"zy", b"   zx"):
        assert not accepts(grammar, bad), bad


def test_direct_left_recursion_is_rewritten(bytes_vocabulary: lg.Vocabulary) -> None:
    grammar = lg.compile_gbnf('root ::= root "+" root | "a" | "(" root ")"', bytes_vocabulary)
    assert accepts(grammar, b"a+a+(a+a)" + b"+a" * 30)
    assert not accepts(grammar, b"a+")


def test_a_mask_of_an_ambiguous_grammar_is_polynomial() -> None:
    tokens = [*(bytes([b]) for b in range(256)), b"a" * 40, b"</s>"]
    vocabulary = lg.Vocabulary(tokens, end=[257])
    source = 'root ::= (x | "b") [^a]{1,2} (x | "b")+\nx ::= [a-c]{1,2} (x | "b")?'
    matcher = lg.compile_gbnf(source, vocabulary).matcher()
    allowed = mask_bits(matcher)
    assert allowed == [t for t in range(len(vocabulary)) if matcher.allows(t)]
    assert 256 in allowed


def test_ebnf(bytes_vocabulary: lg.Vocabulary) -> None:
    grammar = lg.compile_ebnf(
        "List ::= '<' Item? (#x2C Item)* '>' /* c */ Item ::= [a-z#x41] - [x] | List", bytes_vocabulary
    )
    assert accepts(grammar, b"<a,A,<b,<>>>")
    assert not accepts(grammar, b"<x>")


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("root ::= foo", "'foo'"),
        ('root ::= "a', "line 1"),
        ('root ::= "a" root', "no finite text"),
        ('root ::= a\na ::= b a "x" | ""\nb ::= a | ""', "may be empty: a -> a"),
        ('root ::= "a"\nroot ::= "b"', "twice"),
        ("other ::= [a-z]", "no rule 'root'"),
        ("root ::= [z-a]", "wrong order"),
        ("root ::= " + "(" * 2000, "deep"),
    ],
)
def test_grammar_errors_say_where(source: str, what: str, bytes_vocabulary: lg.Vocabulary) -> None:
    with pytest.raises(lg.CompileError, match=re.escape(what)):
        lg.compile_gbnf(source, bytes_vocabulary)


TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
                "additionalProperties": False,
            },
        },
    },
    {"name": "now"},
]


def written(pieces: Any, name: str = "", arguments: str = "", optional: bool = False) -> str:
    out = ""
    for piece in pieces:
        if "optional" in piece:
            out += written(piece["optional"], name, arguments, optional) if optional else ""
        elif "any" in piece:
            out += written(piece["any"][-1 if optional else 0], name, arguments, optional)
        elif "id" in piece:
            out += "abcdEF789"
        elif "count" in piece:
            out += "12"
        elif "parameters" in piece:
            out += tagged(piece["parameters"], json.loads(arguments))
        else:
            out += piece.get("text") or piece.get("special") or (name if "name" in piece else arguments)
    return out


def spelled(envelope: Any, name: str, arguments: str, optional: bool = False) -> str:
    parts = (envelope.get(part, ()) for part in ("before", "call", "after"))
    return "".join(written(part, name, arguments, optional) for part in parts)


@pytest.mark.parametrize("name", lg.tool_formats())
def test_every_envelope_holds_its_arguments_to_the_schema(name: str, bytes_vocabulary: lg.Vocabulary) -> None:
    envelope = lg.tool_formats()[name]
    auto = lg.compile_tools(TOOLS, bytes_vocabulary, format=name)
    required = lg.compile_tools(TOOLS, bytes_vocabulary, format=name, choice="required")
    one = lg.compile_tools(TOOLS, bytes_vocabulary, format=name, choice="now")
    call = spelled(envelope, "get_weather", '{"city": "Oslo"}').encode()
    say, then = (written(envelope.get(part, ())).encode() for part in ("say", "then"))
    assert accepts(auto, say + b"Let me look. " + then + call)
    assert accepts(auto, say + b"No tool is needed.")
    assert accepts(auto, call)
    assert accepts(required, call)
    assert accepts(required, spelled(envelope, "get_weather", '{"city": "Oslo"}', optional=True).encode())
    assert not accepts(required, b"No tool is needed.")
    assert accepts(one, spelled(envelope, "now", "{}").encode())
    assert not accepts(one, call)
    wrong = ["{}", '{"city": "Oslo", "town": "Oslo"}']
    if not any("parameters" in piece for piece in envelope["call"]):  # between tags any text is a string
        wrong.append('{"city": 1}')
    for grammar in (auto, required):
        for arguments in wrong:
            assert not accepts(grammar, spelled(envelope, "get_weather", arguments).encode())
        assert not accepts(grammar, spelled(envelope, "get_wether", "{}").encode())


def test_tools_with_the_same_arguments_are_told_apart_from_others(bytes_vocabulary: lg.Vocabulary) -> None:
    def tool(name: str, key: str) -> dict[str, Any]:
        return {"name": name, "parameters": {"properties": {key: {"type": "integer"}}, "required": [key]}}

    tools = [tool("one", "a"), tool("other", "b"), tool("two", "a")]
    grammar = lg.compile_tools(tools, bytes_vocabulary, choice="required")
    two = lg.compile_tools(tools, bytes_vocabulary, choice="two")
    for name, mine, others in (("one", "a", "b"), ("other", "b", "a"), ("two", "a", "b")):
        right, wrong = (
            spelled(lg.tool_formats()["hermes"], name, json.dumps({key: 1})).encode()
            for key in (mine, others)
        )
        assert accepts(grammar, right)
        assert not accepts(grammar, wrong)
        assert accepts(two, right) == (name == "two")


def test_masks_where_tokens_cross_from_text_into_a_call_are_what_trying_every_token_says() -> None:
    call = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
    words = [call[a:b] for a, b in itertools.combinations(range(0, len(call) + 1, 3), 2) if b - a < 45]
    words += [f"é {word}" for word in words[:40]] + ["word ", "wörter", "<", " <tool", "\u2600"]
    tokens = [bytes([b]) for b in range(256)] + [word.encode() for word in words] + [b"</s>"]
    vocabulary = lg.Vocabulary(tokens, special=[len(tokens) - 1], end=[len(tokens) - 1])
    for choice in ("auto", "required"):
        matcher = lg.compile_tools(TOOLS, vocabulary, choice=choice).matcher()
        text = f"Look é: {call}" if choice == "auto" else call
        for byte in text.encode():
            assert mask_bits(matcher) == [t for t in range(len(tokens)) if matcher.allows(t)]
            matcher.accept(byte)


def test_special_tokens_of_an_envelope_are_tokens() -> None:
    names = {257: "[TOOL_CALLS]", 256: "</s>"}
    tokens = [bytes([b]) for b in range(256)] + [b"</s>", b"[TOOL_CALLS]"]
    vocabulary = lg.Vocabulary(tokens, special=names, end=[256])
    matcher = lg.compile_tools(TOOLS, vocabulary, format="mistral", choice="required").matcher()
    assert mask_bits(matcher) == [257]
    assert matcher.forced_tokens() == [257]
    for token in (257, ord("[")):
        matcher.accept(token)
    assert matcher.forced_tokens()[:8] == list(b'{"name":')
    auto = lg.compile_tools(TOOLS, vocabulary, format="mistral").matcher()
    for byte in b"Sure: ":
        auto.accept(byte)
    assert {256, 257} <= set(mask_bits(auto))
    auto.accept(257)
    assert mask_bits(auto) == [ord(" "), ord("[")]


def test_parallel_calls_can_be_limited(bytes_vocabulary: lg.Vocabulary) -> None:
    call = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
    many = lg.compile_tools(TOOLS, bytes_vocabulary)
    single = lg.compile_tools(TOOLS, bytes_vocabulary, parallel=False)
    two = lg.compile_tools(TOOLS, bytes_vocabulary, max_calls=2)
    assert accepts(many, "\n".join([call] * 5).encode())
    assert not accepts(single, "\n".join([call] * 2).encode())
    assert accepts(two, "\n".join([call] * 2).encode())
    assert not accepts(two, "\n".join([call] * 3).encode())


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ([{"any": [[], [{"text": "x"}, {"name": True}]]}], b"xa"),
        ([{"any": [[], [{"text": "x"}]]}], b"x"),
        ([{"text": "x"}], b"x"),
        ([{"any": [[{"name": True}], [{"text": "x"}, {"name": True}]]}, {"arguments": True}], b"xa{}"),
    ],
)
def test_an_envelope_may_have_pieces_that_no_tool_changes(
    call: list[Any], text: bytes, bytes_vocabulary: lg.Vocabulary
) -> None:
    tools = [{"name": "a", "parameters": {}}, {"name": "b", "parameters": {}}]
    grammar = lg.compile_tools(tools, bytes_vocabulary, format={"call": call}, choice="required")
    assert accepts(grammar, text)
    assert not accepts(grammar, b"q" + text)


def test_errors_point_into_the_tools(bytes_vocabulary: lg.Vocabulary) -> None:
    tools = [*TOOLS, {"name": "bad", "parameters": {"properties": {"x": {"type": "nope"}}}}]
    with pytest.raises(lg.CompileError) as caught:
        lg.compile_tools(tools, bytes_vocabulary)
    assert caught.value.pointer == "/2/parameters/properties/x/type"


class Face(ctypes.Structure):
    """The first fields of the struct in llamay/token_constraint.h."""


Int, P, U = ctypes.c_int, ctypes.c_void_p, ctypes.c_uint32
Face._fields_ = [
    ("size", ctypes.c_size_t),
    ("self", P),
    ("vocab_size", U),
    ("mask_words", U),
    ("fill_mask", ctypes.CFUNCTYPE(Int, P, P, U)),
    ("accept", ctypes.CFUNCTYPE(Int, P, U)),
    ("rollback", ctypes.CFUNCTYPE(Int, P, ctypes.c_uint64)),
    ("fork", ctypes.CFUNCTYPE(P, P)),
    ("forced", ctypes.CFUNCTYPE(U, P, P, U)),
    ("complete", ctypes.CFUNCTYPE(Int, P)),
    ("release", ctypes.CFUNCTYPE(None, P)),
]


def test_the_c_interface_does_what_the_methods_do(bytes_vocabulary: lg.Vocabulary) -> None:
    matcher = lg.compile_json_schema({"const": [1]}, bytes_vocabulary, whitespace="compact").matcher()
    assert isinstance(matcher, lg.TokenConstraint)
    capsule = matcher.__llamay_token_constraint__()
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = P, [ctypes.py_object, ctypes.c_char_p]
    face = ctypes.cast(get(capsule, b"llamay.token_constraint.v1"), ctypes.POINTER(Face)).contents
    assert face.size == ctypes.sizeof(Face)
    assert (face.vocab_size, face.mask_words) == (257, 9)
    mask = np.full(10, 7, np.uint32)
    assert face.fill_mask(face.self, mask.ctypes.data, 8) == 2
    assert face.fill_mask(face.self, mask.ctypes.data, 10) == 0
    assert (mask[:9] == matcher.mask()).all()
    assert mask[9] == 0
    assert face.accept(face.self, ord("x")) == 1
    assert face.accept(face.self, ord("[")) == 0
    assert len(matcher) == 1
    fork = ctypes.cast(face.fork(face.self), ctypes.POINTER(Face))
    child = fork.contents
    for byte in b"1]":
        assert child.accept(child.self, byte) == 0
    assert child.complete(child.self) == 1
    assert child.accept(child.self, 256) == 0
    assert child.complete(child.self) == 2
    assert face.complete(face.self) == 0
    assert child.rollback(child.self, 9) == 2
    assert child.rollback(child.self, 2) == 0
    child.release(fork)
    room = np.zeros(8, np.uint32)
    assert face.forced(face.self, room.ctypes.data, 8) == 1
    assert room[0] == ord("1")
