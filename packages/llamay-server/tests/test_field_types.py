"""A field of the wrong type is a 400 that names it: constraints, booleans, and whatever else a body has."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from typing import Any, get_args, get_origin

import msgspec
import msgspec.inspect as mi
import pytest
from fake_engine import FakeModel

from llamay_server.http.bodies import decode_json
from llamay_server.http.errors import ApiError
from llamay_server.http.route_description import KEY

USER = [{"role": "user", "content": "hi"}]
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
FUNCTION = {"name": "look", "description": "Look.", "parameters": SCHEMA, "strict": True}
TOOL = {"type": "function", "function": FUNCTION}
CALL = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"a": 1}'}}
VALUES: list[Any] = [True, False, 0, -3, 1.5, "", "x", "{", [], [1], ["a"], [None], [[]], {}, {"a": 1}, None]
"""A value of every type of JSON, and of some lists and objects several."""


def kind(value: Any) -> str:
    """The type that JSON has for a value."""
    if isinstance(value, bool):
        return "boolean"
    names = {int: "number", float: "number", str: "text", list: "list", dict: "object"}
    return names.get(type(value), "null")


def put(body: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """A copy of a body with a value at a path, whose objects are made where they are missing."""
    made = copy.deepcopy(body)
    at: Any = made
    for step in path[:-1]:
        at = at.setdefault(step, {}) if isinstance(at, dict) else at[step]
    at[path[-1]] = value
    return made


def spelled(path: tuple[Any, ...]) -> str:
    """A path as errors spell it."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")


# -- constraints

GENERATING: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": USER, "max_tokens": 2},
    "/v1/completions": {"prompt": "hi", "max_tokens": 2},
    "/v1/responses": {"input": "hi", "max_output_tokens": 2},
    "/completion": {"prompt": "hi", "n_predict": 2},
    "/infill": {"input_prefix": "a", "input_suffix": "b", "n_predict": 2},
    "/v1/contexts/{id}/generate": {"max_tokens": 2, "commit": False},
}
"""The routes whose bodies have the sampling fields, and with them the constraints of llama.cpp and vLLM."""
MESSAGES = {"messages": USER, "max_tokens": 2}
OLLAMA = {"model": "fake", "stream": False, "options": {"num_predict": 2}}
SHARED = {
    ("grammar",): "text",
    ("regex",): "text",
    ("json_schema",): "object boolean",
    ("guided_json",): "object text",
    ("guided_regex",): "text",
    ("guided_choice",): "list",
    ("guided_grammar",): "text",
    ("structured_outputs",): "object",
    ("structured_outputs", "json"): "object boolean text",
    ("structured_outputs", "regex"): "text",
    ("structured_outputs", "grammar"): "text",
    ("structured_outputs", "choice"): "list",
    ("structured_outputs", "json_object"): "boolean",
    ("structured_outputs", "free_form"): "boolean",
}
FORMAT = {("type",): "text", ("json_schema",): "object", ("json_schema", "schema"): "object boolean"}
FLAT = {("type",): "text", ("schema",): "object boolean"}
OBJECT = {("type",): "text", ("schema",): "object boolean text"}


def below(
    base: dict[str, Any], field: str, form: str, paths: dict[tuple[str, ...], str]
) -> Iterator[tuple[dict[str, Any], tuple[str, ...], str]]:
    """A format's own value and those inside it, where it is of the type `form`."""
    at = tuple(field.split("."))
    yield base, at, "object"
    for path, types in paths.items():
        yield put(base, (*at, "type"), form), (*at, *path), types


