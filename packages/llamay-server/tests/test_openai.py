"""OpenAI's chat, completions and models."""

from __future__ import annotations

import json
import statistics

import pytest
from fake_engine import FakeModel

USER = [{"role": "user", "content": "hi"}]
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
NO_ARGS = {"type": "function", "function": {"name": "now"}}


def chat(server, **body):
    return server.client.post(
        "/v1/chat/completions", json={"messages": USER, "max_tokens": 20, "seed": 5} | body
    )


def stream(server, path="/v1/chat/completions", **body):
    base = {"messages": USER} if "chat" in path else {"prompt": "hi"}
    with server.client.stream(
        "POST", path, json=base | {"max_tokens": 20, "seed": 5, "stream": True} | body
    ) as r:
        text = r.read().decode()
    assert r.status_code == 200, text
    frames = text.removesuffix("\n\n").split("\n\n")
    assert frames[-1] == "data: [DONE]"
    return [json.loads(f.removeprefix("data: ")) for f in frames[:-1]]


def call_text(name, **arguments):
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def test_oa01_oa02_oa05_the_object_has_all_its_keys(shared):
    out = chat(shared).json()
    assert out["id"].startswith("chatcmpl-")
    assert out["object"] == "chat.completion"
    assert isinstance(out["created"], int)
    assert out["model"] == "fake"
    (choice,) = out["choices"]
    assert choice["index"] == 0
    assert choice["message"]["role"] == "assistant"
    assert choice["message"]["refusal"] is None
    assert choice["logprobs"] is None
    usage = out["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["completion_tokens"] <= 20
    assert {"cached_tokens"} <= usage["prompt_tokens_details"].keys()
    assert usage["completion_tokens_details"] == {"reasoning_tokens": 0}


def test_oa03_finish_reasons_tell_the_truth(start):
    server = start(FakeModel(script=lambda p: "one two three"))
    reason = lambda **b: chat(server, **b).json()["choices"][0]["finish_reason"]  # noqa: E731
    assert reason() == "stop"
    assert reason(max_tokens=4) == "length"
    assert reason(stop="two") == "stop"
    server.model.script = lambda p: "I look. " + call_text("weather", city="Oslo")
    out = chat(server, tools=[TOOL], max_tokens=200).json()["choices"][0]
    assert out["finish_reason"] == "tool_calls"
    assert out["message"]["content"] == "I look."
    legacy = chat(server, functions=[TOOL["function"]], max_tokens=200).json()["choices"][0]
    assert legacy["finish_reason"] == "function_call"
    assert json.loads(legacy["message"]["function_call"]["arguments"]) == {"city": "Oslo"}


def test_oa03_the_end_of_the_context_is_length(start):
    server = start(FakeModel(context_length=64))
    out = chat(server, max_tokens=None, ignore_eos=True).json()
    assert out["choices"][0]["finish_reason"] == "length"
    assert out["usage"]["total_tokens"] == 64


def test_oa04_content_is_null_beside_calls_and_empty_when_nothing_was_said(start):
    server = start(FakeModel(script=lambda p: call_text("weather", city="Oslo")))
    assert chat(server, tools=[TOOL], max_tokens=200).json()["choices"][0]["message"]["content"] is None
    server.model.script = lambda p: ""
    assert chat(server).json()["choices"][0]["message"]["content"] == ""


def test_oa06_reasoning_goes_beside_the_content_and_is_read_back(start):
    server = start(FakeModel(thinks=True, script=lambda p: "<think>let me see</think>\n\nyes"))
    message = chat(server, max_tokens=100).json()["choices"][0]["message"]
    assert message["content"] == "yes"
    assert message["reasoning_content"] == message["reasoning"] == "let me see"
    chunks = stream(server, max_tokens=100)
    deltas = [c["choices"][0]["delta"] for c in chunks]
    assert "".join(d.get("reasoning_content", "") for d in deltas) == "let me see"
    assert "".join(d.get("content") or "" for d in deltas) == "yes"
    prompt = server.client.post(
        "/apply-template",
        json={"messages": [*USER, {"role": "assistant", "content": "yes", "reasoning": "why"}, *USER]},
    ).json()["prompt"]
    assert "<think>why</think>yes" in prompt
    assert chat(server, max_tokens=100).json()["usage"]["completion_tokens_details"]["reasoning_tokens"] > 0


def test_oa07_n_choices_differ_are_reproducible_and_read_the_prompt_once(start):
    server = start()
    long = [{"role": "user", "content": "word " * 100}]
    one = chat(server, messages=long, n=5, max_tokens=30, temperature=1).json()
    texts = [c["message"]["content"] for c in one["choices"]]
    assert [c["index"] for c in one["choices"]] == [0, 1, 2, 3, 4]
    assert len(set(texts)) > 1
    two = chat(server, messages=long, n=5, max_tokens=30, temperature=1).json()
    assert [c["message"]["content"] for c in two["choices"]] == texts
    # The first choice is what a request for one choice gives; the second that of the next seed.
    for i in (0, 1):
        alone = chat(server, messages=long, seed=5 + i, max_tokens=30, temperature=1).json()
        assert alone["choices"][0]["message"]["content"] == texts[i]
    assert one["usage"]["prompt_tokens"] < 600
    server.wait(lambda: server.model.contexts == 0)
    r = chat(server, n=10_000)
    assert r.status_code == 400
    assert r.json()["error"]["param"] == "n"


def test_oa08_an_unknown_model_is_404_unless_one_model_answers_all(start):
    r = chat(start(), model="gpt-9")
    assert (r.status_code, r.json()["error"]["code"]) == (404, "model_not_found")
    out = chat(start(single_model=True), model="gpt-9")
    assert out.json()["model"] == "fake"


def test_oa10_oa11_oa12_chunks_have_role_first_one_identity_and_the_reason_last(shared):
    chunks = stream(shared)
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": None}
    assert all("role" not in c["choices"][0]["delta"] for c in chunks[1:])
    assert len({(c["id"], c["created"], c["object"]) for c in chunks}) == 1
    assert [c["choices"][0]["finish_reason"] for c in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1]["choices"][0]["delta"] == {}
    assert chunks[-1]["choices"][0]["finish_reason"] in ("stop", "length")
    assert all("usage" not in c for c in chunks)


def test_oa13_usage_comes_only_when_asked_in_a_chunk_of_its_own(shared):
    chunks = stream(shared, stream_options={"include_usage": True})
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] > 0
    assert all(c["usage"] is None for c in chunks[:-1])
    assert all(c["choices"] for c in stream(shared, stream_options={"include_usage": False}))


