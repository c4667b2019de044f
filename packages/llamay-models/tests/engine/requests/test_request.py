"""Requests refuse what they cannot honour, and take numpy's values like Python's own."""

import math
import re

import numpy as np
import pytest

from llamay_models import Request, Sampling
from llamay_models.errors import ConstraintError, ContextError, PromptError

GREEDY = Sampling(temperature=0)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"priority": "hi"}, "priority must be a whole number from -2147483648 to 2147483648, not 'hi'"),
        ({"priority": None}, "priority must be a whole number"),
        ({"priority": math.nan}, "priority must be a whole number"),
        ({"priority": True}, "priority must be a whole number"),
        ({"priority": 1 << 40}, "priority must be a whole number"),
        ({"tenant": None}, "tenant must be a string, not None"),
        ({"tenant": 5}, "tenant must be a string, not 5"),
        ({"tenant": ["a"]}, "tenant must be a string"),
        ({"shared": -1}, "shared must be a whole number from 0 on, not -1"),
        ({"shared": "1"}, "shared must be a whole number"),
        ({"max_tokens": True}, "max_tokens (None for no limit) must be a whole number from 0 on, not True"),
        ({"random_stream": -1}, "random_stream must be a whole number from 0 to 4294967295, not -1"),
        ({"random_stream": 1 << 32}, "random_stream must be"),
        ({"timeout": math.nan}, "timeout must be a number from 0 on, not nan"),
        ({"timeout": "1s"}, "timeout must be a number from 0 on, not '1s'"),
        ({"timeout": -1}, "timeout must be a number from 0 on, not -1"),
        ({"ignore_eos": "no"}, "ignore_eos must be True or False, not 'no'"),
        ({"reuse": 1}, "reuse must be True or False, not 1"),
        ({"speculate": None}, "speculate must be True or False, not None"),
        ({"sampling": 0.0}, "sampling must be a Sampling or None, not 0.0"),
        ({"sampling": {}}, "sampling must be a Sampling or None, not {}"),
        ({"constraint": "a+"}, "constraint must be a token constraint"),
        ({"special": "ab"}, "special must be a collection of token ids, not 'ab'"),
        ({"special": 5}, "special must be a collection of token ids, not 5"),
    ],
)
def test_a_wrong_value_is_named(wrong, said):
    with pytest.raises(PromptError, match=re.escape(said)):
        Request([5], **wrong)


def test_numpy_values_are_taken(make_model):
    model = make_model()
    plain = model.engine.submit(Request([5, 6], GREEDY, 4, priority=2, random_stream=3, ignore_eos=True))
    sampling = Sampling(
        temperature=np.float32(0),
        top_k=np.int64(40),
        seed=np.uint64(3),
        logit_bias={np.int32(7): np.float16(0)},
    )
    assert type(sampling.top_k) is type(sampling.seed) is int
    assert type(sampling.temperature) is float
    request = Request(
        np.array([5, 6], np.int32),
        sampling,
        np.int16(4),
        priority=np.int8(2),
        random_stream=np.int64(3),
        timeout=np.float32(600),
        ignore_eos=np.bool_(True),
    )
    assert model.engine.submit(request).tokens == plain.tokens


@pytest.mark.parametrize("sampling", [0.0, 0, {}, "greedy"])
def test_generate_takes_a_sampling_and_nothing_else(make_model, sampling):
    context = make_model().context([9, 9, 12])
    with pytest.raises(PromptError, match="sampling must be a Sampling or None"):
        context.generate(sampling, max_tokens=1)
    assert len(context.generate(GREEDY, max_tokens=1, ignore_eos=True).tokens) == 1, "it is not in use"


def test_the_tenant_of_a_context_is_its_own(make_model):
    model = make_model(prefix_cache=1 << 20)
    context = model.context([9, 9, 12], tenant="a")
    with pytest.raises(
        PromptError, match="the context has the tenant 'a', so the request cannot have the tenant 'b'"
    ):
        model.engine.submit(Request(context, GREEDY, 1, tenant="b"))
    for tenant in ("", "a"):
        assert model.engine.submit(Request(context, GREEDY, 1, tenant=tenant, ignore_eos=True)).tokens


@pytest.mark.parametrize("tenant", [5, b"a", ["a"]])
def test_a_wrong_tenant_is_named_wherever_one_is_given(make_model, tenant):
    model = make_model("qwen3")
    for call in (model.context, model.embed, model.score):
        with pytest.raises(PromptError, match="tenant must be a string"):
            call([9, 9, 12] if call != model.embed else [[9, 9, 12]], tenant=tenant)
    with pytest.raises(PromptError, match="tenant must be a string"):
        model.context([9, 9], tenant=None)
    assert model.score([9, 9, 12], tenant=None).logprobs is not None


