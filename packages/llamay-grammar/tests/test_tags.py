"""Arguments that each stand between tags of their own."""

# ruff: noqa: E501, RUF001 - schemas are easier to compare on one line; DeepSeek's marks have full-width bars
from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest
from helpers import accepts, awkward_tokens, mask_bits, tagged
from hypothesis import given, settings
from hypothesis import strategies as st
from object_schemas import OBJECTS

import llamay_grammar as lg

jsonschema = pytest.importorskip("jsonschema")
jsonschema_rs = pytest.importorskip("jsonschema_rs")

FORMATS = [
    name for name, form in lg.tool_formats().items() if any("parameters" in piece for piece in form["call"])
]

SCHEMAS: dict[str, Any] = {
    "all types": {
        "type": "object",
        "properties": {
            "code": {"type": "string"},
            "n": {"type": "integer"},
            "x": {"type": "number"},
            "ok": {"type": "boolean"},
            "no": {"type": "null"},
            "l": {"type": "array", "items": {"type": "string", "maxLength": 2}, "maxItems": 2},
            "o": {"type": "object", "properties": {"a": {"const": 1}}, "additionalProperties": False},
        },
        "required": ["code"],
        "additionalProperties": False,
    },
    "strings with limits": {
        "type": "object",
        "properties": {
            "short": {"type": "string", "minLength": 2, "maxLength": 4},
            "long": {"type": "string", "minLength": 3},
            "most": {"type": "string", "maxLength": 3},
            "p": {"type": "string", "pattern": "^[a-c]+$"},
            "e": {"enum": ["a", "ab", "\n", "</x>"]},
            "d": {"type": "string", "format": "date"},
            "pw": {"type": "string", "pattern": "^a?[bc]*$", "minLength": 2, "maxLength": 3},
        },
        "minProperties": 1,
        "additionalProperties": False,
    },
    "strings or others": {
        "type": "object",
        "properties": {
            "s": {"type": ["string", "null"]},
            "i": {"type": ["string", "integer"], "maxLength": 3},
            "e": {"enum": ["5", 5, 6, "true", True, None, "x"]},
            "any": {},
            "num": {
                "anyOf": [{"type": "string", "pattern": "^[0-9]{1,2}$|^x"}, {"type": "number", "minimum": 50}]
            },
        },
        "additionalProperties": False,
    },
    "names that begin with each other": {
        "type": "object",
        "properties": {"a": {"const": 1}, "ab": {"const": 2}, "a1": {"const": 3}, "é": {"const": "4"}},
        "required": ["ab"],
        "additionalProperties": False,
    },
    "others": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "name": {"type": "null"}},
        "required": ["name"],
        "additionalProperties": {"type": "boolean"},
        "maxProperties": 3,
    },
    "pattern properties": {
        "type": "object",
        "patternProperties": {"^a": {"type": "integer"}, "b$": {"type": "number"}},
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 3,
    },
    "few names": OBJECTS["few names"],
    "dependent": {
        "type": "object",
        "properties": {"a": {"const": 1}, "b": {"const": "2"}, "c": {"const": 3}},
        "dependentRequired": {"a": ["b"], "b": ["c"]},
        "additionalProperties": False,
        "maxProperties": 3,
    },
    "one of": {
        "type": "object",
        "oneOf": [
            {"properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False},
            {
                "properties": {"b": {"type": "string", "maxLength": 2}},
                "required": ["b"],
                "additionalProperties": False,
            },
        ],
    },
    "if then else": OBJECTS["if then else"],
    "referenced": {
        "$defs": {
            "name": {"type": "string", "maxLength": 3},
            "both": {"anyOf": [{"$ref": "#/$defs/name"}, {"type": "integer"}]},
        },
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/name"}, "b": {"$ref": "#/$defs/both"}},
        "additionalProperties": False,
    },
    "different items": {
        "type": "object",
        "properties": {
            "l": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"a": {"enum": [1, 2]}},
                    "additionalProperties": False,
                },
                "uniqueItems": True,
                "maxItems": 3,
            }
        },
        "additionalProperties": False,
    },
}

