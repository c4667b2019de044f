"""What a schema, a pattern, a grammar or tools mean for a model: the same for Python, the command and the server."""

from __future__ import annotations

import gc
import json
import threading
import weakref
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import llamay
import llamay_grammar as lg
from llamay_models import constraints
from llamay_models.errors import InterfaceError

THINKS = "{% for m in messages %}<think>{{ m.content }}</think><tool_call>{{ tools }}{% endfor %}"
SCHEMA = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}
TOOL = {"name": "get", "parameters": {"properties": {"city": {"type": "string"}}}}
CLOSED = {"properties": {"city": {"type": "string"}}, "additionalProperties": False}


class Words:
    """Bytes, an end, and two marks."""

    vocab_size, eog = 259, (256,)
    names = ("</s>", "<think>", "</think>")

    def token_bytes(self, token: int) -> bytes:
        return bytes([token]) if token < 256 else self.token_text(token).encode()

    def token_text(self, token: int) -> str:
        return chr(token) if token < 256 else self.names[token - 256]

    def is_special(self, token: int) -> bool:
        return token >= 256


def a_model(template: str | None = None, words: Any = None) -> Any:
    def decode(tokens: Any) -> str:
        return b"".join(map(model.tokenizer.token_bytes, tokens)).decode()

    source = None if template is None else SimpleNamespace(source=template)
    model = SimpleNamespace(tokenizer=words or Words(), vocab_size=260, chat_template=source, decode=decode)
    return model


def a_context(model: Any, *tokens: int) -> Any:
    return SimpleNamespace(model=model, tokens=list(tokens))


def tools_of(function: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"type": "function", "function": function}]


ONE_FORM: dict[str, Any] = {"whitespace": "spaced", "property_order": "schema", "canonical_escapes": True}
# What each call is short for.
LONG = {
    "schema": lambda v: lg.compile_json_schema(SCHEMA, v, **ONE_FORM),
    "text": lambda v: lg.compile_json_schema(json.dumps(SCHEMA), v, **ONE_FORM),
    "true": lambda v: lg.compile_json_schema(True, v, **ONE_FORM),
    "free": lambda v: lg.compile_json_schema(SCHEMA, v),
    "regex": lambda v: lg.compile_regex("a+b", v, whole=True),
    "grammar": lambda v: lg.compile_gbnf('root ::= "a"', v),
    "tools": lambda v: lg.compile_tools(
        tools_of({"name": "get", "parameters": CLOSED}),
        v,
        format="hermes",
        **ONE_FORM,
    ),
    "forced": lambda v: lg.compile_tools(
        tools_of({"name": "get", "parameters": CLOSED}),
        v,
        format="llama3",
        choice="get",
        parallel=False,
        **ONE_FORM,
    ),
    "answer": lambda v: lg.compile_tools(
        tools_of({"name": "get", "parameters": CLOSED}),
        v,
        answer=SCHEMA,
        **ONE_FORM,
    ),
}
SHORT: dict[str, dict[str, Any]] = {
    "schema": {"schema": SCHEMA},
    "text": {"schema": json.dumps(SCHEMA)},
    "true": {"schema": True},
    "free": {"schema": SCHEMA, "free_form": True},
    "regex": {"regex": "a+b"},
    "grammar": {"grammar": 'root ::= "a"'},
    "tools": {"tools": [TOOL]},
    "forced": {"tools": tools_of(TOOL), "choice": "get", "parallel": False, "format": "llama3"},
    "answer": {"tools": [TOOL], "answer": SCHEMA},
}


@pytest.mark.parametrize("kind", SHORT)
def test_one_call_is_what_the_grammar_package_does_in_several(kind: str) -> None:
    model = a_model()

    matcher = llamay.constraint(model, **SHORT[kind])

    assert isinstance(matcher, lg.Matcher)
    assert matcher.grammar.digest == LONG[kind](llamay.vocabulary(model)).digest
    assert not matcher.grammar.warnings
    assert constraints.compile_constraint(model, lg, **SHORT[kind]).matcher().grammar is matcher.grammar


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("kind", ["schema", "tools"])
def test_reasoning_comes_first_where_the_template_knows_it(kind: str, begun: bool) -> None:
    model = a_model(THINKS)
    context = a_context(model, 65, 257) if begun else a_context(model, 65)
    marks = lg.Reasoning("<think>", "</think>", begun)

    matcher = llamay.constraint(context, **SHORT[kind], reasoning=True)

    given = constraints.compile_constraint(model, lg, **SHORT[kind], reasoning=("<think>", "</think>", begun))
    assert matcher.grammar is given
    if kind == "schema":
        again = lg.compile_json_schema(SCHEMA, llamay.vocabulary(model), reasoning=marks, **ONE_FORM)
        assert matcher.grammar.digest == again.digest
    assert matcher.allows(257) is not begun
    without = llamay.constraint(context, **SHORT[kind])
    assert not without.allows(257)


def test_a_model_that_knows_no_reasoning_writes_none() -> None:
    context = a_context(a_model("{{ messages }}"), 65)

    assert (
        llamay.constraint(context, schema=SCHEMA, reasoning=True).grammar
        is llamay.constraint(context, schema=SCHEMA).grammar
    )


def test_the_format_of_calls_is_the_templates() -> None:
    mistral = a_model("[TOOL_CALLS]{{ tools }}")
    named = llamay.constraint(mistral, tools=[TOOL], format="mistral")

    assert llamay.constraint(mistral, tools=[TOOL]).grammar is named.grammar
    assert llamay.constraint(mistral, tools=[TOOL], format="hermes").grammar is not named.grammar


