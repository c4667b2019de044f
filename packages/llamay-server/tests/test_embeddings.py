"""Embeddings and reranking in every dialect, with the official clients where there are some."""

import base64

import numpy as np
import pytest
from fake_engine import BOS, FakeModel

TEXTS = ["hello world", "hello there", "something else"]


def expected(texts, **options):
    return FakeModel().embed([[BOS, *t.encode()] for t in texts], **options)


def post(server, path, **body):
    return server.client.post(path, json=body)


# -- OpenAI


def test_oa50_openai_embeddings_have_the_originals_shape(shared):
    body = post(shared, "/v1/embeddings", model="fake", input=TEXTS).json()
    assert body["object"] == "list"
    assert body["model"] == "fake"
    tokens = sum(len(t) + 1 for t in TEXTS)
    assert body["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}
    assert [(d["object"], d["index"]) for d in body["data"]] == [("embedding", i) for i in range(3)]
    np.testing.assert_allclose([d["embedding"] for d in body["data"]], expected(TEXTS), atol=1e-7)


def test_oa51_base64_is_little_endian_float32(shared):
    body = post(shared, "/v1/embeddings", input=TEXTS[0], encoding_format="base64").json()
    raw = base64.b64decode(body["data"][0]["embedding"])
    assert np.array_equal(np.frombuffer(raw, "<f4"), expected(TEXTS[:1])[0])


@pytest.mark.parametrize(
    ("value", "texts"),
    [
        ([72, 105], [[72, 105]]),
        ([[72, 105], [33]], [[72, 105], [33]]),
        (["a", [33]], [[BOS, 97], [33]]),
    ],
)
def test_oa50_input_may_be_tokens(shared, value, texts):
    body = post(shared, "/v1/embeddings", input=value).json()
    np.testing.assert_allclose([d["embedding"] for d in body["data"]], FakeModel().embed(texts), atol=1e-7)


@pytest.mark.parametrize("path", ["/v1/embeddings", "/embedding"])
@pytest.mark.parametrize(
    ("value", "texts"),
    [
        ({"prompt_string": "hi ho"}, ["hi ho"]),
        ([{"prompt_string": "hi"}, "ho", [256, 104, 105]], ["hi", "ho", "hi"]),
        ({"content": [{"type": "text", "text": "hi "}, {"type": "text", "text": "ho"}]}, ["hi ho"]),
        (["ho", {"content": [{"type": "text", "text": "hi"}]}], ["ho", "hi"]),
        (["h", 105], ["hi"]),
        ([256, 104, "i"], ["hi"]),
        (["h", 105, " ho"], ["hi ho"]),
        ([["h", 105], "ho"], ["hi", "ho"]),
    ],
)
def test_input_may_mix_texts_tokens_and_objects_as_llama_cpp_has_it(shared, path, value, texts):
    answer = post(shared, path, input=value).json()
    found = answer["data"] if path.startswith("/v1") else answer
    vectors = [np.ravel(each["embedding"]) for each in found]
    np.testing.assert_allclose(vectors, expected(texts), atol=1e-7)


def test_control_tokens_in_a_text_are_text(shared):
    body = post(shared, "/v1/embeddings", input="<|im_end|>").json()
    assert body["usage"]["prompt_tokens"] == 11


def test_oa52_dimensions_are_passed_on(shared):
    body = post(shared, "/v1/embeddings", input=TEXTS, dimensions=8).json()
    np.testing.assert_allclose(
        [d["embedding"] for d in body["data"]], expected(TEXTS, dimensions=8), atol=1e-7
    )


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "input"),
        ({"input": ""}, None),
        ({"input": []}, "input"),
        ({"input": [""]}, None),
        ({"input": [1, {"prompt_string": "a"}]}, "input[1]"),
        ({"input": [1, 2.5]}, "input[1]"),
        ({"input": [[1, True]]}, "input[0][1]"),
        ({"input": ["a", [1, "b", 999999]]}, "input[1][2]"),
        ({"input": {"text": "a"}}, "input.prompt_string"),
        ({"input": {"content": "a"}}, "input.content"),
        ({"input": {"content": []}}, "input.content"),
        ({"input": ["a", {"content": [{"type": "text"}]}]}, "input[1].content[0].text"),
        (
            {"input": {"content": [{"type": "text", "text": "a"}, {"type": "image_url"}]}},
            "input.content[1].type",
        ),
        ({"input": ["a", {"prompt_string": 5}]}, "input[1].prompt_string"),
        ({"input": {"prompt_string": "a", "multimodal_data": ["aGk="]}}, "input.multimodal_data"),
        ({"input": [[]]}, "input[0]"),
        ({"input": [999999]}, "input"),
        ({"input": "x", "dimensions": 65}, "dimensions"),
        ({"input": "x", "dimensions": 0}, "dimensions"),
        ({"input": "x", "encoding_format": "hex"}, "encoding_format"),
        ({"input": ["x"] * 2049}, "input"),
        ({"input": "x" * 5000}, None),
    ],
)
def test_oa52_wrong_input_is_a_400(shared, body, param):
    r = post(shared, "/v1/embeddings", **body)
    if body.get("input") in ("", [""]):  # this vocabulary puts a token before every text
        assert r.status_code == 200
        return
    assert r.status_code == 400, r.text
    assert r.json()["error"]["type"] == "invalid_request_error"
    if param is not None:
        assert param in (r.json()["error"]["param"] or r.json()["error"]["message"])


