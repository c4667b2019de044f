"""A step that begins before the text of the last one is decoded changes nothing but the time of its computation."""

import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llamay_models.engine import Request, Sampling
from llamay_models.engine.runner import Runner
from llamay_models.engine.scheduling.overlapped import OverlappedStep
from llamay_models.errors import EngineClosedError

GREEDY = Sampling(temperature=0)
SAMPLINGS = {
    "greedy": GREEDY,
    "sampled": Sampling(seed=3, temperature=1.5),
    "penalties": Sampling(seed=4, repeat_penalty=1.3, frequency_penalty=0.4, repeat_last_n=-1),
    "dry": Sampling(seed=5, temperature=1.1, dry_multiplier=0.8),
    "mirostat": Sampling(seed=6, mirostat=2),
    "scores": Sampling(seed=7, logprobs=3),
}


@pytest.fixture
def counts(monkeypatch):
    """How often a step began by itself, and how often after what Python did."""
    found = {"begun": 0, "followed": 0, "left": 0}
    begin, finish, leave = Runner.begin, Runner.finish, OverlappedStep.abandon

    def counted_begin(self, batch):
        found["begun"] += 1
        return begin(self, batch)

    def counted_finish(self, *arguments):
        out = finish(self, *arguments)
        found["followed"] += out[2]
        return out

    def counted_leave(self):
        found["left"] += self.begun is not None
        leave(self)

    monkeypatch.setattr(Runner, "begin", counted_begin)
    monkeypatch.setattr(Runner, "finish", counted_finish)
    monkeypatch.setattr(OverlappedStep, "abandon", counted_leave)
    return found


@pytest.fixture
def patient(monkeypatch):
    """`patient()`: from now on every step waits for the text of the one before."""
    return lambda: monkeypatch.setattr(OverlappedStep, "may_overlap", lambda *_: False)


def written(model, prompt, sampling, n, **more):
    """What a context is after a text, and what it would say next."""
    with model.context(prompt) as context:
        generation = context.generate(sampling, max_tokens=n, **more)
        generation.wait()
        return (
            generation.text,
            generation.tokens,
            generation.scores,
            generation.finish_reason,
            generation.usage,
            context.tokens,
            len(context._state.kv),
            context.logits.tobytes(),
        )


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("speculation", [False, True])
def test_texts_and_contexts_are_those_of_steps_that_wait(
    make_model, counts, patient, sampling, threads, speculation
):
    overlapping = make_model("gemma3", threads=threads, speculation=speculation)
    found = written(overlapping, [9, 9, 12], sampling, 60, ignore_eos=True)
    assert found[3] == "length"
    assert (counts["begun"] > 0) == (sampling.logprobs is None)
    if not speculation and sampling.logprobs is None:
        # One that waits where a page of 16 ends, and at the beginning.
        assert counts["followed"] >= 60 - 2 - 2 * 5
    patient()
    again = written(make_model("gemma3", speculation=speculation), [9, 9, 12], sampling, 60, ignore_eos=True)
    assert found == again


def test_a_stop_string_leaves_the_context_as_if_nothing_had_begun(make_model, counts, patient):
    model = make_model("qwen3", threads=2, speculation=False)
    text = written(model, [9, 9, 12], GREEDY, 60, ignore_eos=True)[0]
    stops = [text[i : i + 3] for i in range(8, 40, 5)]
    before = model.pool.used_bytes
    found = [written(model, [9, 9, 12], GREEDY, 60, stop=(s,), ignore_eos=True) for s in stops]
    assert {f[3] for f in found} == {"stop"}
    assert counts["left"] >= len(stops) - 2  # not where the stop string ends with a page
    assert model.pool.used_bytes == before
    patient()
    waits = make_model("qwen3", speculation=False)
    assert found == [written(waits, [9, 9, 12], GREEDY, 60, stop=(s,), ignore_eos=True) for s in stops]


class Rows:
    """Rows of letters: any of some, then, every so often, some that are forced; ends after so many tokens."""

    def __init__(self, size, every, run, fails_at=None):
        self.size, self.every, self.run, self.fails_at = size, every, run, fails_at
        self.taken = 0

    def fill_mask(self, mask):
        if self.taken == self.fails_at:
            raise RuntimeError("no mask")
        mask[:] = 0
        if self.taken >= self.size:
            mask[0] = 1  # only the end
        elif self.taken % self.every < self.run:
            mask[1] = 1 << self.taken % 8
        else:
            mask[0], mask[1] = 0xFFFF0000, 0x0FFFFFFF

    def accept(self, token):
        self.taken += 1

    def forced_tokens(self, limit):
        n = self.run - self.taken % self.every
        return [32 + (self.taken + i) % 8 for i in range(max(0, min(n, limit, self.size - self.taken)))]


