"""Drafts save steps and change nothing."""

import gc

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llamay_models.engine import Request, Sampling
from llamay_models.engine.decoding.drafter import Drafter
from llamay_models.engine.decoding.prompt_lookup import PromptLookup
from llamay_models.engine.scheduling.prefill_budget import PrefillBudget

GREEDY = Sampling(temperature=0)


def prompt_of(n, seed=0):
    return [5 + (i * 7 + seed * 13 + i * i) % 50 for i in range(n)]


class Cheap(PrefillBudget):
    """A machine on which a row more costs little, as where memory is the limit."""

    def row_cost_share(self, writing):
        return 0.1


class TestLookup:
    def test_says_what_followed_last_time(self):
        assert PromptLookup([1, 2, 3, 4, 9, 1, 2, 3, 5, 7, 8, 2, 3]).propose(3) == [5, 7, 8]

    def test_prefers_the_longer_match(self):
        assert PromptLookup([1, 2, 3, 4, 9, 3, 4, 8, 1, 2, 3, 4]).propose(1) == [9]

    def test_goes_round_where_the_text_does(self):
        assert PromptLookup([1, 2, 3, 1, 2, 3, 1, 2]).propose(7) == [3, 1, 2, 3, 1, 2, 3]

    def test_knows_nothing_of_what_is_new(self):
        assert PromptLookup([1, 2, 3, 4]).propose(5) == []
        assert PromptLookup([]).propose(5) == []

    @given(st.lists(st.integers(0, 3), max_size=60), st.integers(1, 8))
    def test_is_what_a_search_finds(self, tokens, most):
        def search():
            for n in (4, 2):
                for at in range(len(tokens) - 1, n - 1, -1):
                    if len(tokens) >= n and tokens[at - n : at] == tokens[-n:]:
                        whole = list(tokens)
                        for i in range(most):
                            whole.append(whole[at + i])
                        return whole[len(tokens) :]
            return []

        assert PromptLookup(tokens).propose(most) == search()


class TestDrafter:
    def test_drafts_are_longer_the_more_often_they_are_right_and_the_less_a_row_costs(self):
        good, bad = Drafter(list), Drafter(list)
        for _ in range(50):
            good.learn(4, 4)
            bad.learn(4, 0)
        assert good.length(0.5) > 5
        assert bad.length(0.5) == 0
        assert good.length(0.1) >= good.length(0.5) >= good.length(0.9)

    def test_that_was_wrong_is_tried_again_now_and_then(self):
        drafter = Drafter(list)
        for _ in range(50):
            drafter.learn(1, 0)
        tries = 0
        for token in range(240):
            drafter.push(token)
            tries += drafter.length(0.5) > 0
        assert 5 <= tries <= 10

    def test_that_costs_as_much_as_it_saves_is_off(self):
        assert Drafter(list).length(1.0) == 0


def test_a_text_that_repeats_takes_fewer_steps(make_model):
    model, plain = make_model(), make_model(speculation=False)
    model.engine._loop._prefill_budget = Cheap(64)
    for m in (model, plain):
        request = Request(prompt_of(10), GREEDY, 100, constraint=Silent(prompt_of(8) * 12))
        assert list(m.engine.submit(request).tokens) == prompt_of(8) * 12
    stats = model.engine.stats
    assert stats.accepted_tokens > 50
    assert stats.steps < plain.engine.stats.steps - 40
    assert stats.generated_tokens == plain.engine.stats.generated_tokens == 96


def test_it_can_be_refused(make_model):
    model = make_model()
    model.engine.submit(Request(prompt_of(8) * 6, GREEDY, 60, ignore_eos=True, speculate=False)).wait()
    assert model.engine.stats.drafted_tokens == 0


@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_a_draft_model_drafts_for_another(make_model, name):
    draft = make_model(name)  # the same weights: it is always right
    model, plain = make_model(name, draft=draft), make_model(name, speculation=False)
    model.engine._loop._prefill_budget = Cheap(64)
    for i in range(3):
        request = Request(prompt_of(30, i), Sampling(seed=i, temperature=1.0), 60, ignore_eos=True)
        assert model.engine.submit(request).tokens == plain.engine.submit(request).tokens
    stats = model.engine.stats
    assert stats.accepted_tokens > 0.8 * stats.drafted_tokens > 0
    assert stats.steps < plain.engine.stats.steps * 0.8
    assert draft.pool.used_bytes == 0