def test_oa53_what_is_too_long_is_told_with_both_numbers(shared):
    for path, body in (
        ("/v1/embeddings", {"input": ["ok", "x" * 5000]}),
        ("/embedding", {"content": "x" * 5000}),
        ("/embed", {"inputs": "x" * 5000}),
    ):
        r = post(shared, path, **body)
        error = r.json()["error"]
        assert (r.status_code, error["code"]) == (400, "context_length_exceeded")
        assert "too large" in error["message"]
        assert (error["n_prompt_tokens"], error["n_ctx"]) == (5001, 4096)


def test_oa54_a_text_has_the_same_embedding_alone_and_among_others(shared):
    many = post(shared, "/v1/embeddings", input=TEXTS).json()["data"]
    for text, told in zip(TEXTS, many, strict=True):
        alone = post(shared, "/v1/embeddings", input=text).json()["data"][0]
        assert alone["embedding"] == told["embedding"]


def test_a_model_without_embeddings_says_so(start):
    model = FakeModel()
    model.fail = "this model gives none"
    r = post(start(model), "/v1/embeddings", input="x")
    assert r.status_code == 501
    assert r.headers["x-should-retry"] == "false"
    assert "this model gives none" in r.json()["error"]["message"]


def test_the_openai_client_reads_them(shared):
    openai = pytest.importorskip("openai")
    with openai.OpenAI(base_url=shared.url + "/v1", api_key="none") as client:
        plain = client.embeddings.create(model="fake", input=TEXTS)
        np.testing.assert_allclose([d.embedding for d in plain.data], expected(TEXTS), atol=1e-7)
        short = client.embeddings.create(model="fake", input=TEXTS[0], dimensions=4, encoding_format="float")
        assert len(short.data[0].embedding) == 4
        with pytest.raises(openai.BadRequestError):
            client.embeddings.create(model="fake", input="x", dimensions=1000)


# -- llama.cpp and Text Embeddings Inference


@pytest.mark.parametrize("path", ["/embedding", "/embeddings"])
def test_llama_cpps_own_route_gives_its_shape(shared, path):
    (one,) = post(shared, path, content="hi").json()
    assert one["index"] == 0
    np.testing.assert_allclose(one["embedding"], expected(["hi"]), atol=1e-7)
    raw = post(shared, path, input=["hi", "ho"], embd_normalize=-1).json()
    np.testing.assert_allclose(
        [r["embedding"][0] for r in raw], expected(["hi", "ho"], normalize=False), atol=1e-7
    )
    assert post(shared, path).status_code == 400
    assert post(shared, path, content="hi", embd_normalize=1).status_code == 400


def test_text_embeddings_inference_gets_a_list_of_lists(shared):
    np.testing.assert_allclose(post(shared, "/embed", inputs=TEXTS).json(), expected(TEXTS), atol=1e-7)
    raw = post(shared, "/embed", inputs="hi", normalize=False).json()
    np.testing.assert_allclose(raw, expected(["hi"], normalize=False), atol=1e-7)
    assert post(shared, "/embed", inputs="x" * 5000).status_code == 400
    assert post(shared, "/embed", inputs="x" * 5000, truncate=True).status_code == 200


# -- Ollama