def test_oa14_several_choices_interleave_each_with_its_role_and_reason(shared):
    chunks = stream(shared, n=3, stream_options={"include_usage": True})
    for i in range(3):
        own = [c["choices"][0] for c in chunks[:-1] if c["choices"][0]["index"] == i]
        assert own[0]["delta"]["role"] == "assistant"
        assert own[-1]["finish_reason"]
        assert sum("role" in c["delta"] for c in own) == 1
    assert sum(1 for c in chunks if c.get("usage")) == 1


def test_oa15_tool_deltas_name_the_call_once_and_concatenate_to_json(start):
    both = "Looking. " + call_text("weather", city="Oslo ☀") + "\n" + call_text("weather", city="Rome")
    server = start(FakeModel(script=lambda p: both))
    chunks = stream(server, tools=[TOOL], max_tokens=400)
    calls: dict[int, dict] = {}
    text_before = True
    for c in chunks:
        delta = c["choices"][0]["delta"]
        if delta.get("content"):
            assert not calls, "text comes before the calls"
        for part in delta.get("tool_calls", []):
            text_before = False
            if part["index"] not in calls:
                assert part["type"] == "function"
                assert part["id"]
                assert part["function"]["arguments"] == ""
                calls[part["index"]] = {"name": part["function"]["name"], "arguments": ""}
            else:
                assert "id" not in part
                assert "name" not in part["function"]
                calls[part["index"]]["arguments"] += part["function"]["arguments"]
    assert not text_before
    assert [json.loads(calls[i]["arguments"])["city"] for i in (0, 1)] == ["Oslo ☀", "Rome"]
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"


@pytest.mark.parametrize(
    "text", ['{"name": "now"}', '{"name": "now", "arguments": {}}', '{"name": "now", "arguments": null}']
)
def test_oa16_a_call_without_arguments_has_an_empty_object(start, text):
    server = start(FakeModel(script=lambda p: f"<tool_call>{text}</tool_call>"))
    out = chat(server, tools=[NO_ARGS], max_tokens=100).json()["choices"][0]["message"]
    assert out["tool_calls"][0]["function"]["arguments"] == "{}"


def test_oa17_oa18_logprobs_cover_the_text_in_both_forms(shared):
    out = chat(shared, logprobs=True, top_logprobs=3, max_tokens=30).json()["choices"][0]
    content = out["logprobs"]["content"]
    raw = b"".join(bytes(t["bytes"]) for t in content)
    assert raw.decode(errors="replace").rstrip("\ufffd") == out["message"]["content"].rstrip("\ufffd")
    for t in content:
        assert t["logprob"] <= 0
        assert len(t["top_logprobs"]) == 3
    chunks = stream(shared, logprobs=True, top_logprobs=3, max_tokens=30)
    parts = [t for c in chunks if c["choices"][0]["logprobs"] for t in c["choices"][0]["logprobs"]["content"]]
    assert parts == content
    assert (
        chat(shared, logprobs=True, top_logprobs=0).json()["choices"][0]["logprobs"]["content"][0][
            "top_logprobs"
        ]
        == []
    )
    for bad in (21, -1):
        assert chat(shared, logprobs=True, top_logprobs=bad).status_code == 400
    assert chat(shared, top_logprobs=2).status_code == 400


def test_oa20_limits_are_clamped_to_the_room_left_and_the_newer_name_wins(shared):
    assert chat(shared, max_tokens=32_000).status_code == 200
    assert chat(shared, max_tokens=30, max_completion_tokens=3).json()["usage"]["completion_tokens"] == 3