PIECES = """<parameter= <parameter </parameter> </parameter>\n \n</parameter>\n \n</param > >\n >\n\n </function> </function>\n
</tool_call> </seed:tool_call> <arg_key> </arg_key> <arg_value> </arg_value> </arg_value>\n</ </arg </invoke> </invoke>\n name=" name="a
"> "true"> false"> string=" </｜DSML｜ </｜DSML｜parameter> =a> a> ab> </｜DSML｜parameter>\n </｜DSML｜invoke> parameter>\n< a</arg_key>
code =code>\n n>\n5\n</parameter> x>\n1.""".replace("\\n", "\x00").split()


def vocabulary(special: tuple[str, ...] = ()) -> lg.Vocabulary:
    tokens = awkward_tokens() + [piece.replace("\x00", "\n").encode() for piece in PIECES]
    tokens += ["｜".encode(), "｜DSML｜".encode(), "DSML｜".encode(), b"invoke", b"_calls"]
    names = {len(tokens) + i: name for i, name in enumerate(("</s>", *special))}
    tokens += [name.encode() for name in names.values()]
    return lg.Vocabulary(tokens, special=names, end=[min(names)])


@pytest.fixture(scope="module")
def pieces() -> lg.Vocabulary:
    return vocabulary()


@pytest.fixture(scope="module")
def special_tags() -> lg.Vocabulary:
    return vocabulary(
        ("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "<tool_call>", "</tool_call>", "｜DSML｜")
    )


def tool(schema: Any) -> dict[str, Any]:
    return {"name": "f", "parameters": schema}


def text_of(part: Any) -> str:
    return "".join(piece.get("text", piece.get("special", "")) for piece in part)


def spelled(form: Any, arguments: dict[str, Any]) -> str:
    """One call, as the envelope's own data says it is written."""
    out = text_of(form.get("before", ()))
    for piece in form["call"]:
        if "parameters" in piece:
            out += tagged(piece["parameters"], arguments)
        else:
            out += "f" if piece.get("name") else text_of([piece])
    return out + text_of(form.get("after", ()))


def read(form: Any, text: str, schema: Any) -> dict[str, Any]:
    """The arguments of one call. Slow and obvious: every argument is what stands before the first closing tag."""
    tags = next(piece["parameters"] for piece in form["call"] if "parameters" in piece)
    opening = ""
    for piece in tags["open"]:
        opening += (
            "(?P<key>.*?)"
            if piece.get("key")
            else "(?P<typed>true|false)"
            if "typed" in piece
            else re.escape(text_of([piece]))
        )
    close = text_of(tags["close"])
    stop = close.strip()
    lead = close[: close.index(stop)]
    types, out = lg.argument_types(schema), {}
    while found := re.search(opening, text, re.DOTALL):
        end = text.index(stop, found.end())
        content, text = text[found.end() : end], text[end + len(stop) :]
        assert content.endswith(lead)
        content = content[: len(content) - len(lead)]
        key = found["key"]
        assert key not in out
        if "typed" in found.groupdict():
            out[key] = content if found["typed"] == "true" else json.loads(content)
        else:
            out[key] = lg.read_argument(content, types[key])
    return out


def walked(grammar: lg.Grammar, form: Any, rng: random.Random, limit: int, *, check: bool) -> bytes | None:
    """Follow the mask at random, leaning towards closing tags."""
    words = grammar.vocabulary
    matcher, out = grammar.matcher(), b""
    names = {token: name for name, token in words.special_names.items()}
    tags = next(piece["parameters"] for piece in form["call"] if "parameters" in piece)
    at = next(i for i, piece in enumerate(tags["open"]) if piece.get("key"))
    ends = [text_of(part).rstrip().encode() for part in (tags["close"], tags["open"][at + 1 :])]
    for step in range(limit):
        allowed = mask_bits(matcher)
        assert allowed, f"a dead end after {out!r}"
        if check:
            assert allowed == [t for t in range(len(words)) if matcher.allows(t)], out
        if matcher.is_complete:
            return out
        # The tag that is written furthest is the one to go on with.
        begun = {end: next(k for k in range(len(end), -1, -1) if out.endswith(end[:k])) for end in ends}
        ways = set()
        for end in ends:
            if (done := begun[end]) == max(begun.values()):
                ways |= {end[done:n] for n in range(done + 1, len(end) + 1)} | {end[done:] + b"\n"}
        closing = [t for t in allowed if words.bytes_of(t) in ways or t in names]
        closing = closing or [t for t in allowed if words.bytes_of(t)[:1] in (b"<", b">", b'"', b"}", b"]")]
        token = rng.choice(closing if closing and rng.random() < 0.4 + step / limit else allowed)
        matcher.accept(token)
        out += names[token].encode() if token in names else words.bytes_of(token)
    return None


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("kind", SCHEMAS)
def test_what_a_mask_allows_ends_and_reads_back_as_valid_arguments(
    name: str, kind: str, pieces: lg.Vocabulary
) -> None:
    form, schema = lg.tool_formats()[name], SCHEMAS[kind]
    grammar = lg.compile_tools([tool(schema)], pieces, format=name, choice="f")
    rng, ended = random.Random(f"{name} {kind}"), 0
    tags = next(piece["parameters"] for piece in form["call"] if "parameters" in piece)
    # Where the vocabulary has no tokens for tags, long ones take many steps.
    limit = max(300, 12 * len(text_of(tags["open"]) + text_of(tags["close"])))
    for n in range(12):
        text = walked(grammar, form, rng, limit, check=n < 2)
        if text is None:
            continue
        ended += 1
        arguments = read(form, text.decode(), schema)
        jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker()).validate(arguments)
        assert jsonschema_rs.is_valid(schema, arguments), (text, arguments)
    assert ended > 0