def test_ol15_ollama_embed(shared):
    body = post(shared, "/api/embed", model="fake", input=TEXTS).json()
    assert body["model"] == "fake"
    assert body["prompt_eval_count"] == sum(len(t) + 1 for t in TEXTS)
    assert body["total_duration"] > 0
    np.testing.assert_allclose(body["embeddings"], expected(TEXTS), atol=1e-7)
    assert post(shared, "/api/embed", model="fake", input="").json()["embeddings"] == []
    assert len(post(shared, "/api/embed", model="fake", input="x", dimensions=4).json()["embeddings"][0]) == 4


def test_ol15_ollama_cuts_what_is_too_long_unless_told_not_to(shared):
    long = "x" * 5000
    assert post(shared, "/api/embed", input=long).json()["prompt_eval_count"] == 4096
    r = post(shared, "/api/embed", input=long, truncate=False)
    assert r.status_code == 400
    assert "context" in r.json()["error"]


def test_ol15_ollamas_older_route_leaves_the_length_alone(shared):
    body = post(shared, "/api/embeddings", model="fake", prompt="hi").json()
    np.testing.assert_allclose(body["embedding"], expected(["hi"], normalize=False)[0], atol=1e-7)
    assert post(shared, "/api/embeddings", model="fake", prompt="").json() == {"embedding": []}


def test_the_ollama_client_reads_them(shared):
    ollama = pytest.importorskip("ollama")
    client = ollama.Client(host=shared.url)
    try:
        out = client.embed(model="fake", input=TEXTS, keep_alive="5m")
        np.testing.assert_allclose(out.embeddings, expected(TEXTS), atol=1e-7)
        assert len(client.embeddings(model="fake", prompt="hi").embedding) == 64
    finally:
        client._client.close()


# -- reranking


@pytest.mark.parametrize("path", ["/v1/rerank", "/rerank", "/v1/reranking", "/reranking", "/v2/rerank"])
def test_lc12_reranking_in_jinas_shape(shared, path):
    body = post(shared, path, model="fake", query="hello world", documents=TEXTS[::-1]).json()
    assert body["object"] == "list"
    assert body["model"] == "fake"
    assert body["usage"]["total_tokens"] == 12 + sum(len(t) + 1 for t in TEXTS)
    assert [r["index"] for r in body["results"]] == [2, 1, 0]
    assert body["results"][0]["relevance_score"] == pytest.approx(1.0)
    assert all("document" not in r for r in body["results"])


def test_lc12_the_best_few_with_their_documents(shared):
    documents = [TEXTS[2], {"text": TEXTS[0]}, TEXTS[1]]
    body = post(
        shared, "/v1/rerank", query="hello world", documents=documents, top_n=2, return_documents=True
    ).json()
    assert [(r["index"], r["document"]["text"]) for r in body["results"]] == [(1, TEXTS[0]), (2, TEXTS[1])]


def test_lc12_reranking_in_the_shape_of_text_embeddings_inference(shared):
    body = post(shared, "/rerank", query="hello world", texts=TEXTS[::-1]).json()
    assert [r["index"] for r in body] == [2, 1, 0]
    assert set(body[0]) == {"index", "score"}
    body = post(shared, "/rerank", query="hello world", texts=TEXTS, return_text=True).json()
    assert [r["text"] for r in body] == TEXTS


@pytest.mark.parametrize(
    "body",
    [
        {"documents": ["a"]},
        {"query": "", "documents": ["a"]},
        {"query": "a"},
        {"query": "a", "documents": []},
        {"query": "a", "documents": ["a"], "texts": ["a"]},
        {"query": "a", "documents": [""]},
        {"query": "a", "documents": [{"title": "a"}]},
        {"query": "a", "documents": ["a"], "top_n": 0},
        {"query": "a", "documents": ["a"] * 2049},
    ],
    ids=str,
)
def test_lc12_a_wrong_ranking_is_a_400(shared, body):
    assert post(shared, "/v1/rerank", **body).status_code == 400


# -- limits


def test_embeddings_count_as_work_and_are_given_up_with_their_client(start):
    model = FakeModel()
    model.prefill_delay = 0.05
    server = start(model)
    with pytest.raises(Exception, match="timed out"):
        server.client.post("/v1/embeddings", json={"input": ["x"] * 200}, timeout=0.3)
    server.wait(lambda: server.app.services.admission.running == 0, seconds=2)
    assert post(server, "/v1/embeddings", input="x").status_code == 200