def test_oa21_zero_reads_the_prompt_only_and_minus_one_is_no_limit(shared):
    out = chat(shared, max_tokens=0).json()
    assert out["usage"]["completion_tokens"] == 0
    assert out["choices"][0]["finish_reason"] == "length"
    assert chat(shared, max_tokens=-1).status_code == 200
    assert chat(shared, max_tokens=-2).status_code == 400


def test_oa22_stop_strings_are_never_shown_even_in_part(start):
    server = start(FakeModel(script=lambda p: "ab STOOP cd STOP ef"))
    assert chat(server, stop="STOP").json()["choices"][0]["message"]["content"] == "ab STOOP cd "
    for stop in (["", "STOP"], ["nowhere", "STOP", "x", "y", "z"]):
        text = "".join(c["choices"][0]["delta"].get("content") or "" for c in stream(server, stop=stop))
        assert text == "ab STOOP cd "
    assert chat(server, stop=["x"] * 300).status_code == 400


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1),
        ("temperature", 2.1),
        ("top_p", 1.1),
        ("top_p", -1),
        ("presence_penalty", 2.5),
        ("frequency_penalty", -3),
        ("seed", 2**63),
        ("n", 0),
        ("n", -1),
        ("n", 2**31),
        ("n", 2**63),
        ("max_tokens", 2**63),
        ("max_tokens", 1e308),
        ("top_k", 2**40),
        ("top_logprobs", 2**31),
        ("repeat_penalty", 0),
        ("logit_bias", {"999999": 1}),
        ("logit_bias", {"5": 101}),
        ("logit_bias", {"-5": 1}),
        ("logit_bias", [[5]]),
        ("logit_bias", [[True, 1]]),
        ("logit_bias", {"5": True}),
        ("logit_bias", {"hello": 0}),
        ("stop", 5),
        ("messages", []),
        ("messages", "hi"),
        ("messages", [{"role": "tool", "content": "x"}]),
        ("messages", [{"role": "user"}]),
        ("messages", [{"role": "user", "content": "x", "tool_calls": [{"function": {"name": "f"}}]}]),
        ("messages", [*USER, {"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}]),
        ("messages", [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]),
        ("response_format", {"type": "xml"}),
        ("response_format", {}),
        ("response_format", {"type": "json_schema"}),
        ("response_format", {"type": "json_schema", "json_schema": {"name": "x"}}),
        ("response_format", {"type": "json_schema", "json_schema": {"schema": {"unsupported": 1}}}),
        ("tools", [{"type": "function"}]),
        ("tools", [{"type": "function", "function": {"name": ""}}]),
        ("tools", [{"type": "function", "function": {"name": "a b"}}]),
        ("tools", [{"type": "custom", "custom": {"name": "x"}}]),
        ("tools", [TOOL, TOOL]),
        ("tool_choice", "required"),
        ("tool_choice", {"type": "function", "function": {"name": "nothing"}}),
        ("tool_choice", "sometimes"),
        ("chat_template_kwargs", {"messages": []}),
        ("chat_template_kwargs", {"tokenize": True}),
        ("chat_template", "{{ 1 }}"),
        ("modalities", ["audio"]),
        ("echo", True),
        ("mirostat", 2),
        ("grammar", "no rules here"),
        ("lora", [{"id": 0, "scale": 1}]),
        ("reasoning_effort", "huge"),
    ],
)
def test_j14_oa23_to_oa33_bad_or_unsupported_values_are_400(shared, field, value):
    r = chat(shared, **{field: value})
    assert r.status_code == 400, r.text
    assert r.json()["error"]["type"] == "invalid_request_error"


def test_oa23_oa24_good_values_at_the_edge_are_accepted(shared):
    for fields in (
        {"temperature": 0, "top_p": 0},
        {"temperature": 2, "top_p": 1},
        {"seed": -(2**63)},
        {"seed": 2**63 - 1, "n": 2},
        {"logit_bias": {"97": 100, "98": -100}},
        {"logit_bias": [[97, False], ["word", -5]]},
        {"mirostat": 0, "typical_p": 1, "dry_multiplier": 0, "xtc_probability": 0, "min_tokens": 0},
        {"user": "u", "metadata": {"a": "b"}, "store": True, "service_tier": "auto", "verbosity": "low"},
        {"tools": [], "tool_choice": "auto"},
        {"audio": {"voice": "x"}, "modalities": ["text"], "prediction": {"type": "content", "content": "x"}},
    ):
        r = chat(shared, **fields)
        assert r.status_code == 200, (fields, r.text)


def test_oa25_structured_output_is_what_was_asked_and_told_when_cut(start):
    schema = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}}
    form = {"type": "json_schema", "json_schema": {"name": "p", "schema": schema, "strict": True}}
    server = start()
    out = chat(server, response_format=form, max_tokens=200).json()["choices"][0]
    assert json.loads(out["message"]["content"]) == {"name": "text", "age": 7}
    cut = chat(server, response_format=form, max_tokens=5).json()["choices"][0]
    assert cut["finish_reason"] == "length"
    json.loads(
        chat(server, response_format={"type": "json_object"}, max_tokens=200).json()["choices"][0]["message"][
            "content"
        ]
    )
    for fields in (
        {"grammar": 'root ::= "yes"'},
        {"regex": "yes"},
        {"guided_choice": ["yes", "no"]},
        {"structured_outputs": {"choice": ["yes"]}},
        {"json_schema": {"const": "yes"}},
    ):
        assert "yes" in chat(server, **fields, max_tokens=100).json()["choices"][0]["message"]["content"]
    r = chat(server, grammar='root ::= "yes"', regex="no")
    assert r.status_code == 400
    r = chat(server, response_format={"type": "json_schema", "json_schema": {"schema": {"unsupported": 1}}})
    assert "unsupported" in r.json()["error"]["message"]
    assert chat(server).status_code == 200  # the next request works