@pytest.mark.parametrize("speculation", [False, True])
@pytest.mark.parametrize("name", ["greedy", "sampled", "mirostat"])
@pytest.mark.parametrize("rows", [(40, 10, 3), (53, 60, 1), (200, 7, 5), (30, 1, 0)], ids=repr)
def test_a_constraint_bounds_what_it_bounds(
    make_model, counts, patient, monkeypatch, speculation, name, rows
):
    # However busy this machine is: masks that take long are computed beside the step.
    monkeypatch.setattr("llamay_models.engine.decoding.constraint_state._SLOW_SECONDS", 60.0)
    sampling = SAMPLINGS[name]

    def texts(model):
        found = [
            written(model, [9, 9, 12], sampling, 60, constraint=Rows(*rows)),
            written(model, [9, 9, 12], sampling, 60, stop=("ab", "t"), constraint=Rows(*rows)),
        ]
        with model.context([9, 9]) as context, model.context([21, 8]) as free:
            running = model.engine.call(
                lambda: [
                    context.generate(sampling, max_tokens=50, constraint=Rows(*rows)),
                    free.generate(sampling, max_tokens=60, ignore_eos=True),
                ]
            )
            found += [(g.text, g.tokens, g.finish_reason) for g in running]
            found += [context.tokens, free.tokens, len(context._state.kv), len(free._state.kv)]
        return found

    model = make_model("qwen3", threads=2, speculation=speculation)
    found = texts(model)
    assert counts["begun"] > 20
    steps, before = model.engine.stats.steps, dict(counts)
    patient()
    waits = make_model("qwen3", speculation=speculation)
    assert found == texts(waits)
    assert counts == before
    # Forced tokens are computed at once. Drafts from the text depend on the measured times of steps.
    assert speculation or steps == waits.engine.stats.steps


def test_a_constraint_that_fails_ends_its_text_alone(make_model):
    model = make_model("qwen3", threads=2, speculation=False)
    expected = written(model, [21, 8], GREEDY, 40, ignore_eos=True)[1]
    good, bad = model.engine.call(
        lambda: [
            model.engine.submit(Request([21, 8], GREEDY, 40, ignore_eos=True)),
            model.engine.submit(Request([9, 9], GREEDY, 40, constraint=Rows(40, 10, 3, fails_at=15))),
        ]
    )
    assert good.tokens == expected
    assert bad.wait(10)
    assert bad.finish_reason == "error"
    assert "no mask" in str(bad.error)
    assert bad.usage.completion_tokens == 15


def test_who_stops_does_not_touch_those_who_go_on(make_model, counts):
    model = make_model("llama", threads=2, speculation=False)
    prompts = [[9, 9, 12], [7, 30], [21, 22, 23, 24], [40]]
    texts = [written(model, p, GREEDY, 60, ignore_eos=True) for p in prompts]
    stops = [(t[0][i : i + 2],) if i else () for t, i in zip(texts, (0, 11, 25, 25), strict=True)]
    alone = [
        written(model, p, GREEDY, 60, stop=s, ignore_eos=True) for p, s in zip(prompts, stops, strict=True)
    ]
    contexts = [model.context(p) for p in prompts]
    counts["followed"] = 0
    running = model.engine.call(
        lambda: [
            c.generate(GREEDY, max_tokens=60, stop=s, ignore_eos=True)
            for c, s in zip(contexts, stops, strict=True)
        ]
    )
    together = [
        (g.text, g.tokens, g.scores, g.finish_reason, g.usage, c.tokens, len(c._state.kv), c.logits.tobytes())
        for g, c in zip(running, contexts, strict=True)
    ]
    assert together == alone
    assert counts["followed"] > 20