@pytest.mark.parametrize(
    ("prompt", "said"),
    [
        ([[1, 2], [3, 4]], "not an array of shape (2, 2); give one of its rows"),
        (np.zeros((1, 3), np.int64), "not an array of shape (1, 3)"),
        ([[1, 2], [3]], "a prompt is text or a sequence of token ids: "),
        ([True, False], "a prompt is text or a sequence of token ids; True is none"),
        (["1"], "a prompt is text or a sequence of token ids; '1' is none"),
        ([1, 2.5], "; 2.5 is none"),
        ([1, 1 << 70], "; one of its numbers is beyond 64 bits"),
        (5, "a prompt is text or a sequence of token ids, not 5"),
    ],
)
def test_prompts_of_another_shape(make_model, prompt, said):
    with pytest.raises(PromptError, match=re.escape(said)):
        make_model().context(prompt)


@pytest.mark.parametrize("tokens", ["abc", None, 5, [[1]], [1.0], [61], [1 << 70]])
def test_only_tokens_are_decoded(make_model, tokens):
    with pytest.raises(
        PromptError, match=r"decode takes a sequence of token ids|outside the vocabulary of 61"
    ):
        make_model().decode(tokens)
    assert make_model().decode(np.array([9, -1, 10], np.int16)) == make_model().decode([9, 10])


@pytest.mark.parametrize("text", [None, 5, ["a"], b"a"])
def test_only_text_is_encoded(make_model, text):
    with pytest.raises(PromptError, match="text must be a string, not"):
        make_model().encode(text)


def test_texts_that_are_none_are_named(make_model):
    model = make_model("qwen3")
    for texts in (None, 3, (x for x in "ab"), b"a"):
        with pytest.raises(PromptError, match="embed takes a text, a list of texts or token ids, not "):
            model.embed(texts)
    with pytest.raises(PromptError, match="query must be a text, not NoneType"):
        model.rerank(None, ["a"])
    with pytest.raises(PromptError, match="document 2 must be a text, not dict"):
        model.rerank("q", ["a", {"text": "a"}])
    with pytest.raises(PromptError, match=r"^document 2: the prompt has 300 tokens"):
        model.rerank("q", ["a", "a" * 300])


def test_no_stop_string_may_be_said_by_none(make_model):
    context = make_model().context([9, 9, 12])
    assert len(context.generate(GREEDY, max_tokens=3, stop=None, ignore_eos=True).tokens) == 3


@pytest.mark.parametrize("n", [-1, 1.5, "2", True])
def test_wrong_numbers_of_forks_and_tokens(make_model, n):
    context = make_model().context([9, 9, 12])
    with pytest.raises(ContextError, match="the number of forks must be a whole number from 0 on"):
        context.fork(n)
    if n != -1:
        with pytest.raises(ContextError, match="the number of tokens to keep must be a whole number"):
            context.truncate(n)
    generation = context.generate(GREEDY, max_tokens=50, ignore_eos=True)
    with pytest.raises(ContextError, match="the number of forks must be a whole number from 0 on"):
        generation.fork(n)


class Foreign:
    """A constraint of a vocabulary whose tokens are given."""

    def __init__(self, tokens, special=()):
        self.vocabulary, self.accepted = Foreign.Tokens(tokens), []

    class Tokens:
        def __init__(self, tokens):
            self._tokens, self.asked = tokens, 0

        def __len__(self):
            return len(self._tokens)

        def bytes_of(self, token):
            self.asked += 1
            return self._tokens[token]

    def __len__(self):
        return len(self.accepted)

    def fill_mask(self, mask):
        mask[:] = 0
        mask[0] = 1 if len(self.accepted) == 3 else 1 << 5

    def accept(self, token):
        self.accepted.append(token)


def test_a_constraint_of_another_vocabulary_is_refused(make_model, tokenizer):
    model = make_model()
    tokens = [tokenizer.token_bytes(t) for t in range(61)]
    context = model.context([9, 9, 12])
    for wrong, said in (
        (tokens[:-1], "compiled for a vocabulary of 60 tokens, but this model has 61"),
        ([*tokens[:20], b"?", *tokens[21:]], r"token 20 is b'\?' there, and b'p' in this model"),
    ):
        with pytest.raises(ConstraintError, match=said):
            context.generate(GREEDY, constraint=Foreign(wrong))
    control = Foreign([b"</s>", *tokens[1:]])  # the name of a control token is no text
    assert context.generate(GREEDY, constraint=control).text == "aaa"
    asked = control.vocabulary.asked
    again = Foreign([])
    again.vocabulary = control.vocabulary
    assert context.generate(GREEDY, constraint=again).text == "aaa"
    assert control.vocabulary.asked == asked, "a vocabulary is compared once"


def test_a_constraint_that_has_ended_is_refused(make_model, tokenizer):
    context = make_model().context([9, 9, 12])
    constraint = Foreign([tokenizer.token_bytes(t) for t in range(61)])
    assert context.generate(GREEDY, constraint=constraint, max_tokens=2).text == "aa"
    assert context.generate(GREEDY, constraint=constraint).text == "a", "one that goes on may go on"
    with pytest.raises(
        ConstraintError, match="the constraint has ended already, after 3 tokens of another text"
    ):
        _ = context.generate(GREEDY, constraint=constraint).text