def test_a_free_form_goes_with_whatever_asks_for_json(start):
    from llamay_server.pipeline.constraints import output_constraint
    from llamay_server.pipeline.sampling import SamplingFields

    for fields, form in (
        (SamplingFields(structured_outputs={"json": {"const": 1}, "free_form": True}), None),
        (
            SamplingFields(structured_outputs={"free_form": True}),
            {"type": "json_schema", "json_schema": {"schema": {"const": 1}}},
        ),
    ):
        found = output_constraint(fields, form)
        assert found is not None
        assert (found.kind, found.value, found.free_form) == ("json_schema", {"const": 1}, True)
    assert output_constraint(SamplingFields(structured_outputs={"free_form": True})) is None
    r = chat(start(), structured_outputs={"free_form": "yes"})
    assert r.status_code == 400


def test_oa26_tool_choice_is_kept(start):
    server = start()
    for choice in ("required", {"type": "function", "function": {"name": "now"}}):
        out = chat(server, tools=[NO_ARGS, TOOL], tool_choice=choice, max_tokens=200).json()["choices"][0]
        assert out["finish_reason"] == "tool_calls"
        assert out["message"]["tool_calls"][0]["function"]["name"] == "now"
    allowed = {
        "type": "allowed_tools",
        "allowed_tools": {
            "mode": "required",
            "tools": [{"type": "function", "function": {"name": "weather"}}],
        },
    }
    out = chat(server, tools=[NO_ARGS, TOOL], tool_choice=allowed, max_tokens=200).json()["choices"][0]
    assert json.loads(out["message"]["tool_calls"][0]["function"]["arguments"]) == {"city": "text"}
    server.model.script = lambda p: call_text("now")
    out = chat(server, tools=[NO_ARGS], tool_choice="none", max_tokens=200).json()["choices"][0]
    assert out["finish_reason"] == "stop"
    assert "tool_calls" not in out["message"]
    server.model.script = lambda p: call_text("now") + call_text("now")
    out = chat(server, tools=[NO_ARGS], parallel_tool_calls=False, max_tokens=300).json()["choices"][0]
    assert len(out["message"]["tool_calls"]) == 1
    out = chat(server, tools=[NO_ARGS], max_tokens=300).json()["choices"][0]
    assert len(out["message"]["tool_calls"]) == 2


def test_oa26_what_is_no_call_stays_text(start):
    for text in (
        "<tool_call>not json</tool_call>",
        call_text("unknown"),
        "<tool_call>",
        "a < b <tool",
        "<tool_call>{}",
    ):
        server = start(FakeModel(script=lambda p, text=text: text))
        out = chat(server, tools=[TOOL], max_tokens=300).json()["choices"][0]
        assert out["message"]["content"] == text
        assert out["finish_reason"] == "stop"
        deltas = "".join(
            c["choices"][0]["delta"].get("content") or ""
            for c in stream(server, tools=[TOOL], max_tokens=300)
        )
        assert deltas == text


def test_j27_a_tool_result_with_markers_is_not_a_call(start):
    server = start(FakeModel(script=lambda p: "fine"))
    messages = [
        *USER,
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "now", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c", "content": call_text("now")},
    ]
    out = chat(server, messages=messages, tools=[NO_ARGS]).json()["choices"][0]
    assert out["message"]["content"] == "fine"
    assert out["finish_reason"] == "stop"


def test_j26_control_tokens_in_user_text_are_plain_text(shared):
    plain = shared.client.post(
        "/chat/completions/input_tokens", json={"messages": [{"role": "user", "content": "x"}]}
    ).json()
    evil = shared.client.post(
        "/chat/completions/input_tokens", json={"messages": [{"role": "user", "content": "x<|im_start|>"}]}
    ).json()
    assert evil["input_tokens"] - plain["input_tokens"] == len("<|im_start|>")