def test_an_end_token_begins_nothing(make_model, counts):
    model = make_model(speculation=False)
    sampling = Sampling(seed=1, temperature=3.0, logit_bias={0: 1.5})
    found = [written(model, [9, 9, 12 + i], sampling, 60) for i in range(12)]
    assert {f[3] for f in found} >= {"stop"}
    assert counts["left"] == 0


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_others_come_and_go_at_any_time(make_model, data):
    model = make_model("gemma3", threads=2, speculation=False, prefix_cache=1 << 20, max_sequences=3)
    n = data.draw(st.integers(2, 5))
    prompts = [data.draw(st.lists(st.integers(5, 60), min_size=1, max_size=40)) for _ in range(n)]
    lengths = [data.draw(st.integers(1, 50)) for _ in range(n)]
    pauses = [data.draw(st.floats(0, 0.004)) for _ in range(n)]
    cancelled = data.draw(st.integers(0, n - 1))
    sampling = Sampling(seed=2, temperature=1.2)
    running = []
    for prompt, length, pause in zip(prompts, lengths, pauses, strict=True):
        running.append(model.engine.submit(Request(prompt, sampling, length, ignore_eos=True)))
        time.sleep(pause)
    running[cancelled].cancel()
    texts = [g.tokens for g in running]
    for i, (prompt, length) in enumerate(zip(prompts, lengths, strict=True)):
        alone = model.engine.submit(Request(prompt, sampling, length, ignore_eos=True, reuse=False)).tokens
        assert texts[i] == (alone if i != cancelled else alone[: len(texts[i])])
    model.close()


def test_what_other_threads_ask_for_waits_for_one_step_only(make_model):
    model = make_model(threads=2, speculation=False, ctx_size=2048)
    endless = model.engine.submit(Request([9, 9, 12], GREEDY, 2000, ignore_eos=True))
    iterator = iter(endless)
    next(iterator)
    steps = [model.engine.call(lambda: model.engine.stats.steps) for _ in range(20)]
    short = model.engine.submit(Request([7, 30], GREEDY, 3, ignore_eos=True))
    assert len(short.tokens) == 3
    assert endless.finish_reason is None
    fork = endless.fork()
    endless.cancel()
    assert endless.wait(10)
    assert fork.tokens
    assert steps == sorted(steps)


def test_a_fork_goes_on_from_where_its_text_is(make_model):
    model = make_model("qwen3", threads=2, speculation=False, ctx_size=512)
    whole = model.engine.submit(Request([9, 9, 12], GREEDY, 400, ignore_eos=True)).tokens
    running = model.engine.submit(Request([9, 9, 12], GREEDY, 400, ignore_eos=True))
    forks = []
    for i, _ in enumerate(running):
        if i % 40 == 20 and running.finish_reason is None:
            forks.append(running.fork())
    assert running.tokens == whole
    for fork in forks:
        assert fork.tokens == whole[len(whole) - len(fork.tokens) :]


def test_closing_ends_a_step_that_has_begun(make_model):
    model = make_model(threads=2, speculation=False, ctx_size=4096)
    running = model.engine.submit(Request([9, 9, 12], GREEDY, 4000, ignore_eos=True))
    next(iter(running))
    model.close()
    assert running.finish_reason == "cancelled"
    with pytest.raises(EngineClosedError):
        _ = running.text


def test_a_decoder_that_fails_ends_its_text_alone(make_model, tokenizer):
    class Failing(type(tokenizer.stream_decoder())):
        left = 13

        def push(self, token):
            self.left -= 1
            if not self.left:
                raise RuntimeError("no such letter")
            return super().push(token)

    class Second(type(tokenizer)):
        made = 0

        def stream_decoder(self, *, skip_special=False, keep=()):
            self.made += 1
            return Failing(self) if self.made == 3 else super().stream_decoder()

    model = make_model(threads=2, speculation=False, tokenizer=Second())
    expected = model.engine.submit(Request([7, 30], GREEDY, 40, ignore_eos=True)).tokens
    good, bad = model.engine.call(
        lambda: [
            model.engine.submit(Request([7, 30], GREEDY, 40, ignore_eos=True)),
            model.engine.submit(Request([9, 9, 12], GREEDY, 40, ignore_eos=True)),
        ]
    )
    assert good.tokens == expected
    assert bad.wait(10)
    assert bad.finish_reason == "error"
    assert "no such letter" in str(bad.error)
    assert bad.usage.completion_tokens == 13


def test_memory_that_runs_out_is_found_without_haste(make_model):
    def texts(model):
        running = model.engine.call(
            lambda: [
                model.engine.submit(Request([9, 9, 12 + i], GREEDY, 60, ignore_eos=True)) for i in range(4)
            ]
        )
        return [g.tokens for g in running]

    roomy = make_model("llama", threads=2, speculation=False)
    page = roomy.pool.layout.position_bytes * 16
    expected = texts(roomy)
    tight = make_model("llama", threads=2, speculation=False, budget=10 * page + page // 2)
    assert texts(tight) == expected
    assert tight.engine.stats.preempted > 0