def constraints() -> Iterator[tuple[str, dict[str, Any], tuple[str, ...], str]]:
    """Route, body, path and the types that the field may have, for all fields that constrain the output."""
    for route, base in GENERATING.items():
        for path, types in SHARED.items():
            yield route, base, path, types
    for route in ("/v1/chat/completions", "/v1/completions", "/v1/contexts/{id}/generate"):
        base = GENERATING[route]
        for case in below(base, "response_format", "json_schema", FORMAT):
            yield route, *case
        for case in below(base, "response_format", "json_object", OBJECT):
            yield route, *case
    base = GENERATING["/v1/responses"]
    yield "/v1/responses", base, ("text",), "object"
    for case in below(base, "text.format", "json_schema", FLAT):
        yield "/v1/responses", *case
    yield "/v1/messages", MESSAGES, ("output_config",), "object"
    for field in ("output_format", "output_config.format"):
        for case in below(MESSAGES, field, "json_schema", FLAT):
            yield "/v1/messages", *case
    yield "/api/chat", OLLAMA | {"messages": USER}, ("format",), "object text"
    yield "/api/generate", OLLAMA | {"prompt": "hi"}, ("format",), "object text"


CASES = list(constraints())


@pytest.fixture(scope="module")
def model():
    """A model that fills gaps, too."""
    model = FakeModel()
    fills = {"fill_prefix": 261, "fill_suffix": 262, "fill_middle": 263}
    model.info = dataclasses.replace(model.info, fill_tokens=fills)
    return model


@pytest.fixture(scope="module")
def context(shared):
    return shared.client.post("/v1/contexts", json={"prompt": "hi"}).json()["id"]


def ask(shared, context, route, body):
    return shared.client.post(route.replace("{id}", context), json=body)


@pytest.mark.parametrize(
    ("route", "base", "path", "types"),
    CASES,
    ids=[f"{c[0]}-{spelled(c[2])}-{i}" for i, c in enumerate(CASES)],
)
def test_a_constraint_of_a_wrong_type_is_refused_by_its_name(shared, context, route, base, path, types):
    for value in VALUES:
        answer = ask(shared, context, route, put(base, path, value))
        assert answer.status_code in (200, 400), (value, answer.text)
        if kind(value) not in (*types.split(), "null"):
            assert answer.status_code == 400, value
            assert path[-1] in answer.text, (value, answer.text)


@pytest.mark.parametrize("choices", [[], [""], ["a", ""], ["a", 1], [None]])
@pytest.mark.parametrize("path", [("guided_choice",), ("structured_outputs", "choice")])
def test_a_choice_is_a_list_of_texts(shared, path, choices):
    answer = shared.client.post("/v1/completions", json=put({"prompt": "hi"}, path, choices))
    assert answer.status_code == 400
    assert answer.json()["error"]["param"].startswith(spelled(path))


# -- booleans

NO_BOOLEANS: list[Any] = [0, 1, 1.0, "true", "false", "", [], {}]


def structs(app) -> set[type]:
    """The structs of all routes' bodies."""
    bodies = {
        handler.opt.get(KEY, {}).get("body") for route in app.routes for handler in route.route_handlers
    }
    found = {get_args(body)[0] if get_origin(body) is list else body for body in bodies if body is not None}
    return {body for body in found if not isinstance(body, str)}


def alternatives(kind: mi.Type) -> tuple[mi.Type, ...]:
    return kind.types if isinstance(kind, mi.UnionType) else (kind,)


