"""The engine gives every request what it would get alone, and one request's trouble stays its own."""

import asyncio
import gc
import re
import threading
import weakref

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llamay_models.engine import Request, Sampling
from llamay_models.errors import (
    ConstraintError,
    ContextError,
    EngineClosedError,
    LlamayError,
    OutOfMemoryError,
    PromptError,
    PromptTooLongError,
    SamplingError,
)

GREEDY = Sampling(temperature=0)


def alone(model, prompt, n, sampling=GREEDY, **more):
    return model.engine.submit(Request(prompt, sampling, n, **more)).tokens


def test_greedy_text_is_what_the_reference_says(make_model, small_model):
    small, model = small_model("qwen3"), make_model("qwen3")
    tokens = [7, 9, 30, 21]
    for token in alone(model, tokens, 12, ignore_eos=True):
        logits = small.reference(tokens)[-1]
        logits[0] = -np.inf
        best, second = np.sort(logits)[::-1][:2]
        if best - second < 1e-3:
            break
        assert token == int(logits.argmax())
        tokens.append(token)


def test_many_requests_get_what_each_gets_alone(make_model):
    model = make_model("gemma3", max_sequences=5)
    prompts = [[5 + (7 * i + j * j) % 50 for j in range(1 + 9 * i)] for i in range(9)]
    samplings = [Sampling(seed=i, temperature=0.9) for i in range(9)]
    expected = [alone(model, p, 20, s) for p, s in zip(prompts, samplings, strict=True)]
    running = [model.engine.submit(Request(p, s, 20)) for p, s in zip(prompts, samplings, strict=True)]
    assert [g.tokens for g in running] == expected


def test_pieces_join_to_the_text_and_hold_every_token(make_model, tokenizer):
    generation = make_model().engine.submit(Request([9, 9, 12], Sampling(seed=4, temperature=2.0), 40))
    pieces = list(generation)
    tokens = [t for p in pieces for t in p.tokens]
    assert "".join(p.text for p in pieces) == tokenizer.decode(tokens)
    assert generation.text == tokenizer.decode(tokens)
    assert generation.tokens == tuple(tokens)
    assert generation.usage.completion_tokens == len(tokens)
    assert generation.usage.prompt_tokens == 3


def test_a_stop_string_ends_the_text_before_it(make_model):
    model = make_model()
    text = model.engine.submit(Request([9, 9, 12], GREEDY, 30, ignore_eos=True)).text
    stop = text[7:10]
    generation = model.engine.submit(Request([9, 9, 12], GREEDY, 30, stop=(stop,), ignore_eos=True))
    assert generation.text == text[: text.index(stop)]
    assert generation.finish_reason == "stop"
    assert generation.stop_sequence == stop
    # One string is one stop string, not one for each of its characters.
    assert (
        model.engine.submit(Request([9, 9, 12], GREEDY, 30, stop=stop, ignore_eos=True)).text
        == generation.text
    )


def test_an_end_token_ends_the_text(make_model):
    model = make_model()
    generation = model.engine.submit(Request([9, 9], Sampling(temperature=0, logit_bias={0: 1000.0}), 30))
    assert generation.text == ""
    assert generation.tokens == (0,)
    assert generation.finish_reason == "stop"


def test_ignoring_the_end_goes_on(make_model):
    generation = make_model().engine.submit(
        Request([9, 9], Sampling(temperature=0, logit_bias={0: 1000.0}), 30, ignore_eos=True)
    )
    assert len(generation.tokens) == 30
    assert generation.finish_reason == "length"


def test_no_tokens_may_be_asked_for(make_model):
    generation = make_model().engine.submit(Request([9, 9], GREEDY, 0))
    assert generation.tokens == ()
    assert generation.finish_reason == "length"


def test_a_full_context_ends_the_text(make_model):
    model = make_model(ctx_size=40)
    generation = model.engine.submit(Request([9] * 30, GREEDY, ignore_eos=True))
    assert len(generation.tokens) == 10
    assert generation.finish_reason == "length"


