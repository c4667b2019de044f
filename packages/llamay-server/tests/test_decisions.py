"""Questions answered by probabilities, over one prefix that is read once."""

from __future__ import annotations

import pytest

PREDICATE = {"type": "predicate", "name": "cold", "instructions": "It is cold."}
CHOICE = {
    "type": "choice",
    "instructions": "Which season?",
    "choices": [{"value": "winter", "description": "snow"}, {"value": "summer"}, {"value": True}],
}
SCORE = {
    "type": "score",
    "instructions": [
        {"type": "input_text", "text": "How cold?"},
        {"type": "input_json", "data": {"unit": "C"}},
    ],
    "levels": [{"label": "warm"}, {"label": "cool", "description": "a coat"}, {"label": "icy"}],
}


def decide(server, *questions, **body):
    return server.client.post("/v1/decisions", json={"input": "Snow falls.", "questions": questions} | body)


def test_m01_each_question_has_an_answer_of_its_kind_in_order(shared):
    r = decide(shared, PREDICATE, CHOICE, SCORE, model="fake")
    assert r.status_code == 200, r.text
    out = r.json()
    assert out["model"] == "fake"
    predicate, choice, score = out["answers"]
    assert (predicate["type"], predicate["name"]) == ("predicate", "cold")
    assert 0 < predicate["probability"] < 1
    assert choice["name"] is None
    assert [p["value"] for p in choice["probabilities"]] == ["winter", "summer", True]
    best = max(choice["probabilities"], key=lambda p: p["probability"])
    assert (choice["choice"], choice["confidence"]) == (best["value"], best["probability"])
    assert [(p["label"], p["value"]) for p in score["probabilities"]] == [
        ("warm", 0),
        ("cool", 1),
        ("icy", 2),
    ]
    assert score["score"] == pytest.approx(sum(p["value"] * p["probability"] for p in score["probabilities"]))


def test_m02_named_questions_have_named_answers(shared):
    questions = {
        "cold": {"type": "noul", "instructions": "It is cold.", "criteria": {"true": "below zero"}},
        "season": {
            "type": "choice",
            "instructions": {"ask": "which"},
            "criteria": {"winter": "snow", "summer": None},
        },
        "level": {"type": "score", "instructions": "How cold?", "criteria": ["warm", "cool", "icy"]},
    }
    body = {"model": "fake", "state": {"weather": ["snow"]}, "questions": questions, "keep_alive": "5m"}
    r = shared.client.post("/v1/systemone", json=body)
    assert r.status_code == 200, r.text
    out = r.json()
    assert out["answers"].keys() == questions.keys()
    assert 0 < out["answers"]["cold"]["noul"] < 1
    assert out["answers"]["season"]["choice"] in ("winter", "summer")
    assert out["answers"]["level"]["legend"] == {"0": "warm", "1": "cool", "2": "icy"}
    assert 0 <= out["answers"]["level"]["score"] <= 2
    assert out["usage"]["input_tokens"] > 0
    r = shared.client.post("/v1/systemone", json={**body, "questions": {"q": {"type": "noul"}}})
    assert (r.status_code, isinstance(r.json()["error"], str)) == (400, True)  # as Ollama's clients read it


def test_m03_probabilities_sum_to_one_and_the_order_of_options_changes_no_set(shared):
    turned = {**CHOICE, "choices": CHOICE["choices"][::-1]}
    one, two = (decide(shared, q).json()["answers"][0] for q in (CHOICE, turned))
    for answer in (one, two):
        assert sum(p["probability"] for p in answer["probabilities"]) == pytest.approx(1)
    assert {str(p["value"]) for p in one["probabilities"]} == {str(p["value"]) for p in two["probabilities"]}


def test_m03_the_input_is_read_once_for_all_questions(start):
    server = start()
    long = "Snow falls. " * 60
    single = [decide(server, q, input=long).json() for q in (PREDICATE, CHOICE, SCORE)]
    many = decide(server, PREDICATE, CHOICE, SCORE, input=long).json()
    assert (
        many["usage"]["input_tokens"] < sum(s["usage"]["input_tokens"] for s in single) - 2 * len(long) + 300
    )
    # Together or alone, a question has the same answer.
    assert many["answers"] == [s["answers"][0] for s in single]
    assert many["usage"]["input_tokens_details"]["cached_tokens"] >= len(long)
    server.wait(lambda: server.model.contexts == 0)


def test_m01_conversations_with_calls_are_input_too(shared):
    items = [
        {"role": "developer", "content": "Judge."},
        {
            "role": "user",
            "content": [{"type": "input_text", "text": "hi"}, {"type": "input_json", "data": [{}]}],
        },
        {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "snow"},
        {"type": "custom_tool_call", "call_id": "d", "name": "run", "input": "ls"},
        {"type": "custom_tool_call_output", "call_id": "d", "output": [{"type": "input_text", "text": "x"}]},
    ]
    assert decide(shared, PREDICATE, input=items).status_code == 200


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"questions": []}, "questions"),
        ({"questions": [PREDICATE] * 401}, "questions"),
        ({"questions": [{**CHOICE, "choices": CHOICE["choices"][:1]}]}, "choices"),
        ({"questions": [{**CHOICE, "choices": [{"value": "a"}, {"value": "a"}]}]}, "questions[0].choices"),
        ({"questions": [{**CHOICE, "choices": [{"value": str(i)} for i in range(100)]}]}, "vocabulary"),
        ({"questions": [{"type": "essay", "instructions": "x"}]}, "type"),
        ({"questions": [{**PREDICATE, "instructions": [{"type": "input_image"}]}]}, "text only"),
        ({"input": []}, "input"),
        ({"input": "x" * 5000}, "maximum context length"),
    ],
)
def test_m01_what_cannot_be_judged_is_a_400_that_says_where(shared, body, words):
    r = decide(shared, PREDICATE, **body)
    assert r.status_code == 400, r.text
    assert words in r.json()["error"]["message"]


def test_t06_m01_leaving_frees_what_a_decision_read(start):
    from .test_transport import leave

    server = start()
    server.model.prefill_delay = 0.05
    body = {"input": "word " * 400, "questions": [PREDICATE, CHOICE]}
    leave(server, "/v1/decisions", body, when=lambda: server.app.services.admission.running == 1)
    server.wait(lambda: server.model.contexts == 0 and server.app.services.admission.running == 0)
    assert server.metric("llamay_cancelled_total", phase="prefill") == 1


def test_m01_m02_the_official_clients_read_them(shared):
    openai, ollama = pytest.importorskip("openai"), pytest.importorskip("ollama")
    if not hasattr(openai.OpenAI, "decisions"):
        pytest.skip("this client knows no decisions")
    with openai.OpenAI(base_url=f"{shared.url}/v1", api_key="x", max_retries=0) as client:
        out = client.decisions.create(model="fake", input="Snow.", questions=[PREDICATE, CHOICE, SCORE])
        assert [a.type for a in out.answers] == ["predicate", "choice", "score"]
    if hasattr(ollama.Client, "systemone"):
        client = ollama.Client(host=shared.url)
        noul = {"q": {"type": "noul", "instructions": "cold?"}}
        assert client.systemone("fake", "snow", noul).answers["q"].type == "noul"
        client._client.close()