def booleans(struct: type, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all booleans in a struct, and in the structs in it, that may be nothing else but null."""
    about = mi.type_info(struct)
    assert isinstance(about, mi.StructType)
    for field in about.fields:
        path = (*before, field.encode_name)
        kinds = alternatives(field.type)
        if any(isinstance(k, mi.BoolType) for k in kinds):
            if all(isinstance(k, mi.BoolType | mi.NoneType) for k in kinds):
                yield path
            continue
        for k in kinds:
            if isinstance(k, mi.StructType) and k.tag is None:
                yield from booleans(k.cls, path)


def test_every_boolean_of_every_body_refuses_numbers_and_texts(shared):
    seen = 0
    for struct in structs(shared.app.litestar if hasattr(shared.app, "litestar") else shared.app):
        for path in booleans(struct):
            seen += 1
            for value in NO_BOOLEANS:
                with pytest.raises(ApiError) as refused:
                    decode_json(msgspec.json.encode(put({}, path, value)), struct)
                assert (refused.value.kind, refused.value.param) == ("invalid", spelled(path))
    assert seen > 40


TOOLS = {"tools": [TOOL]}
ANTHROPIC_TOOL = {"name": "look", "input_schema": SCHEMA}


@pytest.mark.parametrize(
    ("route", "base", "path"),
    [
        ("/v1/chat/completions", MESSAGES | TOOLS, ("tools", 0, "function", "strict")),
        ("/v1/chat/completions", MESSAGES, ("structured_outputs", "free_form")),
        ("/v1/chat/completions", MESSAGES, ("structured_outputs", "json_object")),
        ("/v1/chat/completions", MESSAGES, ("chat_template_kwargs", "enable_thinking")),
        ("/v1/chat/completions", MESSAGES, ("chat_template_kwargs", "thinking")),
        (
            "/v1/responses",
            {"input": "hi", "tools": [{"type": "function", **FUNCTION}]},
            ("tools", 0, "strict"),
        ),
        ("/v1/responses", {"input": "hi"}, ("chat_template_kwargs", "enable_thinking")),
        ("/v1/messages", MESSAGES | {"tools": [ANTHROPIC_TOOL]}, ("tools", 0, "strict")),
        ("/v1/messages", MESSAGES | {"tools": [ANTHROPIC_TOOL]}, ("tools", 0, "eager_input_streaming")),
        ("/v1/messages", MESSAGES, ("tool_choice", "disable_parallel_tool_use")),
        ("/api/chat", OLLAMA | {"messages": USER} | TOOLS, ("tools", 0, "function", "strict")),
        ("/v1/contexts/{id}/generate", {"max_tokens": 2} | TOOLS, ("tools", 0, "function", "strict")),
    ],
)
def test_booleans_in_objects_without_a_struct_refuse_numbers_and_texts(shared, context, route, base, path):
    for value in NO_BOOLEANS:
        answer = ask(shared, context, route, put(base, path, value))
        assert answer.status_code == 400, (value, answer.text)
        assert spelled(path) in answer.text, answer.text
    for value in (True, False, None):
        assert ask(shared, context, route, put(base, path, value)).status_code == 200


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("reasoning_effort", 1),
        ("thinking_budget", True),
        ("thinking_budget", "9"),
        ("date_string", 3),
        ("documents", "a"),
    ],
)
def test_options_for_the_template_have_their_types(shared, name, value):
    answer = shared.client.post(
        "/v1/chat/completions", json=MESSAGES | {"chat_template_kwargs": {name: value}}
    )
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == f"chat_template_kwargs.{name}"


# -- token biases


@pytest.mark.parametrize("route", GENERATING)
@pytest.mark.parametrize("key", ["a", "", "9a", "²", "٣", "1.5", "<s>"])
def test_the_keys_of_a_map_of_biases_are_token_ids(shared, context, route, key):
    answer = ask(shared, context, route, GENERATING[route] | {"logit_bias": {key: 1}})
    assert answer.status_code == 400
    assert f"logit_bias.{key}" in answer.text
    for bias in ({"97": 1, " 98 ": -2.5}, [["a²", 1], [97, False], ["97", 2]]):
        if "fill" not in route:
            assert ask(shared, context, route, GENERATING[route] | {"logit_bias": bias}).status_code in (
                200,
                501,
            )


# -- everything else

WHOLE: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "messages": [
            {"role": "system", "content": [{"type": "text", "text": "Be brief."}]},
            *USER,
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "call_1", "content": "x"},
        ],
        "tools": [TOOL],
        "tool_choice": {
            "type": "allowed_tools",
            "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "look"}}]},
        },
        "logit_bias": {"97": 1},
        "lora": [],
        "stream_options": {"include_usage": True},
        "chat_template_kwargs": {"enable_thinking": True},
        "prompt_cache_options": {"mode": "explicit", "prewarm": False},
        "max_tokens": 2,
    },
    "/v1/chat/completions?": {
        "messages": USER,
        "tools": [TOOL],
        "tool_choice": {"type": "function", "function": {"name": "look"}},
        "max_tokens": 2,
    },
    "/v1/completions": {"prompt": ["hi", [1, 2]], "logit_bias": [[97, 1]], "stop": ["x"], "max_tokens": 2},
    "/v1/responses": {
        "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
            {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}]},
            {"type": "function_call", "name": "look", "call_id": "c", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "x"},
        ],
        "tools": [{"type": "function", **FUNCTION}],
        "tool_choice": {"type": "function", "name": "look"},
        "reasoning": {"effort": "low"},
        "prompt_cache_options": {"mode": "explicit", "comparison_response_id": "resp_1"},
        "include": ["reasoning.encrypted_content"],
        "max_output_tokens": 2,
    },
    "/v1/messages": {
        "messages": [
            {
                "role": "user",
                "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}],
            },
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "t", "name": "look", "input": {"a": 1}}],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "x"}]},
                    {"type": "document", "source": {"type": "text", "data": "x", "media_type": "text/plain"}},
                ],
            },
        ],
        "tools": [
            ANTHROPIC_TOOL | {"description": "Look.", "cache_control": {"type": "ephemeral", "ttl": "1h"}}
        ],
        "tool_choice": {"type": "tool", "name": "look"},
        "thinking": {"type": "enabled", "budget_tokens": 9},
        "output_config": {"effort": "low"},
        "diagnostics": {"previous_message_id": "m"},
        "max_tokens": 2,
    },
    "/api/chat": {
        **OLLAMA,
        "messages": [
            *USER,
            {"role": "assistant", "content": "", "tool_calls": [CALL]},
            {"role": "tool", "content": "x"},
        ],
        "tools": [TOOL],
        "think": False,
    },
    "/completion": {"prompt": [{"prompt_string": "hi"}], "logit_bias": [["a", False]], "n_predict": 2},
    "/infill": {"input_prefix": "a", "input_suffix": "b", "input_extra": [{"text": "x", "filename": "y"}]},
    "/v1/embeddings": {"input": [{"content": [{"type": "text", "text": "hi"}]}], "dimensions": 2},
    "/v1/rerank": {"query": "a", "documents": [{"text": "b"}], "top_n": 1},
    "/v1/decisions": {
        "input": [{"role": "user", "content": [{"type": "input_json", "data": {"a": 1}}]}],
        "questions": [{"type": "choice", "instructions": "a", "choices": [{"value": "a"}, {"value": True}]}],
    },
    "/v1/systemone": {"state": {"a": 1}, "questions": {"q": {"type": "noul", "instructions": "a"}}},
    "/tokenize": {"content": "hi", "with_pieces": True},
    "/detokenize": {"tokens": [1, 2]},
    "/apply-template": {
        "messages": USER,
        "tools": [TOOL],
        "tool_choice": {"type": "function", "name": "look"},
    },
    "/v1/contexts/{id}/generate": {"messages": USER, "tools": [TOOL], "max_tokens": 2, "commit": False},
    "/v1/contexts/{id}/fork": {"n": 1, "label": "a"},
    "/v1/contexts/{id}/explain-miss": {"tokens": [1, 2]},
}
"""Bodies with values in most places that a client may fill."""


def places(value: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values in a body."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, each in inner:
        yield (*before, step)
        yield from places(each, (*before, step))


@pytest.mark.parametrize("route", WHOLE)
def test_no_value_at_any_place_of_a_body_is_a_failure_of_the_server(shared, context, route):
    body = WHOLE[route]
    for path in places(body):
        for value in VALUES:
            answer = ask(shared, context, route.rstrip("?"), put(body, path, value))
            assert answer.status_code < 500, (spelled(path), value, answer.text)