class TestPrompts:
    def test_too_long(self, make_model):
        with pytest.raises(
            PromptTooLongError, match="the prompt has 41 tokens but the context holds 40"
        ) as error:
            make_model(ctx_size=40).engine.submit(Request([9] * 41))
        assert (error.value.tokens, error.value.limit) == (41, 40)

    def test_empty(self, make_model):
        with pytest.raises(PromptError, match="the prompt is empty"):
            make_model().engine.submit(Request([]))

    @pytest.mark.parametrize("token", [-1, 61, 1 << 40])
    def test_unknown_token(self, make_model, token):
        with pytest.raises(PromptError, match=f"token {token} is outside the vocabulary of 61"):
            make_model().engine.submit(Request([5, token]))

    @pytest.mark.parametrize("prompt", [[1.5], ["a"], [[1, 2], [3, 4]], b"abc", 5, {"a": 1}])
    def test_not_tokens(self, make_model, prompt):
        model = make_model()
        for read in (model.context, model.context([9]).extend):
            with pytest.raises(PromptError, match="a prompt is text or a sequence of token ids"):
                read(prompt)

    @pytest.mark.parametrize(
        ("wrong", "said"),
        [
            ({"max_tokens": -1}, "max_tokens (None for no limit) must be a whole number from 0 on, not -1"),
            ({"max_tokens": "5"}, "max_tokens (None for no limit) must be a whole number from 0 on, not '5'"),
            ({"max_tokens": 2.5}, "max_tokens (None for no limit) must be"),
            ({"stop": 5}, "stop must be a string or several, not 5"),
            ({"stop": ["a", None]}, "stop must be a string or several"),
            ({"stop": b"a"}, "stop must be a string or several"),
        ],
    )
    def test_wrong_limits_leave_the_context_as_it_was(self, make_model, wrong, said):
        context = make_model().context([9, 9, 12])
        with pytest.raises(PromptError, match=re.escape(said)):
            context.generate(**wrong)
        assert context.generate(GREEDY, max_tokens=np.int64(3), ignore_eos=True).text