@pytest.mark.parametrize("name", ["glm-4.5", "glm-4.7", "deepseek-v3.2", "deepseek-v4"])
@pytest.mark.parametrize(
    "kind", ["all types", "names that begin with each other", "others", "pattern properties"]
)
def test_tags_of_special_tokens_are_tokens(name: str, kind: str, special_tags: lg.Vocabulary) -> None:
    form, schema = lg.tool_formats()[name], SCHEMAS[kind]
    grammar = lg.compile_tools([tool(schema)], special_tags, format=name, choice="f")
    rng, ended = random.Random(kind), 0
    for n in range(12):
        text = walked(grammar, form, rng, 300, check=n < 2)
        if text is None:
            continue
        ended += 1
        assert jsonschema_rs.is_valid(schema, read(form, text.decode(), schema)), text
    assert ended > 0


TEXTS = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from('\n <>/"5t'), max_size=12)
ARGUMENTS = st.fixed_dictionaries(
    {"code": TEXTS},
    optional={
        "n": st.integers(-(10**9), 10**9),
        "x": st.floats(-1e6, 1e6).map(lambda f: round(f, 3)),
        "ok": st.booleans(),
        "no": st.none(),
        "l": st.lists(st.text(max_size=2), max_size=2),
        "o": st.sampled_from([{}, {"a": 1}]),
    },
)


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=60, deadline=None)
@given(arguments=ARGUMENTS, order=st.randoms())
def test_every_valid_call_can_be_written_in_any_order_and_reads_back_the_same(
    name: str, arguments: dict[str, Any], order: random.Random, bytes_vocabulary: lg.Vocabulary
) -> None:
    form, schema = lg.tool_formats()[name], SCHEMAS["all types"]
    names = list(arguments)
    order.shuffle(names)
    arguments = {key: arguments[key] for key in names}
    text = spelled(form, arguments)
    grammar = lg.compile_tools([tool(schema)], bytes_vocabulary, format=name, choice="f")
    stop = text_of(
        next(piece["parameters"]["close"] for piece in form["call"] if "parameters" in piece)
    ).strip()
    assert accepts(grammar, text.encode()) == (stop not in arguments["code"])
    if stop not in arguments["code"]:
        assert read(form, text, schema) == arguments