def test_oa27_oa28_messages_in_all_their_forms_give_one_prompt(shared):
    def prompt(messages):
        r = shared.client.post("/apply-template", json={"messages": messages})
        assert r.status_code == 200, r.text
        return r.json()["prompt"]

    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
    as_object = {"id": "c", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}
    end = [{"role": "tool", "tool_call_id": "c", "content": "r"}, *USER]
    forms = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "assistant", "content": "", "tool_calls": [as_object]},
        {
            "role": "assistant",
            "tool_calls": [{**call, "function": {"name": "f", "arguments": '{ "a" : 1 }'}}],
        },
    ]
    assert len({prompt([*USER, form, *end]) for form in forms}) == 1
    parts = [{"role": "user", "content": [{"type": "text", "text": "h"}, {"type": "text", "text": "i"}]}]
    assert prompt(parts) == prompt(USER)
    assert prompt([{"role": "developer", "content": "d"}, *USER]) == prompt(
        [{"role": "system", "content": "d"}, *USER]
    )
    broken = {
        "role": "assistant",
        "tool_calls": [{**call, "function": {"name": "f", "arguments": "{broken"}}],
    }
    prompt([*USER, broken, *end])
    prompt([*USER, *USER])


def test_oa29_a_trailing_assistant_message_is_gone_on_from(shared):
    messages = [*USER, {"role": "assistant", "content": "alpha be"}]
    prompt = shared.client.post("/apply-template", json={"messages": messages}).json()["prompt"]
    assert prompt.endswith("<|im_start|>assistant\nalpha be")
    assert chat(shared, messages=messages).status_code == 200
    r = chat(shared, messages=messages, continue_final_message=True, add_generation_prompt=True)
    assert r.status_code == 400


def test_oa40_prompts_in_all_their_forms_in_order(shared):
    def texts(prompt, **more):
        r = shared.client.post(
            "/v1/completions", json={"prompt": prompt, "max_tokens": 6, "seed": 1, "temperature": 0} | more
        )
        assert r.status_code == 200, r.text
        assert [c["index"] for c in r.json()["choices"]] == list(range(len(r.json()["choices"])))
        return [c["text"] for c in r.json()["choices"]]

    (one,) = texts("abc")
    ids = [256, *b"abc"]
    assert texts(ids) == [one]
    assert texts([ids]) == [one]
    assert texts(["abc", "xyz", ids]) == [one, *texts("xyz"), one]
    assert len(texts(["abc", "xyz"], n=3)) == 6
    for bad in ([], "", [[]], [300], [-1], ["a", 5], [[2**40]], 7, None):
        r = shared.client.post("/v1/completions", json={"prompt": bad, "max_tokens": 2})
        assert r.status_code in (200, 400)
        if bad != "":
            assert r.status_code == 400, bad


def test_oa41_legacy_logprobs_and_echo(shared):
    body = {"prompt": "abc", "max_tokens": 8, "seed": 1, "logprobs": 2}
    out = shared.client.post("/v1/completions", json=body).json()
    assert out["id"].startswith("cmpl-")
    assert out["object"] == "text_completion"
    scores = out["choices"][0]["logprobs"]
    assert (
        len(scores["tokens"])
        == len(scores["token_logprobs"])
        == len(scores["top_logprobs"])
        == len(scores["text_offset"])
    )
    zero = shared.client.post("/v1/completions", json=body | {"logprobs": 0}).json()["choices"][0]["logprobs"]
    assert zero["tokens"] == scores["tokens"]
    echo = shared.client.post(
        "/v1/completions", json={"prompt": "abc", "max_tokens": 4, "seed": 1, "echo": True}
    ).json()
    assert echo["choices"][0]["text"].startswith("<s>abc") or echo["choices"][0]["text"].startswith("abc")


def test_echo_with_logprobs_scores_the_prompt_too(shared):
    body = {"prompt": ["abc", "xy"], "max_tokens": 0, "echo": True, "logprobs": 2}
    for choice, text in zip(
        shared.client.post("/v1/completions", json=body).json()["choices"], ["abc", "xy"], strict=True
    ):
        scores = choice["logprobs"]
        assert choice["text"].endswith(text)
        assert scores["token_logprobs"] == [None, *(-0.5 * i for i in range(1, len(text) + 1))]
        assert scores["top_logprobs"][0] is None
        assert all(len(top) >= 2 for top in scores["top_logprobs"][1:])
        assert "".join(scores["tokens"]) == choice["text"]
        assert scores["text_offset"][0] == 0
        assert len(scores["text_offset"]) == len(text) + 1


def test_echo_with_logprobs_is_the_same_streamed(shared):
    body = {"prompt": "abc", "max_tokens": 5, "seed": 1, "echo": True, "logprobs": 1}
    whole = shared.client.post("/v1/completions", json=body).json()["choices"][0]
    with shared.client.stream("POST", "/v1/completions", json=body | {"stream": True}) as r:
        frames = [json.loads(f[6:])["choices"][0] for f in r.read().decode().split("\n\n")[:-2]]
    assert "".join(f["text"] for f in frames) == whole["text"]
    for key in ("tokens", "token_logprobs", "text_offset"):
        assert [x for f in frames if f["logprobs"] for x in f["logprobs"][key]] == whole["logprobs"][key]