def test_a_draft_model_that_fails_is_done_without(make_model):
    draft = make_model("llama", seed=5)
    model, plain = make_model("llama", draft=draft), make_model("llama", speculation=False)
    draft.close()
    request = Request(prompt_of(30), GREEDY, 30, ignore_eos=True)
    assert model.engine.submit(request).tokens == plain.engine.submit(request).tokens


class Scripted:
    """A constraint that allows one text, and says so."""

    def __init__(self, script):
        self.script, self.at = script, 0

    def fill_mask(self, mask):
        mask[:] = 0
        token = self.script[self.at] if self.at < len(self.script) else 0
        mask[token // 32] |= 1 << token % 32

    def accept(self, token):
        assert token == self.script[self.at]
        self.at += 1

    def forced_tokens(self, limit):
        return self.script[self.at : self.at + limit]


def test_forced_tokens_are_computed_in_one_step(make_model):
    model = make_model(speculation=False)
    script = prompt_of(40, 3)
    generation = model.engine.submit(
        Request(prompt_of(10), Sampling(seed=1), 60, constraint=Scripted(script))
    )
    assert list(generation.tokens) == script
    assert generation.finish_reason == "stop"
    assert model.engine.stats.steps <= 3


class Silent(Scripted):
    """Allows one text, and does not say so."""

    forced_tokens = None


class Wrong(Scripted):
    def forced_tokens(self, limit):
        return [1] * limit


def test_a_constraint_that_forces_what_it_forbids_costs_time_and_nothing_else(make_model):
    generation = make_model().engine.submit(
        Request(prompt_of(10), Sampling(seed=1), 60, constraint=Wrong(prompt_of(20, 3)))
    )
    assert list(generation.tokens) == prompt_of(20, 3)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_token_and_no_score_depends_on_it(make_model, data):
    """Any mix of samplings over texts that repeat, with a draft model that is right, wrong or not there."""
    name, keys = data.draw(st.sampled_from([("llama", {}), ("gemma3", {"attention.sliding_window": 20})]))
    right = data.draw(st.sampled_from([None, 0, 1]))
    draft = None if right is None else make_model(name, seed=right, **keys)
    model = make_model(name, draft=draft, prefix_cache=1 << 20, **keys)
    plain = make_model(name, speculation=False, **keys)
    requests = []
    for i in range(data.draw(st.integers(1, 6))):
        mirostat = data.draw(st.sampled_from([0, 0, 2]))
        sampling = Sampling(
            seed=i,
            temperature=data.draw(st.sampled_from([0.0, 0.5, 1.5])),
            repeat_penalty=data.draw(st.sampled_from([1.0, 1.2])),
            repeat_last_n=data.draw(st.sampled_from([-1, 4])),
            mirostat=mirostat,
            logprobs=1,
        )
        prompt = prompt_of(data.draw(st.integers(1, 9)), i) * data.draw(st.integers(1, 6))
        stop = data.draw(st.lists(st.text("abc", min_size=1, max_size=2), max_size=1))
        requests.append(Request(prompt, sampling, data.draw(st.integers(1, 50)), stop=stop))
    running = model.engine.call(lambda: [model.engine.submit(r) for r in requests])
    for request, generation in zip(requests, running, strict=True):
        expected = plain.engine.submit(request)
        assert (generation.text, generation.scores) == (expected.text, expected.scores)
        assert generation.finish_reason == expected.finish_reason
    model.pool.audit()
    del running
    gc.collect()
    for m in (model, plain, draft):
        if m is not None:
            m.close()


def test_a_context_after_speculation_is_one_without(make_model):
    model, plain = make_model(), make_model(speculation=False)
    contexts = [m.context(prompt_of(8) * 5) for m in (model, plain)]
    for c in contexts:
        for _ in range(3):
            c.generate(GREEDY, max_tokens=17, ignore_eos=True).wait()
    a, b = contexts
    assert list(a.tokens) == list(b.tokens)
    assert (a.logits == b.logits).all()