@pytest.mark.parametrize(
    ("parameters", "good"),
    [
        ("<parameter=code>\nx\n</parameter>\n", True),
        ("<parameter=code>\n\n</parameter>\n", True),
        ("<parameter=code>\n<parameter=n>\n</param\n</parameter>\n", True),
        ("<parameter=code>\n\n</parameter>\n<parameter=n>\n-5\n</parameter>\n", True),
        ("<parameter=n>\n5\n</parameter>\n<parameter=code>\n5\n</parameter>\n", True),
        ("", False),
        ("<parameter=n>\n5\n</parameter>\n", False),
        ("<parameter=code>\nx</parameter>\n", False),
        ("<parameter=code>\nx\n</parameter>\n<parameter=code>\nx\n</parameter>\n", False),
        ("<parameter=code>\nx\n</parameter>\n<parameter=n>\nfive\n</parameter>\n", False),
        ('<parameter=code>\nx\n</parameter>\n<parameter=n>\n"5"\n</parameter>\n', False),
        ("<parameter=cod>\nx\n</parameter>\n", False),
        ("<parameter=code>\nx\n</parameter>\n<parameter=z>\nx\n</parameter>\n", False),
    ],
)
def test_required_and_declared_arguments_once_each(
    parameters: str, good: bool, bytes_vocabulary: lg.Vocabulary
) -> None:
    grammar = lg.compile_tools(
        [tool(SCHEMAS["all types"])], bytes_vocabulary, format="qwen3-coder", choice="f"
    )
    assert (
        accepts(grammar, f"<tool_call>\n<function=f>\n{parameters}</function>\n</tool_call>".encode()) == good
    )


def test_the_order_of_the_schema_if_it_is_asked_for(bytes_vocabulary: lg.Vocabulary) -> None:
    form = lg.tool_formats()["minimax-m2"]
    grammar = lg.compile_tools(
        [tool(SCHEMAS["all types"])],
        bytes_vocabulary,
        format="minimax-m2",
        choice="f",
        property_order="schema",
    )
    assert accepts(grammar, spelled(form, {"code": "x", "n": 1, "ok": True}).encode())
    assert not accepts(grammar, spelled(form, {"n": 1, "code": "x", "ok": True}).encode())


def test_a_name_that_a_tag_cannot_hold_is_refused_or_left_out(bytes_vocabulary: lg.Vocabulary) -> None:
    schema = {"type": "object", "properties": {"a>b": {"type": "string"}, "c": {"type": "string"}}}
    with pytest.raises(lg.CompileError, match="cannot be written in a tag") as caught:
        lg.compile_tools([tool(schema)], bytes_vocabulary, format="qwen3-coder")
    assert caught.value.pointer == "/0/parameters/properties/a>b"
    grammar = lg.compile_tools(
        [tool(schema)], bytes_vocabulary, format="qwen3-coder", choice="f", mode="approximate"
    )
    assert "a>b" in grammar.warnings[0]
    assert accepts(grammar, spelled(lg.tool_formats()["qwen3-coder"], {"c": "x"}).encode())
    with pytest.raises(lg.CompileError):
        lg.compile_tools(
            [tool({**schema, "required": ["a>b"]})],
            bytes_vocabulary,
            format="qwen3-coder",
            mode="approximate",
        )


def test_a_string_that_would_be_read_as_something_else_is_not_written(
    bytes_vocabulary: lg.Vocabulary,
) -> None:
    schema = {
        "type": "object",
        "properties": {"v": {"anyOf": [{"type": "string"}, {"type": "integer", "minimum": 10}]}},
        "additionalProperties": False,
    }
    form = lg.tool_formats()["glm-4.7"]
    grammar = lg.compile_tools([tool(schema)], bytes_vocabulary, format="glm-4.7", choice="f")
    for text, good in (
        ("12", True),
        ("5", False),
        (" 5 ", False),
        ("5a", True),
        ("true", True),
        ("[5]", True),
        ("", True),
    ):
        assert accepts(grammar, spelled(form, {"v": text}).encode()) == good, text
    typed = lg.compile_tools([tool(schema)], bytes_vocabulary, format="deepseek-v3.2", choice="f")
    assert accepts(typed, spelled(lg.tool_formats()["deepseek-v3.2"], {"v": "5"}).encode())
    assert not accepts(typed, spelled(lg.tool_formats()["deepseek-v3.2"], {"v": 5}).encode())