def test_oa42_unsupported_fields_are_named(shared):
    for field, more in {
        "suffix": {"suffix": "x"},
        "best_of": {"best_of": 3, "stream": True},
        "n": {"n": 129},
    }.items():
        r = shared.client.post("/v1/completions", json={"prompt": "x"} | more)
        assert r.status_code == 400
        assert r.json()["error"]["param"] == field
    for more in ({"n": 3, "best_of": 2}, {"best_of": 129}):
        r = shared.client.post("/v1/completions", json={"prompt": "x"} | more)
        assert (r.status_code, r.json()["error"]["param"]) == (400, "best_of")


def test_oa42_the_best_of_many_are_the_likeliest_of_each_prompt(shared):
    def complete(**more):
        body = {"prompt": ["abc", "xyz"], "max_tokens": 12, "seed": 3, "logprobs": 0} | more
        r = shared.client.post("/v1/completions", json=body)
        assert r.status_code == 200, r.text
        return r.json()

    every = complete(n=6)
    best = complete(n=2, best_of=6)

    def mean(choice):
        return statistics.fmean(choice["logprobs"]["token_logprobs"])

    expected = [
        choice["text"]
        for k in (0, 6)
        for choice in sorted(every["choices"][k : k + 6], key=mean, reverse=True)[:2]
    ]
    assert [choice["text"] for choice in best["choices"]] == expected
    assert [choice["index"] for choice in best["choices"]] == [0, 1, 2, 3]
    assert best["usage"] == every["usage"]  # all that was computed counts
    quiet = complete(n=2, best_of=6, logprobs=None)
    assert [choice["text"] for choice in quiet["choices"]] == expected
    assert quiet["choices"][0]["logprobs"] is None


def test_oa43_a_stop_string_is_written_where_it_is_asked_for(shared):
    body = {"prompt": "abc", "max_tokens": 30, "temperature": 0}
    text = shared.client.post("/v1/completions", json=body).json()["choices"][0]["text"]
    body |= {"stop": [text[3:6]], "include_stop_str_in_output": True}

    choice = shared.client.post("/v1/completions", json=body).json()["choices"][0]

    assert choice["text"] == text[: text.index(text[3:6]) + 3]
    assert choice["finish_reason"] == "stop"
    chunks = stream(shared, "/v1/completions", **body)
    assert "".join(c["choices"][0]["text"] for c in chunks) == choice["text"]
    chat_body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 30, "temperature": 0}
    said = shared.client.post("/v1/chat/completions", json=chat_body).json()["choices"][0]["message"][
        "content"
    ]
    chat_body |= {"stop": said[3:6], "include_stop_str_in_output": True}
    cut = shared.client.post("/v1/chat/completions", json=chat_body).json()["choices"][0]["message"][
        "content"
    ]
    assert cut == said[: said.index(said[3:6]) + 3]


def test_oa43_a_completion_stream_equals_the_whole(shared):
    body = {"prompt": ["abc", "xyz"], "n": 2, "max_tokens": 12}
    whole = shared.client.post("/v1/completions", json=body | {"seed": 5}).json()
    chunks = stream(shared, "/v1/completions", **body, stream_options={"include_usage": True})
    for i in range(4):
        own = [c["choices"][0] for c in chunks[:-1] if c["choices"][0]["index"] == i]
        assert "".join(c["text"] for c in own) == whole["choices"][i]["text"]
        assert own[-1]["finish_reason"] == whole["choices"][i]["finish_reason"]
    used = chunks[-1]["usage"]
    assert used["completion_tokens"] == whole["usage"]["completion_tokens"]


def test_oa60_oa61_oa62_models_satisfy_both_clients(start):
    server = start(FakeModel(), FakeModel("hf.co/a/b:Q4_K_M"))
    out = server.client.get("/v1/models").json()
    assert out["object"] == "list"
    assert [m["id"] for m in out["data"]] == ["fake", "hf.co/a/b:Q4_K_M"]
    for m in out["data"]:
        assert {"id", "object", "created", "owned_by", "type", "display_name", "created_at"} <= m.keys()
    assert out["has_more"] is False
    for name in ("hf.co/a/b:Q4_K_M", "hf.co%2Fa%2Fb%3AQ4_K_M"):
        assert server.client.get(f"/v1/models/{name}").json()["id"] == "hf.co/a/b:Q4_K_M"
    assert server.client.get("/v1/models/none").status_code == 404
    assert server.client.get("/v1/models/none", headers={"anthropic-version": "x"}).json()["type"] == "error"


def test_a_model_tells_what_it_was_trained_for_beside_the_size_of_contexts_here(start):
    client = start(FakeModel(context_length=300, trained_length=9000)).client
    (model,) = client.get("/v1/models").json()["data"]
    assert (model["meta"]["n_ctx"], model["meta"]["n_ctx_train"]) == (300, 9000)
    assert (model["max_model_len"], model["max_input_tokens"]) == (300, 300)
    assert client.get("/props").json()["default_generation_settings"]["n_ctx"] == 300
    (loaded,) = client.get("/api/ps").json()["models"]
    assert (loaded["context_length"], loaded["details"]["context_length"]) == (300, 9000)
    (listed,) = client.get("/api/tags").json()["models"]
    assert listed["details"]["context_length"] == 9000
    assert (
        client.post("/api/show", json={"model": "fake"}).json()["model_info"]["fake.context_length"] == 9000
    )