class Only:
    """A constraint that allows the tokens of a script, one after the other, and then the end."""

    def __init__(self, script, wrong_at=None):
        self.script, self.at, self.wrong_at = [*script, [0]], 0, wrong_at

    def fill_mask(self, mask):
        if self.at == self.wrong_at:
            raise RuntimeError("out of order")
        mask[:] = 0
        for token in self.script[self.at]:
            mask[token // 32] |= np.uint32(1 << (token % 32))

    def accept(self, token):
        assert token in self.script[self.at]
        self.at += 1


class TestConstraints:
    def test_only_allowed_tokens_are_chosen(self, make_model):
        script = [[7], [40, 41], [33], [8, 60]]
        generation = make_model().engine.submit(Request([9, 9], Sampling(seed=1), constraint=Only(script)))
        tokens = generation.tokens
        assert len(tokens) == 4
        assert all(t in allowed for t, allowed in zip(tokens, script, strict=True))
        assert generation.finish_reason == "stop"

    def test_where_the_text_may_end_the_model_decides(self, make_model):
        model = make_model()
        for bias, expected in ((1000.0, (7, 0)), (-1000.0, (7, 8, 9))):
            sampling = Sampling(temperature=0, logit_bias={0: bias})
            generation = model.engine.submit(Request([9, 9], sampling, constraint=Only([[7], [0, 8], [9]])))
            assert generation.tokens == expected
            assert generation.finish_reason == "stop"

    def test_a_text_that_may_only_end_ends_at_once(self, make_model):
        generation = make_model().engine.submit(Request([9, 9], GREEDY, constraint=Only([])))
        assert generation.tokens == ()
        assert generation.finish_reason == "stop"

    def test_nothing_allowed_is_an_error_of_that_request_alone(self, make_model):
        model = make_model()
        other = model.engine.submit(Request([9, 9], GREEDY, 20, ignore_eos=True))
        generation = model.engine.submit(Request([9, 9], GREEDY, 20, constraint=Only([[7], []])))
        with pytest.raises(ConstraintError, match="the constraint allows no token after 1"):
            list(generation)
        assert generation.finish_reason == "error"
        assert other.tokens == alone(model, [9, 9], 20, ignore_eos=True)

    def test_a_constraint_that_fails_ends_its_request_alone(self, make_model):
        model = make_model()
        other = model.engine.submit(Request([9, 9], GREEDY, 20, ignore_eos=True))
        generation = model.engine.submit(Request([9, 9], GREEDY, 20, constraint=Only([[7]] * 9, wrong_at=3)))
        assert generation.wait(10)
        with pytest.raises(ConstraintError, match="RuntimeError: out of order"):
            _ = generation.text
        assert len(other.tokens) == 20


def test_memory_that_runs_out_ends_one_request_and_no_other(make_model):
    roomy = make_model(page_tokens=16)
    expected = alone(roomy, [9] * 10, 20, ignore_eos=True)
    page = sum(roomy.pool.page_bytes)
    model = make_model(page_tokens=16, budget=4 * page)
    small = model.engine.submit(Request([9] * 10, GREEDY, 20, ignore_eos=True))
    large = model.engine.submit(Request([9] * 100, GREEDY, 20))
    with pytest.raises(OutOfMemoryError, match="no K/V memory is left"):
        list(large)
    assert small.tokens == expected
    assert model.pool.used_bytes == 0
    assert alone(model, [9] * 10, 20, ignore_eos=True) == expected


def test_a_failed_step_ends_the_request_at_fault_alone(make_model, monkeypatch):
    model = make_model()
    expected = alone(model, [9, 8], 20, ignore_eos=True)
    step = model.engine.runner.step

    def faulty(batch, draws):
        if any(rows.tokens == [9, 50] for rows in batch):
            raise RuntimeError("no good")
        return step(batch, draws)

    monkeypatch.setattr(model.engine.runner, "step", faulty)
    good = model.engine.submit(Request([9, 8], GREEDY, 20, ignore_eos=True))
    bad = model.engine.submit(Request([9, 50], GREEDY, 20))
    with pytest.raises(LlamayError, match="a step of the model failed: no good"):
        list(bad)
    assert good.tokens == expected


class TestCancel:
    def test_frees_everything(self, make_model, gate):
        model = make_model()
        generation = model.engine.submit(Request([9] * 20, GREEDY, constraint=gate, ignore_eos=True))
        next(iter(generation))
        generation.cancel()
        gate.open()
        assert generation.wait(10)
        assert generation.finish_reason == "cancelled"
        assert model.pool.used_bytes == 0

    def test_of_what_waits_in_the_queue(self, make_model, gate):
        model = make_model(max_sequences=1)
        first = model.engine.submit(Request([9] * 20, GREEDY, 5, constraint=gate, ignore_eos=True))
        next(iter(first))
        second = model.engine.submit(Request([9] * 20, GREEDY, 10, ignore_eos=True))
        second.cancel()
        gate.open()
        assert second.wait(10)
        assert second.tokens == ()
        assert second.finish_reason == "cancelled"
        assert len(first.tokens) == 5

    def test_twice_and_after_the_end(self, make_model):
        generation = make_model().engine.submit(Request([9], GREEDY, 3, ignore_eos=True))
        assert len(generation.tokens) == 3
        generation.cancel()
        generation.cancel()
        assert generation.finish_reason == "length"

    def test_a_generation_that_nobody_holds_is_cancelled(self, make_model, gate):
        model = make_model()
        model.engine.submit(Request([9] * 20, GREEDY, constraint=gate, ignore_eos=True))
        gc.collect()
        gate.open()
        model.engine.call(lambda: None)
        model.engine.call(lambda: None)
        assert model.engine.stats.cancelled == 1
        assert model.engine.active == model.engine.queued == 0
        assert model.pool.used_bytes == 0


class TestClose:
    def test_ends_what_runs(self, make_model, gate):
        model = make_model()
        generation = model.engine.submit(Request([9] * 20, GREEDY, constraint=gate, ignore_eos=True))
        next(iter(generation))
        threading.Timer(0.05, gate.open).start()
        model.close()
        assert generation.finish_reason == "cancelled"
        with pytest.raises(EngineClosedError, match="the model was closed"):
            model.engine.submit(Request([9]))
        model.close()

    def test_a_context_of_a_closed_model_says_so(self, make_model):
        model = make_model()
        context = model.context([9, 9])
        model.close()
        for use in (lambda: context.extend([9]), context.generate, context.fork, lambda: context.tokens):
            with pytest.raises(EngineClosedError, match="small llama was closed, and with it this context"):
                use()
        with pytest.raises(EngineClosedError, match="small llama was closed; load it again"):
            _ = model.program

    def test_frees_everything_although_somebody_holds_on_to_it(self, make_model):
        model = make_model()
        context, parts = model.context([9, 9]), weakref.ref(model._parts)
        model.close()
        assert model.pool.used_bytes == 0
        assert parts() is None
        assert len(context) == 0


def test_pieces_arrive_in_any_event_loop(make_model):
    model = make_model()
    expected = alone(model, [9, 4, 9], 30, ignore_eos=True)

    async def one():
        generation = model.engine.submit(Request([9, 4, 9], GREEDY, 30, ignore_eos=True))
        return tuple([t async for piece in generation for t in piece.tokens])

    async def several():
        return await asyncio.gather(*(one() for _ in range(4)))

    for _ in range(2):
        assert asyncio.run(several()) == [expected] * 4


def test_a_step_calls_into_an_event_loop_once_for_all_its_texts(make_model):
    model = make_model()

    async def one():
        return [p async for p in model.engine.submit(Request([9, 4, 9], GREEDY, 40, ignore_eos=True))]

    async def several():
        loop, calls = asyncio.get_running_loop(), []
        call = loop.call_soon_threadsafe
        loop.call_soon_threadsafe = lambda *a: (calls.append(threading.current_thread().name), call(*a))[1]
        await asyncio.gather(*(one() for _ in range(16)))
        return sum("llamay engine" in name for name in calls)

    before = model.engine.stats.steps
    assert asyncio.run(several()) <= model.engine.stats.steps - before + 16  # those that end at once


@pytest.mark.parametrize("leaves", [lambda i: False, lambda i: True, lambda i: i % 3 == 1, lambda i: i > 7])
def test_diverted_pieces_and_those_that_are_left_come_once_and_in_order(make_model, leaves):
    model = make_model()
    expected = alone(model, [9, 4, 9], 40, ignore_eos=True)

    async def one():
        generation = model.engine.submit(Request([9, 4, 9], GREEDY, 40, ignore_eos=True))
        tokens, threads, taken, asked = [], set(), 0, 0

        def take(text, ids, scores):
            nonlocal taken, asked
            threads.add(threading.get_ident())
            asked += 1
            if leaves(asked):
                return False
            taken += 1
            tokens.extend(ids)
            return True

        generation.divert(take)
        async for piece in generation:
            tokens.extend(piece.tokens)
            await asyncio.sleep(0.001)  # more may come while it is busy
        assert threads <= {threading.get_ident()}
        return tuple(tokens), taken

    async def several():
        return await asyncio.gather(*(one() for _ in range(4)))

    for tokens, taken in asyncio.run(several()):
        assert tokens == expected
        assert taken or leaves(1), "some were diverted"


def test_what_a_taker_raises_is_raised_where_pieces_are_iterated(make_model):
    def take(text, ids, scores):
        raise ZeroDivisionError

    async def run():
        generation = make_model().engine.submit(Request([9, 4, 9], GREEDY, 40, ignore_eos=True))
        generation.divert(take)
        async for _ in generation:
            pass

    with pytest.raises(ZeroDivisionError):
        asyncio.run(run())


def test_an_error_reaches_a_coroutine(make_model):
    async def run():
        async for _ in make_model().engine.submit(Request([9, 9], GREEDY, 20, constraint=Only([[7], []]))):
            pass

    with pytest.raises(ConstraintError):
        asyncio.run(run())


def test_many_threads_may_submit(make_model):
    model, results = make_model(), {}
    expected = {i: alone(model, [5 + i, 9], 15, ignore_eos=True) for i in range(8)}

    def work(i):
        results[i] = alone(model, [5 + i, 9], 15, ignore_eos=True)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert results == expected


def together(model, *requests):
    """Submits requests so that the engine sees all of them in the same step."""
    return model.engine.call(lambda: [model.engine.submit(r) for r in requests])


def test_a_short_prompt_is_not_kept_waiting_by_a_long_one(make_model):
    model = make_model(ctx_size=512, max_rows=16)
    long, short = together(model, Request([9] * 500, GREEDY, 1), Request([9] * 5, GREEDY, 1))
    assert long.wait(60)
    assert short.wait(60)
    assert short.timings.queue + short.timings.prompt < (long.timings.queue + long.timings.prompt) / 2


def test_a_context_at_work_refuses_a_second_owner(make_model, gate):
    context = make_model().context([9, 9])
    generation = context.generate(GREEDY, constraint=gate, ignore_eos=True)
    for second in (
        context.generate,
        lambda: context.extend([5]),
        lambda: context.truncate(1),
        lambda: context.logits,
    ):
        with pytest.raises(ContextError, match="a generation runs on this context"):
            second()
    generation.cancel()
    gate.open()
    generation.wait()
    context.truncate(1)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_mix_gives_every_request_what_it_gets_alone(make_model, data):
    """Joins, cancels, forks, stops and different samplings in one engine, each compared with the same request
    alone.
    """
    name = data.draw(st.sampled_from(["gemma3", "llama", "qwen3"]))
    model = make_model(
        name, max_rows=data.draw(st.sampled_from([16, 64])), max_sequences=data.draw(st.integers(1, 9))
    )
    base = model.context([7, 8, 9, 10])
    mix = []
    for _ in range(data.draw(st.integers(2, 10))):
        prompt = data.draw(st.lists(st.integers(1, 60), min_size=1, max_size=70))
        sampling = Sampling(
            seed=data.draw(st.integers(0, 5)),
            temperature=data.draw(st.sampled_from([0.0, 0.8, 2.0])),
            repeat_penalty=data.draw(st.sampled_from([1.0, 1.3])),
            repeat_last_n=data.draw(st.sampled_from([-1, 5, 64])),
            logprobs=data.draw(st.sampled_from([None, 2])),
        )
        how = {
            "max_tokens": data.draw(st.integers(0, 25)),
            "stop": data.draw(st.lists(st.text("abc", min_size=1), max_size=2)),
        }
        mix.append((data.draw(st.sampled_from(["ids", "fork", "cancel"])), prompt, sampling, how))

    def start(kind, prompt, sampling, how):
        if kind == "fork":
            return base.fork().generate(sampling, **how)
        return model.engine.submit(Request(prompt, sampling, **how))

    def result(generation):
        pieces = list(generation)
        return [
            (t, s) for p in pieces for t, s in zip(p.tokens, p.logprobs or p.tokens, strict=True)
        ], generation.text

    running = [start(*m) for m in mix]
    for (kind, *_), generation in zip(mix, running, strict=True):
        if kind == "cancel":
            generation.cancel()
    together = [result(g) for g in running]
    for m, got in zip(mix, together, strict=True):
        expected = result(start(*m))
        if m[0] == "cancel":
            assert expected[1].startswith(got[1])
            assert expected[0][: len(got[0])] == got[0]
        else:
            assert got == expected
    gc.collect()
    base.close()
    model.close()


def test_what_was_done_is_counted(make_model):
    model = make_model(speculation=False)
    alone(model, [9] * 20, 10, ignore_eos=True)
    stats = model.engine.stats
    assert (stats.prompt_tokens, stats.generated_tokens, stats.rows) == (20, 10, 29)
    assert stats.steps == 10
    assert 0 < stats.run_seconds < stats.busy_seconds
    assert (model.engine.active, model.engine.queued) == (0, 0)


def test_scores_are_those_of_the_logits(make_model):
    model = make_model()
    context = model.context([9, 9, 12])
    logits = context.logits.astype(np.float64)
    expected = logits - np.log(np.exp(logits).sum())
    (piece,) = context.generate(Sampling(seed=1, logprobs=3), max_tokens=1, ignore_eos=True)
    (score,) = piece.logprobs
    assert score.logprob == pytest.approx(expected[score.token], abs=1e-5)
    best = np.argsort(-expected)[:3]
    assert [t for t, _ in score.top] == best.tolist()
    assert [p for _, p in score.top] == pytest.approx(expected[best], abs=1e-5)


def test_a_bias_outside_the_vocabulary_is_named(make_model):
    with pytest.raises(SamplingError, match="logit_bias names token 61, but the vocabulary has 61"):
        make_model().engine.submit(Request([9], Sampling(logit_bias={61: 1.0})))