@pytest.mark.parametrize("states", [20_000, 30])
def test_an_end_that_overlaps_itself_is_found_where_it_first_is(
    states: int, bytes_vocabulary: lg.Vocabulary
) -> None:
    """Also where text and end are too large for one automaton."""
    tags = {"open": [{"text": "("}, {"key": True}, {"text": "="}], "close": [{"text": "xyx"}]}
    form = {"call": [{"name": True}, {"parameters": tags}, {"text": "!"}]}
    schema = {
        "type": "object",
        "title": str(states),
        "properties": {"a": {"type": "string", "pattern": "^[v-z]?[w-z]?[a-z]?[x-z]?$"}},
    }
    grammar = lg.compile_tools(
        [tool(schema)], bytes_vocabulary, format=form, choice="f", budget=lg.Budget(states=states)
    )
    for content in ("", "x", "y", "xx", "xxyy", "xyxy", "xy", "wxy", "yx", "zzzzz", "yyyx", "yyxy"):
        whole = content + "xyx"
        good = whole.index("xyx") == len(content) <= 4
        assert accepts(grammar, f"f(a={whole}!".encode()) == good, content


@pytest.mark.parametrize(
    ("text", "types", "value"),
    [
        ("5", {"string"}, "5"),
        ("null", {"string"}, "null"),
        ("5", {"integer"}, 5),
        (" 5\n", {"integer", "string"}, 5),
        ("5.5", {"integer", "string"}, "5.5"),
        ("5.0", {"integer"}, 5.0),
        ("5a", {"integer", "string"}, "5a"),
        ("[1]", {"string"}, "[1]"),
        ("[1]", {"string", "array"}, [1]),
        ("[1", {"string", "array"}, "[1"),
        ('"a"', {"string", "null"}, '"a"'),
        ("True", {"boolean"}, True),
        ("True", {"boolean", "string"}, "True"),
        ("None", {"null", "integer"}, None),
        ("['a', 1]", {"array"}, ["a", 1]),
        ("{'a': True}", {"object"}, {"a": True}),
        ("NaN", {"number"}, "NaN"),
        ("1e999", {"number"}, "1e999"),
        ("five", {"integer"}, "five"),
        ("5", {"boolean"}, 5),
        ("[" * 100_000, {"array"}, "[" * 100_000),
    ],
)
def test_what_stands_between_tags_is_read_as_the_types_say(text: str, types: set[str], value: Any) -> None:
    found = lg.read_argument(text, types)
    assert found == value
    assert type(found) is type(value)


def test_the_types_of_arguments_are_those_of_the_schema() -> None:
    tree: dict[str, Any] = {"anyOf": [{"$ref": "#/properties/tree"}, {"$ref": "#"}, {"type": "string"}]}
    types = lg.argument_types(
        {
            "$defs": {"s": {"type": "string"}},
            "properties": {
                "a": {"type": "string"},
                "b": {"$ref": "#/$defs/s"},
                "c": {"enum": [1, None]},
                "d": {"const": True},
                "e": {},
                "tree": tree,
                "far": {"$ref": "https://example.com/x"},
            },
            "allOf": [{"properties": {"e": {"type": ["integer", "null"]}}}],
            "anyOf": [{"properties": {"e": {"type": "null"}}}, {"properties": {"e": {"type": "integer"}}}],
            "additionalProperties": {"type": "boolean"},
        }
    )
    everything = {"string", "number", "boolean", "null", "array", "object"}
    found = {name: set(types[name]) for name in ("a", "b", "c", "d", "e", "far", "other")}
    assert found == {
        "a": {"string"},
        "b": {"string"},
        "c": {"number", "null"},
        "d": {"boolean"},
        "e": {"integer", "null"},
        "far": everything,
        "other": {"boolean"},
    }
    assert "string" in types["tree"]
    assert lg.argument_types(True)["x"] == everything


def test_envelopes_with_broken_tags_are_refused(bytes_vocabulary: lg.Vocabulary) -> None:
    for tags, what in (
        ({"open": [{"text": "<"}], "close": [{"text": ">"}]}, "needs a key"),
        ({"open": [{"key": True}], "close": [{"text": " "}]}, "must not be empty"),
        (
            {"open": [{"key": True}, {"name": True}], "close": [{"text": ">"}]},
            "none of text, special, key, typed",
        ),
    ):
        with pytest.raises(ValueError, match=what):
            lg.compile_tools(
                [tool({})], bytes_vocabulary, format={"call": [{"name": True}, {"parameters": tags}]}
            )