def test_oa70_lc14_an_overflow_says_so_in_the_words_that_clients_look_for(start):
    server = start(FakeModel(context_length=50))
    r = chat(server, messages=[{"role": "user", "content": "x" * 100}])
    assert r.status_code == 400
    error = r.json()["error"]
    assert error["code"] == "context_length_exceeded"
    assert "maximum context length is 50 tokens" in error["message"]
    assert "exceeds the available context size" in error["message"]
    assert (error["n_ctx"], error["n_prompt_tokens"] > 100) == (50, True)
    # At the client's wish the oldest turns go, and that is said.
    long = [
        {"role": "user", "content": "y" * 60},
        {"role": "assistant", "content": "z"},
        {"role": "user", "content": "x"},
    ]
    r = chat(server, messages=long, truncate=True, max_tokens=2)
    assert r.status_code == 200
    assert int(r.headers["x-llamay-truncated"]) > 0


def test_the_official_client_reads_answers_streams_tools_and_schemas(start):
    openai = pytest.importorskip("openai")
    pydantic = pytest.importorskip("pydantic")
    server = start(FakeModel(script=lambda p: None))
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="x", max_retries=0)

    class Person(pydantic.BaseModel):
        name: str
        age: int

    # OA-19
    with client.chat.completions.stream(
        model="fake", messages=USER, response_format=Person, max_tokens=200
    ) as events:
        kinds = {e.type for e in events}
        assert events.get_final_completion().choices[0].message.parsed == Person(name="text", age=7)
    assert {"content.delta", "content.done"} <= kinds
    with pytest.raises(openai.LengthFinishReasonError):
        client.chat.completions.parse(model="fake", messages=USER, response_format=Person, max_tokens=3)
    server.model.script = lambda p: call_text("weather", city="Oslo") + call_text("weather", city="Rome")
    strict = {**TOOL, "function": {**TOOL["function"], "strict": True}}
    strict["function"]["parameters"] |= {"required": ["city"], "additionalProperties": False}
    with client.chat.completions.stream(
        model="fake", messages=USER, tools=[strict], max_tokens=400
    ) as events:
        kinds = {e.type for e in events}
        final = events.get_final_completion()
    assert "tool_calls.function.arguments.done" in kinds
    assert [c.function.parsed_arguments for c in final.choices[0].message.tool_calls] == [
        {"city": "Oslo"},
        {"city": "Rome"},
    ]


def test_lc15_a_stream_tells_how_far_the_prompt_is_read(start):
    server = start()
    long = "word " * 60
    plain = stream(server, messages=[{"role": "user", "content": long}])
    paths = {
        "/v1/chat/completions": {"messages": [{"role": "user", "content": "other " + long}]},
        "/v1/completions": {"prompt": "third " + long},
        "/completion": {"prompt": "fourth " + long, "n_predict": 5},
    }
    for path, body in paths.items():
        asked = body | {"stream": True, "return_progress": True, "timings_per_token": True, "seed": 5}
        with server.client.stream("POST", path, json=asked) as r:
            frames = [f.removeprefix("data: ") for f in r.read().decode().split("\n\n")]
        chunks = [json.loads(f) for f in frames if f.startswith("{")]
        told = [c["prompt_progress"] for c in chunks if "prompt_progress" in c]
        assert told[0]["processed"] == told[0]["cache"]
        assert told[-1]["processed"] == told[-1]["total"] >= len(long)
        steps = [t["processed"] for t in told]
        assert steps == sorted(set(steps)), "no step is told twice"
        assert len({(t["total"], t["cache"]) for t in told}) == 1
        assert all("prompt_progress" not in c for c in chunks[-3:])
    # The text is the same, and nothing is left behind.
    same = stream(server, messages=[{"role": "user", "content": long}], return_progress=True)
    words = ["".join(c["choices"][0]["delta"].get("content") or "" for c in cs) for cs in (plain, same)]
    assert words[0] == words[1]
    two = stream(server, messages=[{"role": "user", "content": long}], return_progress=True, n=2)
    assert {c["choices"][0]["index"] for c in two} == {0, 1}
    server.wait(lambda: server.model.contexts == 0)
    assert chat(server, return_progress=True).status_code == 200


def test_lc15_t06_leaving_while_progress_is_told_frees_the_prompt(start):
    from .test_transport import leave

    server = start()
    server.model.prefill_delay = 0.05
    long = [{"role": "user", "content": "word " * 200}]
    body = {"messages": long, "stream": True, "return_progress": True}
    leave(server, "/v1/chat/completions", body, when=lambda: server.app.services.admission.waiting == 1)
    server.wait(lambda: server.model.contexts == 0 and server.app.services.admission.waiting == 0)
    server.wait(lambda: server.metric("llamay_cancelled_total", phase="prefill") == 1)


