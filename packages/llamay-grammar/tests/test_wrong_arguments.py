"""What is no argument of a public function is refused in one sentence, which names the argument and what was given."""

from __future__ import annotations

import inspect
import itertools
import json
from collections.abc import Callable, Iterator
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

import llamay_grammar as lg
from llamay_grammar.recipes import canonical
from llamay_grammar.serialised import write_grammar

TOKENS = [*(bytes([b]) for b in range(256)), b"</s>"]
VOCABULARY = lg.Vocabulary(TOKENS, special={256: "</s>"}, end=[256])
GRAMMAR = lg.compile_regex("[a-z]+", VOCABULARY, whole=True)
TOOL = {"name": "get", "parameters": {"type": "object"}}
SCHEMA = {"$ref": "https://example.com/a"}
CALL = [{"text": "("}, {"name": True}, {"arguments": True}, {"text": ")"}]
BROKEN = "\ud800"
HUGE = 10**5000

Call = Callable[..., Any]


def matcher() -> lg.Matcher:
    return GRAMMAR.matcher()


def vocabulary(**given: Any) -> lg.Vocabulary:
    return lg.Vocabulary(**{"tokens": TOKENS, **given})


def from_json(**given: Any) -> lg.Vocabulary:
    source = {"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}}}
    return lg.Vocabulary.from_tokenizer_json(**{"source": source, "end": [1], **given})


def schema(**given: Any) -> lg.Grammar:
    return lg.compile_json_schema(**{"schema": {}, "vocabulary": VOCABULARY, **given})


def json_object(**given: Any) -> lg.Grammar:
    return lg.compile_json_object(**{"vocabulary": VOCABULARY, **given})


def regex(**given: Any) -> lg.Grammar:
    return lg.compile_regex(**{"pattern": "a", "vocabulary": VOCABULARY, **given})


def gbnf(**given: Any) -> lg.Grammar:
    return lg.compile_gbnf(**{"grammar": 'root ::= "a"', "vocabulary": VOCABULARY, **given})


def ebnf(**given: Any) -> lg.Grammar:
    return lg.compile_ebnf(**{"grammar": 'root ::= "a"', "vocabulary": VOCABULARY, **given})


def tools(**given: Any) -> lg.Grammar:
    return lg.compile_tools(**{"tools": [TOOL], "vocabulary": VOCABULARY, **given})


def envelope(**given: Any) -> lg.Grammar:
    return tools(format={"call": CALL, **given})


def tagged(**given: Any) -> lg.Grammar:
    tags = {"open": [{"text": "<"}, {"key": True}, {"text": ">"}], "close": [{"text": "</>"}], **given}
    return tools(format={"call": [{"name": True}, {"parameters": tags}]})


COMPILERS = {
    "json_schema": schema,
    "json_object": json_object,
    "regex": regex,
    "gbnf": gbnf,
    "ebnf": ebnf,
    "tools": tools,
}
OF_SCHEMAS, OF_JSON, OF_RULES = (schema, tools), (schema, tools, json_object), (gbnf, ebnf)


def flat_vocabulary(**given: Any) -> lg.Vocabulary:
    return lg.Vocabulary(**{"tokens": b"ab", "offsets": [0, 2], **given})


def reasoning(**given: Any) -> lg.Reasoning:
    return lg.Reasoning(**{"open": "<", "close": ">", **given})


def made_grammar(native: Any) -> lg.Grammar:
    return lg.Grammar(native, VOCABULARY, {})


def deserialize(**given: Any) -> lg.Grammar:
    return lg.Grammar.deserialize(**{"data": GRAMMAR.serialize(), "vocabulary": VOCABULARY, **given})


def fill_masks(**given: Any) -> None:
    lg.fill_masks(**{"matchers": [matcher()], "out": np.zeros((1, 9), np.uint32), **given})


def read(**given: Any) -> Any:
    return lg.read_argument(**{"text": "5", "types": {"string"}, **given})


def types_made(**given: Any) -> lg.ArgumentTypes:
    return lg.ArgumentTypes(**{"named": {}, "other": frozenset(), **given})


def type_of(name: Any) -> Any:
    return types_made()[name]


def at_start(method: str) -> Call:
    """A method of a matcher that has read nothing."""
    return lambda **given: getattr(matcher(), method)(**given)


Case = tuple[tuple[Call, ...], str, str, dict[type[Exception], list[Any]]]
"""Calls, an argument of them, what the message says, and wrong values for it by the error that each is."""

NO_TEXT = [5, None, b"a", [], {}]
NO_FLAG = [1, "x", None, []]
NO_INTEGER = ["x", "97", None, 97.0, [], np.float32(97), np.array([97])]
TOO_LARGE = [2**64, HUGE]
AN_ID = r"must be a token id \(an integer between 0 and 256\), not "
NOWHERE = "token .* is outside the vocabulary of 257"
ARRAY = "must be a writable array of uint32 or int32 with {}, in the memory of the CPU, not "
UINT32 = "must be an integer between {} and 4294967295, not "
ONE_DIMENSION = "must be an array of integers with one dimension, not "

CASES: list[Case] = [
    # Compiling.
    (
        tuple(COMPILERS.values()),
        "vocabulary",
        "must be a llamay_grammar.Vocabulary, not ",
        {TypeError: [5, None, [], TOKENS]},
    ),
    (
        tuple(COMPILERS.values()),
        "budget",
        "must be a llamay_grammar.Budget, not ",
        {TypeError: [5, "x", []]},
    ),
    (OF_JSON, "reasoning", "must be a llamay_grammar.Reasoning, not ", {TypeError: [5, True, ("a", "b")]}),
    (
        OF_SCHEMAS,
        "resolver",
        "must be a function from a URI to a document, or None, not ",
        {TypeError: [5, "x", {}]},
    ),
    (
        OF_SCHEMAS,
        "mode",
        "must be one of exact, approximate, annotate, not ",
        {TypeError: NO_TEXT, ValueError: ["x"]},
    ),
    (
        OF_SCHEMAS,
        "draft",
        "must be one of 4, 6, 7, 2019-09, 2020-12, not ",
        {TypeError: [7, {}], ValueError: ["8"]},
    ),
    (
        OF_JSON,
        "whitespace",
        "must be one of flexible, spaced, compact, not ",
        {TypeError: NO_TEXT, ValueError: ["x"]},
    ),
    (
        OF_SCHEMAS,
        "property_order",
        "must be one of any, schema, not ",
        {TypeError: NO_TEXT, ValueError: ["x"]},
    ),
    (
        OF_JSON,
        "max_whitespace",
        "must be an integer between 0 and 4096, not ",
        {TypeError: [*NO_INTEGER, True], ValueError: [-1, 4097, *TOO_LARGE]},
    ),
    (OF_JSON, "canonical_escapes", "must be True or False, not ", {TypeError: NO_FLAG}),
    (
        (schema,),
        "schema",
        "must be a mapping, a bool or JSON text, not ",
        {lg.CompileError: [[{}], 5, 1.5, b"{}", {1}, object()]},
    ),
    (
        (schema,),
        "schema",
        r"must be text that UTF-8 can encode, not one with the lone surrogate U\+D800 at position 0",
        {lg.CompileError: [BROKEN]},
    ),
    (
        (schema,),
        "schema",
        "cannot be written as JSON: ",
        {lg.CompileError: [{"const": {1}}, {"const": 1, (1, 2): 3}]},
    ),
    ((regex,), "pattern", "must be a str, not ", {TypeError: NO_TEXT}),
    ((regex,), "pattern", r"must be text .* U\+D800 at position 1", {lg.CompileError: [f"a{BROKEN}"]}),
    ((regex,), "whole", "must be True or False, not ", {TypeError: NO_FLAG}),
    (OF_RULES, "grammar", "must be a str, not ", {TypeError: NO_TEXT}),
    (OF_RULES, "grammar", "must be text", {lg.CompileError: [BROKEN]}),
    (OF_RULES, "root", "must be a str, not ", {TypeError: [5, [], b"a"]}),
    ((gbnf,), "root", "must be a str, not None", {TypeError: [None]}),
    (OF_RULES, "root", "must be text", {ValueError: [BROKEN]}),
    # Tools.
    (
        (tools,),
        "tools",
        r"must be a sequence of tools \(mappings\), not ",
        {TypeError: [5, None, "x", TOOL]},
    ),
    (
        (tools,),
        "tools",
        r"\[1\] must be a mapping with the tool's name and parameters, not ",
        {TypeError: [[TOOL, wrong] for wrong in (5, None, "get", [])]},
    ),
    (
        (tools,),
        "tools",
        r"\[0\]\['function'\] must be a mapping with name and parameters, not 5",
        {TypeError: [[{"function": 5}]]},
    ),
    ((tools,), "tools", "=tool 0 has no name", {ValueError: [[{"name": 5}]]}),
    (
        (tools,),
        "tools",
        "=/0/parameters: the schema cannot be written as JSON",
        {lg.CompileError: [[{"name": "get", "parameters": {"const": {1}}}]]},
    ),
    (
        (tools,),
        "answer",
        "=/answer: the schema cannot be written as JSON",
        {lg.CompileError: [{"const": {1}}]},
    ),
    (
        (tools,),
        "format",
        r"must be the name of a format or an envelope \(a mapping\), not ",
        {TypeError: [5, None, []]},
    ),
    ((tools,), "format", "names the unknown tool format 'x'; known: .*hermes", {ValueError: ["x"]}),
    ((tools,), "format", 'must have the pieces of a call under "call"', {ValueError: [{}]}),
    ((tools,), "choice", "must be ", {TypeError: NO_TEXT, ValueError: ["x"]}),
    ((tools,), "parallel", "must be True or False, not ", {TypeError: NO_FLAG}),
    ((tools,), "text_before", "must be True or False, not ", {TypeError: [1, "x"]}),
    (
        (tools,),
        "max_calls",
        UINT32.format(1),
        {TypeError: ["x", 1.5, True, []], ValueError: [0, -1, *TOO_LARGE]},
    ),
    ((envelope,), "call", r"'\] must be a list of pieces, not ", {TypeError: [5, "x", None]}),
    ((envelope,), "call", r"'\]\[0\] must be a piece \(a mapping\), not 5", {TypeError: [[5]]}),
    ((envelope,), "call", r"'\]\[0\]\['text'\] must be a str, not 5", {TypeError: [[{"text": 5}]]}),
    (
        (envelope,),
        "call",
        r"'\]\[0\]\['(any'\]\[0|optional')\] must be a list of pieces, not 5",
        {TypeError: [[{"any": [5]}], [{"optional": 5}]]},
    ),
    ((envelope,), "call", "=none of text, special, name", {ValueError: [[{}]]}),
    ((envelope,), "say", r"'\] must be a list of pieces, not 5", {TypeError: [5]}),
    ((envelope,), "stop", r"'\] must be a list of texts, not '<'", {TypeError: ["<"]}),
    ((envelope,), "stop", r"'\]\[0\] must be a str, not 5", {TypeError: [[5]]}),
    ((tagged,), "open", r"'\] must be a list of pieces, not 5", {TypeError: [5]}),
    ((tagged,), "close", r"'\] must be a list of pieces, not 'x'", {TypeError: ["x"]}),
    (
        (tagged,),
        "open",
        "=must be a list of two texts, not of 1",
        {ValueError: [[{"key": True}, {"typed": ["a"]}]]},
    ),
    # Limits and marks.
    (
        (lg.Budget,),
        "seconds",
        "must be a positive number, not ",
        {TypeError: ["x", None, [], True], ValueError: [0, -1.0, float("nan")]},
    ),
    ((lg.Budget,), "states", UINT32.format(1), {TypeError: NO_INTEGER, ValueError: [0, -1, *TOO_LARGE]}),
    ((lg.Budget,), "alternatives", UINT32.format(1), {TypeError: NO_INTEGER, ValueError: [0, *TOO_LARGE]}),
    ((reasoning,), "open", "must be ", {TypeError: NO_TEXT, ValueError: ["", BROKEN]}),
    ((reasoning,), "close", "must be ", {TypeError: NO_TEXT, ValueError: ["", BROKEN]}),
    ((reasoning,), "begun", "must be True or False, not ", {TypeError: NO_FLAG}),
    # Vocabularies.
    (
        (vocabulary,),
        "tokens",
        "must be a sequence of bytes, not ",
        {TypeError: [5, None, "ab", {b"a": 0}]},
    ),
    (
        (vocabulary,),
        "tokens",
        "must be a sequence of bytes, or one buffer together with offsets",
        {ValueError: [b"ab", bytearray(b"ab")]},
    ),
    ((vocabulary,), "tokens", "=a vocabulary has between 1 and 16777216 tokens, not 0", {ValueError: [[]]}),
    (
        (vocabulary,),
        "tokens",
        r"\[1\] must be bytes, not ",
        {TypeError: [[b"a", wrong] for wrong in (5, "a", None, [1])]},
    ),
    (
        (vocabulary,),
        "tokens",
        "=token 1 has 5000 bytes; a token has at most 4096",
        {ValueError: [[b"a", b"b" * 5000]]},
    ),
    (
        (vocabulary,),
        "special",
        "must be a sequence of token ids, not ",
        {TypeError: [5, None, "</s>", b"a"]},
    ),
    (
        (vocabulary,),
        "special",
        "=a token of special must be an integer between 0 and 256, not ",
        {
            TypeError: [*([wrong] for wrong in NO_INTEGER), [True], {"a": "b"}],
            ValueError: [[-1], [257], [2**40], [HUGE], {257: "b"}],
        },
    ),
    ((vocabulary,), "special", r"\[5\] must be a str, not ", {TypeError: [{5: wrong} for wrong in NO_TEXT]}),
    ((vocabulary,), "end", "must be a sequence of token ids, not ", {TypeError: [5, None, "</s>", {1: "a"}]}),
    (
        (vocabulary,),
        "end",
        "=a token of end must be an integer between 0 and 256, not ",
        {
            TypeError: [*([wrong] for wrong in NO_INTEGER), [True]],
            ValueError: [[-1], [257], [2**40], [HUGE]],
        },
    ),
    (
        (vocabulary, from_json),
        "cache_limit",
        "must be an integer between 0 and 18446744073709551615, not ",
        {TypeError: NO_INTEGER, ValueError: [-1, *TOO_LARGE]},
    ),
    (
        (flat_vocabulary,),
        "offsets",
        ONE_DIMENSION,
        {TypeError: [5, "x", [0.0, 1.0], [[0, 2]], [[0], [1, 2]], [None]]},
    ),
    (
        (flat_vocabulary,),
        "offsets",
        "must ",
        {ValueError: [[0, 1], [1, 2], [0, 3, 2], [0, -1, 2]], TypeError: [[0, 2**63], [0, HUGE]]},
    ),
    ((flat_vocabulary,), "tokens", "must be bytes, not ", {TypeError: [5, "ab", None]}),
    ((flat_vocabulary,), "tokens", r"\[0\] must be bytes, not ", {TypeError: [["a"]]}),
    (
        (from_json,),
        "source",
        "must be a file's path, its text or the parsed document, not ",
        {TypeError: [5, None, b"{}", []]},
    ),
    (
        (from_json,),
        "source",
        "=not a tokenizer.json: ",
        {
            ValueError: [
                {"model": {"vocab": wrong}}
                for wrong in (
                    *(5, None, "ab", [5], [[]], [[5, 0.0]]),
                    *({"a": "0"}, {"a": -1}, {"a": 1.5}, {"a": 1 << 24}, {5: 0}),
                )
            ]
        },
    ),
    (
        (from_json,),
        "source",
        "=not a tokenizer.json: its added_tokens",
        {
            ValueError: [
                {"model": {"vocab": {"a": 0, "b": 1}}, "added_tokens": wrong}
                for wrong in (5, "x", [5], [{}], [{"id": 1}])
            ]
        },
    ),
    (
        (from_json,),
        "source",
        "=the text of token 1 must be text that UTF-8 can encode",
        {ValueError: [{"model": {"vocab": {"a": 0, BROKEN: 1}}}]},
    ),
    ((from_json,), "end", "must be a sequence of token ids and names, not ", {TypeError: [5, None, "</s>"]}),
    ((from_json,), "end", "must name tokens, but there is no token called '</s>'", {ValueError: [["</s>"]]}),
    (
        (from_json,),
        "end",
        "=a token of end must be an integer between 0 and 1, not ",
        {TypeError: [[None], [1.0]], ValueError: [[-1], [2**40]]},
    ),
    (
        (from_json,),
        "size",
        "must be an integer between 0 and 16777216, not ",
        {TypeError: ["x", 1.5, []], ValueError: [-1, *TOO_LARGE]},
    ),
    ((from_json,), "size", "=there are 2 tokens, more than a size of 1", {ValueError: [1]}),
    ((VOCABULARY.bytes_of,), "token", AN_ID, {TypeError: NO_INTEGER}),
    ((VOCABULARY.bytes_of,), "token", f"={NOWHERE}", {IndexError: [-1, 257, 2**40, HUGE, np.int64(-1)]}),
    # Grammars and matchers.
    (
        (made_grammar,),
        "native",
        "must be what a function such as compile_regex compiles, not ",
        {TypeError: [5, None]},
    ),
    (
        (lg.Matcher,),
        "grammar",
        "must be a llamay_grammar.Grammar, not ",
        {TypeError: [5, None, VOCABULARY]},
    ),
    ((GRAMMAR.restore, deserialize), "data", "must be bytes, not ", {TypeError: [5, None, "x", [1]]}),
    ((GRAMMAR.restore, deserialize), "data", "=not a serialised", {lg.RestoreError: [b"", b"x"]}),
    (
        (deserialize,),
        "vocabulary",
        "must be a llamay_grammar.Vocabulary, not ",
        {TypeError: [5, None, GRAMMAR]},
    ),
    ((at_start("accept"), at_start("allows")), "token", AN_ID, {TypeError: NO_INTEGER}),
    (
        (at_start("accept"),),
        "token",
        f"={NOWHERE} after 0 tokens; expected a to z",
        {lg.RefusedTokenError: [-1, 257, 2**40, HUGE, np.int64(-1)]},
    ),
    (
        (at_start("allows"),),
        "token",
        f"={NOWHERE}",
        {ValueError: [-1, 257, 2**40, HUGE, np.int64(-1), np.uint32(300)]},
    ),
    (
        (at_start("rollback"),),
        "n",
        "must be an integer between 0 and 0, not ",
        {TypeError: NO_INTEGER, ValueError: [-1, -HUGE]},
    ),
    (
        (at_start("rollback"),),
        "n",
        "=cannot roll back .* tokens: only 0 were accepted",
        {IndexError: [1, 2**40, *TOO_LARGE]},
    ),
    (
        (at_start("forced_tokens"), at_start("forced_bytes")),
        "limit",
        UINT32.format(0),
        {TypeError: NO_INTEGER, ValueError: [-1, 2**40, HUGE]},
    ),
    (
        (at_start("fill_pointer"),),
        "address",
        "must be an integer between 1 and 18446744073709551615, not ",
        {TypeError: NO_INTEGER, ValueError: [0, -1, *TOO_LARGE, np.int64(0)]},
    ),
    (
        (at_start("fill_mask"),),
        "out",
        ARRAY.format("1 dimension"),
        {TypeError: [5, None, "x", [0], np.zeros(9, np.int64)]},
    ),
    ((fill_masks,), "out", ARRAY.format("2 dimensions"), {TypeError: [5, None, np.zeros(9, np.uint32)]}),
    (
        (fill_masks,),
        "matchers",
        "must be a sequence of llamay_grammar.Matcher, not ",
        {TypeError: [5, None, GRAMMAR]},
    ),
    (
        (fill_masks,),
        "matchers",
        r"\[0\] must be a llamay_grammar.Matcher, not ",
        {TypeError: [[5], [None], "x", [GRAMMAR]]},
    ),
    # Arguments between tags.
    (
        (lg.argument_types,),
        "schema",
        "must be a mapping or a bool, not ",
        {TypeError: [5, None, "{}", []]},
    ),
    ((read,), "text", "must be a str, not ", {TypeError: NO_TEXT}),
    ((read,), "types", "must be a sequence of JSON types, not ", {TypeError: [5, None, "string"]}),
    (
        (read,),
        "types",
        "=a type must be one of array, .*, integer, not ",
        {TypeError: [[5], [[]]], ValueError: [["str"]]},
    ),
    ((types_made,), "named", "must be a mapping from names to JSON types, not ", {TypeError: [5, None, []]}),
    ((types_made,), "other", "must be a set of JSON types, not ", {TypeError: [5, None, "string"]}),
    ((type_of,), "name", "must be a str, not ", {TypeError: [5, None, []]}),
]


def wrong() -> Iterator[Any]:
    """Each call with each wrong value. A message begins with the argument, except after "="."""
    for calls, name, message, errors in CASES:
        says = (
            message[1:] if message[0] == "=" else name + (message if message[0] in "\\'" else f" {message}")
        )
        for call, (error, values) in itertools.product(calls, errors.items()):
            for number, value in enumerate(values):
                yield pytest.param(call, name, value, error, says, id=f"{name}-{error.__name__}-{number}")


@pytest.mark.parametrize(("call", "name", "value", "error", "message"), [*wrong()])
def test_a_wrong_argument_is_named(
    call: Call, name: str, value: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        call(**{name: value})
    said = str(caught.value)
    assert "\n" not in said, "one sentence"
    assert "incompatible function arguments" not in said
    assert "unhashable" not in said
    assert len(said) < 600


def public() -> Iterator[tuple[str, Any]]:
    """The public functions, and the methods of the public classes that take arguments."""
    for name in lg.__all__:
        value = getattr(lg, name)
        if inspect.isfunction(value):
            yield name, value
        elif inspect.isclass(value) and not issubclass(value, Exception) and value is not lg.TokenConstraint:
            yield f"{name}.__init__", value.__init__
            for attribute, method in inspect.getmembers(value, callable):
                if not attribute.startswith("_"):
                    yield f"{name}.{attribute}", method


def test_no_public_function_is_left_out() -> None:
    """Each argument of each of them is in the table above, or there is a reason why every value is one."""
    any_value = {"Grammar.__init__": {"recipe"}, "Matcher.__init__": {"native"}}
    covered = {
        **{f"compile_{name}": call for name, call in COMPILERS.items()},
        "Budget.__init__": lg.Budget,
        "Vocabulary.__init__": vocabulary,
        "Vocabulary.from_tokenizer_json": from_json,
        "Reasoning.__init__": reasoning,
    }
    for name, function in public():
        wanted = {each for each in inspect.signature(function).parameters if each != "self"}
        wanted -= any_value.get(name, set())
        call = covered.get(name)
        tested = {case[1] for case in CASES if call is None or call in case[0]}
        if name == "Vocabulary.__init__":
            tested.add("offsets")
        assert wanted <= tested, (name, wanted - tested)


@pytest.mark.parametrize("integer", [np.int64, np.int32, np.uint32, np.uint8, np.uint64])
def test_integers_of_numpy_are_integers(integer: Any) -> None:
    words = lg.Vocabulary(TOKENS[:200], special=np.array([199], integer), end=[integer(199)])
    assert words.end_ids == (199,)
    assert words.bytes_of(integer(97)) == b"a"
    budget = lg.Budget(integer(5), integer(99), integer(99))
    here = lg.compile_regex("abc", words, whole=True, budget=budget).matcher()
    assert here.forced_tokens(integer(2)) == [97, 98]
    assert here.forced_bytes(integer(2)) == b"ab"
    assert here.allows(integer(97)) is True
    assert here.allows(integer(98)) is False
    here.accept(integer(97))
    here.rollback(integer(1))
    assert here.tokens == []
    mask = np.zeros(words.mask_words, np.uint32)
    if integer is np.uint64:
        here.fill_pointer(integer(mask.ctypes.data))
        assert (mask == here.mask()).all()
    calls = lg.compile_tools([TOOL], words, max_calls=integer(2), max_whitespace=integer(1))
    assert calls.digest == lg.compile_tools([TOOL], words, max_calls=2, max_whitespace=1).digest


def test_flags_and_numbers_of_numpy_are_taken() -> None:
    assert regex(whole=np.bool_(True)) is regex(whole=True)
    assert lg.Budget(np.float32(0.5)) == lg.Budget(0.5)
    assert lg.Budget(float("inf")).seconds == float("inf")


def test_mappings_and_scalars_of_other_types_are_written_as_json() -> None:
    given = MappingProxyType({"const": np.int64(5), "type": ("integer", "string")})
    assert schema(schema=given) is schema(schema={"const": 5, "type": ["integer", "string"]})


def test_buffers_are_bytes() -> None:
    for make in (bytearray, memoryview):
        words = lg.Vocabulary([make(b"a"), make(b"b")], end=[1])
        assert words.digest == lg.Vocabulary([b"a", b"b"], end=[1]).digest
        flat = lg.Vocabulary(make(b"ab"), offsets=[0, 1, 2], end=[1])
        assert flat.digest == words.digest
        assert lg.Grammar.deserialize(make(GRAMMAR.serialize()), VOCABULARY).digest == GRAMMAR.digest
        assert GRAMMAR.restore(make(matcher().serialize())).tokens == []


def test_a_schema_that_contains_itself_is_refused() -> None:
    circle: dict[str, Any] = {"type": "object"}
    circle["properties"] = {"a": circle}
    deep: dict[str, Any] = {}
    for _ in range(20_000):
        deep = {"items": deep}
    for value, why in ((circle, "Circular"), (deep, "nested too deep")):
        with pytest.raises(lg.CompileError, match=f"schema cannot be written as JSON: .*{why}"):
            schema(schema=value)
        with pytest.raises(lg.CompileError, match=f"/0/parameters: .*{why}"):
            tools(tools=[{"name": "get", "parameters": value}])


@pytest.mark.parametrize(
    ("found", "error", "message"),
    [
        ({1}, lg.CompileError, "the document that the resolver returned for https://example.com/a cannot be written"),
        (BROKEN, lg.CompileError, "the document that the resolver returned for https://example.com/a must be text"),
        (5, lg.CompileError, "a schema must be an object or a boolean"),
    ],
)  # fmt: skip
def test_what_a_resolver_returns_is_checked(found: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        schema(schema=SCHEMA, resolver=lambda uri: found)


@pytest.mark.parametrize(
    "recipe",
    [
        [],
        5,
        {},
        {"kind": "regex"},
        {"kind": [], "source": "a"},
        {"kind": "later", "source": "a"},
        {"kind": "regex", "source": 5, "whole": True},
        {"kind": "regex", "source": "a", "whole": 5},
        {"kind": "gbnf", "source": "a", "root": None},
        {"kind": "json_schema", "source": "{}", "mode": "other"},
        {"kind": "json_schema", "source": "{}", "max_whitespace": -1},
        {"kind": "json_schema", "source": "{}", "documents": 5},
        {"kind": "json_schema", "source": "{}", "documents": {"a": 5}},
    ],
)
def test_a_serialised_recipe_is_checked(recipe: Any) -> None:
    with pytest.raises(lg.RestoreError):
        lg.Grammar.deserialize(write_grammar(canonical(recipe), VOCABULARY.digest), VOCABULARY)
    with pytest.raises(lg.RestoreError):
        lg.Grammar.deserialize(write_grammar(json.dumps(recipe).encode()[:-1], VOCABULARY.digest), VOCABULARY)


def test_a_serialised_position_that_the_grammar_refuses_is_damaged() -> None:
    from llamay_grammar.serialised import write_position

    with pytest.raises(lg.RestoreError, match="cannot be at its position: token 48"):
        GRAMMAR.restore(write_position([97, 48], GRAMMAR.digest))