def test_what_cannot_be_enforced_is_refused_or_told() -> None:
    model = a_model()
    refused = {"$ref": "http://example.com/x"}

    with pytest.raises(lg.CompileError, match=r"/\$ref"):
        llamay.constraint(model, schema=refused)
    with pytest.raises(ValueError, match="two tools have the same name"):
        llamay.constraint(model, tools=[TOOL, TOOL], strict=False)
    hard = {"properties": {"a": {"type": "string", "pattern": "(a)\\1"}}}
    for subject in ({"schema": hard}, {"tools": [{"name": "get", "parameters": hard}]}):
        with pytest.raises(lg.CompileError, match="back-reference"):
            llamay.constraint(model, **subject)
        assert "pattern" in llamay.constraint(model, **subject, strict=False).grammar.warnings[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "give one of schema, regex, grammar, tools, not none"),
        ({"schema": {}, "regex": "a"}, "not schema and regex"),
        ({"regex": "a", "choice": "auto"}, "choice goes with tools, not with regex"),
        ({"schema": {}, "parallel": False}, "parallel goes with tools"),
        ({"schema": {}, "answer": {}}, "answer goes with tools"),
        ({"grammar": "x", "format": "hermes"}, "format goes with tools, not with grammar"),
        ({"regex": "a", "free_form": True}, "free_form goes with schema, not with regex"),
        ({"regex": "a", "reasoning": True}, "not before regex"),
        ({"schema": {}, "reasoning": True}, "give the context instead of the model"),
        ({"tools": {"name": "get"}}, "tools must be a list"),
        ({"tools": []}, "there are no tools"),
        ({"tools": [TOOL], "choice": "put"}, "choice must be 'auto', 'required' or the name of a tool"),
        ({"tools": [TOOL], "format": "no"}, "unknown tool format 'no'"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        llamay.constraint(a_model(), **options)


def test_what_is_no_model_is_told_as_such() -> None:
    for wrong in (None, "model.gguf"):
        with pytest.raises(TypeError, match=r"give a model, as llamay\.load"):
            llamay.constraint(wrong, regex="a")  # type: ignore[arg-type]
    bare: Any = SimpleNamespace(tokenizer=None)
    for use in (lambda: llamay.constraint(bare, regex="a"), lambda: llamay.vocabulary(bare)):
        with pytest.raises(ValueError, match="has no tokenizer"):
            use()


def test_a_vocabulary_is_made_once_for_all_models_of_a_tokenizer_and_goes_with_it() -> None:
    words = Words()
    a, b = a_model(words=words), a_model(words=words)
    found: list[Any] = []
    threads = [threading.Thread(target=lambda m=m: found.append(llamay.vocabulary(m))) for m in (a, b, a, b)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len({id(each) for each in found}) == 1
    assert llamay.vocabulary(a_model()) is not found[0]
    gone = weakref.ref(words)
    del a, b, words
    gc.collect()
    assert gone() is None


def test_a_compiler_of_another_version_is_refused_by_name() -> None:
    other: Any = ModuleType("llamay_grammar")
    other.INTERFACE = {"vocabulary": (2, 0), "token_constraint": (1, 0)}

    with pytest.raises(
        InterfaceError, match=r"needs interface vocabulary 1\.0 .* llamay-grammar offers 2\.0"
    ):
        constraints.vocabulary(a_model(), other)


def test_llamay_names_the_compiler_and_without_it_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert constraints.compiler() is lg

    monkeypatch.setattr("llamay_models.constraints.interface._find", None)
    with pytest.raises(InterfaceError, match="import llamay"):
        constraints.compiler()


def test_a_schema_of_arguments_is_closed_unless_it_says_otherwise() -> None:
    inner = {"properties": {"a": {}}}
    shut = {**inner, "additionalProperties": False}
    for given, closed in (
        (inner, {"properties": {"a": {}}, "additionalProperties": False}),
        ({**inner, "additionalProperties": True}, {**inner, "additionalProperties": True}),
        ({**inner, "anyOf": [{}]}, {**inner, "anyOf": [{}]}),
        ({"items": inner}, {"items": shut}),
        ({"anyOf": [inner, True]}, {"anyOf": [shut, True]}),
        ({"allOf": [inner]}, {"allOf": [inner]}),
        ({"type": "object"}, {"type": "object"}),
        (True, True),
    ):
        assert constraints.closed_schema(given) == closed
        assert constraints.closed_schema(closed) == closed


@pytest.mark.model
def test_generate_takes_a_schema(model_file: Any) -> None:
    with llamay.load(model_file("smollm2")) as model, model.context("A person: ") as context:
        fork, closed, likely = (
            context.fork(),
            constraints.closed_schema(SCHEMA),
            llamay.Sampling(temperature=0),
        )
        text = context.generate(likely, schema=closed, max_tokens=200).text
        age = json.loads(text)["age"]
        assert age == int(age), "10.0 is an integer, too"
        bound = llamay.constraint(fork, schema=closed)
        assert fork.generate(likely, constraint=bound, max_tokens=200).text == text
        assert model.context("Say yes: ").generate(regex="yes|no").text in ("yes", "no")
        with pytest.raises(ValueError, match="not schema and regex"):
            context.generate(schema=SCHEMA, regex="a")
