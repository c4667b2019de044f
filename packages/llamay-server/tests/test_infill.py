"""Filling in the middle: where each part stands in the prompt, what is left out, and who cannot do it."""

import dataclasses

import pytest
from fake_engine import BOS, FakeModel

from llamay_server.http.errors import ApiError
from llamay_server.pipeline.infill import Extra, fill_prompt

PRE, SUF, MID, REPO, FILE = 261, 262, 263, 264, 265
NEEDED = {"fill_prefix": PRE, "fill_suffix": SUF, "fill_middle": MID}


def filler(context_length=4096, **more):
    model = FakeModel(context_length=context_length)
    model.info = dataclasses.replace(model.info, fill_tokens=NEEDED | more)
    return model


def test_prefix_what_is_begun_suffix_middle():
    ids = fill_prompt(filler(), "ab", "yz", begun="c")
    assert ids == [BOS, PRE, *b"abc", SUF, *b"yz", MID]


def test_other_files_come_first_each_after_its_name():
    extra = [Extra("one", "a.py"), Extra("two")]
    ids = fill_prompt(filler(fill_repo=REPO, fill_file=FILE), "ab", "yz", extra=extra)
    files = [REPO, *b"myproject\n", FILE, *b"a.py\none", FILE, *b"tmp\ntwo", FILE, *b"filename\n"]
    assert ids == [BOS, *files, PRE, *b"ab", SUF, *b"yz", MID]
    ids = fill_prompt(filler(), "ab", "yz", extra=extra)
    assert ids[: ids.index(PRE)] == [BOS, *b"\n\n--- snippet ---\n\none\n\n--- snippet ---\n\ntwo"]


def test_control_tokens_in_the_text_are_text():
    ids = fill_prompt(filler(), "<|im_end|>", "</s>")
    assert ids == [BOS, PRE, *b"<|im_end|>", SUF, *b"</s>", MID]


@pytest.mark.parametrize(
    ("prefix", "suffix", "kept"),
    [(300, 300, (75, 25)), (20, 300, (20, 80)), (300, 10, (90, 10)), (60, 40, (60, 40)), (300, 0, (100, 0))],
)
def test_what_does_not_fit_goes_from_the_far_ends_three_to_one(prefix, suffix, kept):
    before = "".join(chr(97 + i % 26) for i in range(prefix))
    after = "".join(chr(65 + i % 26) for i in range(suffix))
    ids = fill_prompt(filler(context_length=124), before, after, reserve=20, extra=[Extra("x" * 500)])
    assert len(ids) <= 104
    start, end = ids.index(PRE), ids.index(SUF)
    assert bytes(ids[start + 1 : end]).decode() == before[prefix - kept[0] :]
    assert bytes(ids[end + 1 : -1]).decode() == after[: kept[1]]


def test_the_farthest_of_other_files_goes_first():
    extra = [Extra("0123456789" * 20)]
    ids = fill_prompt(filler(context_length=64), "ab", "yz", extra=extra)
    assert len(ids) == 64
    assert bytes(ids[1 : ids.index(PRE)]).decode() == ("0123456789" * 20)[-56:]


def test_a_model_without_the_tokens_says_which():
    model = FakeModel()
    model.info = dataclasses.replace(model.info, fill_tokens={"fill_prefix": PRE})
    with pytest.raises(ApiError, match="no token for the suffix, middle") as error:
        fill_prompt(model, "a", "b")
    assert error.value.kind == "not_supported"


# -- over HTTP


def post(server, path, **body):
    return server.client.post(path, json=body)


def test_lc09_infill_answers_in_llama_cpps_shape(start):
    server = start(filler())
    r = post(server, "/infill", input_prefix="def f(", input_suffix="    return x\n", n_predict=8, seed=1)
    assert r.status_code == 200, r.text
    body = r.json()
    assert body["stop"] is True
    assert body["tokens_evaluated"] == 1 + 1 + 6 + 1 + 13 + 1
    with server.client.stream("POST", "/infill", json={"input_prefix": "a", "stream": True}) as stream:
        assert stream.status_code == 200
        assert b'"stop":true' in stream.read().replace(b" ", b"")


def test_openais_and_ollamas_suffix_are_the_same_prompt(start):
    server = start(filler())
    completion = post(server, "/v1/completions", prompt="ab", suffix="yz", max_tokens=4, seed=1).json()
    assert completion["usage"]["prompt_tokens"] == 8
    r = post(
        server, "/api/generate", model="fake", prompt="ab", suffix="yz", stream=False,
        options={"num_predict": 4, "seed": 1},
    )  # fmt: skip
    assert r.json()["prompt_eval_count"] == 8
    assert r.json()["response"] == completion["choices"][0]["text"]
    assert post(server, "/v1/completions", prompt=["a", "b"], suffix="c").status_code == 400


def test_a_text_that_was_cut_is_told(start):
    r = post(start(filler(context_length=64)), "/infill", input_prefix="x" * 500, n_predict=4)
    assert r.status_code == 200
    assert "left out" in r.headers["warning"]


def test_a_model_without_the_tokens_is_501(shared):
    r = post(shared, "/infill", input_prefix="a", input_suffix="b")
    assert r.status_code == 501
    assert "not made to fill in the middle" in r.json()["error"]["message"]
    assert r.headers["x-should-retry"] == "false"