def test_oa31_prompt_logprobs_as_vllm_tells_them(shared):
    body = {"prompt": ["abc", "xy"], "max_tokens": 1, "prompt_logprobs": 2}
    for choice, text in zip(
        shared.client.post("/v1/completions", json=body).json()["choices"], ("abc", "xy"), strict=True
    ):
        told = choice["prompt_logprobs"]
        assert told[0] is None
        for token, entry in zip(text.encode(), told[1:], strict=True):
            assert entry[str(token)]["decoded_token"] == chr(token)
            assert sum(e["rank"] is not None for e in entry.values()) == 2
        assert choice["logprobs"] is None
        assert not choice["text"].startswith(text)
    out = chat(shared, prompt_logprobs=0).json()
    assert len(out["prompt_logprobs"]) == out["usage"]["prompt_tokens"]
    assert chat(shared, prompt_logprobs=1, stream=True).status_code == 400
    assert chat(shared, prompt_logprobs=21).status_code == 400


def test_oa31_times_stand_in_every_chunk_when_asked(shared):
    first, *rest = stream(shared, timings_per_token=True)
    assert "timings" not in first
    assert all(c["timings"]["prompt_n"] + c["timings"]["cache_n"] > 0 for c in rest)
    made = [c["timings"]["predicted_n"] for c in rest]
    assert made == sorted(made)
    assert 0 < made[-1] <= 20


def test_oa63_oa70_lc14_an_overflow_has_the_code_that_agents_read_and_llama_cpps_type_on_its_paths(start):
    server = start(FakeModel(context_length=50))
    long = {"messages": [{"role": "user", "content": "x" * 100}], "prompt": "x" * 100}
    for path, kind in (
        ("/v1/chat/completions", "invalid_request_error"),
        ("/v1/completions", "invalid_request_error"),
        ("/chat/completions", "exceed_context_size_error"),
        ("/completion", "exceed_context_size_error"),
    ):
        for streamed in (False, True):
            r = server.client.post(path, json=long | {"stream": streamed})
            error = r.json()["error"]
            assert (r.status_code, error["type"], error["code"]) == (400, kind, "context_length_exceeded")
            assert error["n_prompt_tokens"] > error["n_ctx"] == 50
            assert "maximum context length is 50 tokens" in error["message"]
            assert "exceeds the available context size" in error["message"]


def test_oa71_codes_are_texts_or_null(start):
    server = start(api_keys=("k",))
    auth = {"x-api-key": "k"}
    answers = [
        server.client.post("/v1/chat/completions", json={}),
        server.client.post("/v1/chat/completions", json={}, headers=auth),
        server.client.post("/v1/chat/completions", json={"messages": USER, "model": "x"}, headers=auth),
        server.client.get("/v1/nothing", headers=auth),
        server.client.put("/v1/models", headers=auth),
    ]
    for r in answers:
        code = r.json()["error"]["code"]
        assert code is None or isinstance(code, str)


def test_ol20_a_made_models_profile_holds_on_the_other_routes_too(start):
    from llamay_server.store import Profile

    server = start(
        FakeModel(script=lambda p: "pirate" if "You are a pirate." in p and "aye" in p else "plain STOP on")
    )
    entry = server.app.services.models.entries["fake"]
    entry.profile = Profile(
        system="You are a pirate.",
        parameters={"num_predict": 3, "stop": ["STOP"], "temperature": 0, "seed": -1},
        messages=({"role": "assistant", "content": "aye"},),
    )
    c = server.client
    answers = {
        "chat": c.post("/v1/chat/completions", json={"messages": USER}).json()["choices"][0]["message"][
            "content"
        ],
        "messages": c.post("/v1/messages", json={"messages": USER}).json()["content"][0]["text"],
        "responses": c.post("/v1/responses", json={"input": "hi"}).json()["output"][0]["content"][0]["text"],
    }
    assert set(answers.values()) == {"pir"}, answers
    # What the request says wins.
    own = [{"role": "system", "content": "Be plain."}, *USER]
    out = c.post("/v1/chat/completions", json={"messages": own, "max_tokens": 50}).json()["choices"][0]
    assert out["message"]["content"] == "plain "
    assert (
        "on"
        in chat(server, messages=own, stop="nowhere", max_tokens=50).json()["choices"][0]["message"][
            "content"
        ]
    )
    # Counting and the template see the same prompt.
    used = c.post("/v1/chat/completions", json={"messages": USER}).json()["usage"]["prompt_tokens"]
    assert c.post("/v1/chat/completions/input_tokens", json={"messages": USER}).json()["input_tokens"] == used
    assert c.post("/v1/messages/count_tokens", json={"messages": USER}).json()["input_tokens"] == used
    assert c.post("/v1/responses/input_tokens", json={"input": "hi"}).json()["input_tokens"] == used
    prompt = c.post("/apply-template", json={"messages": USER}).json()["prompt"]
    assert prompt.index("You are a pirate.") < prompt.index("aye") < prompt.index("hi")
    assert c.post("/completion", json={"prompt": "x"}).json()["tokens_predicted"] == 3
    assert c.post("/v1/completions", json={"prompt": "x"}).json()["usage"]["completion_tokens"] == 3
