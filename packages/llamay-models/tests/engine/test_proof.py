"""Everything at once, and each by itself: not a token, a score or a logit is different."""

import contextlib
import gc
import os
import random
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import llamay_kv
from llamay_models.engine import Request, Sampling
from llamay_models.errors import ContextError, OutOfMemoryError

NAMES = [("llama", {}), ("gemma3", {"attention.sliding_window": 20}), ("qwen3", {})]


def prompt_of(n, seed=0):
    return [5 + (i * 7 + seed * 13 + i * i) % 50 for i in range(n)]


class Grammar:
    """Token classes that depend on what was taken; ends after some tokens. It can fork, and force."""

    def __init__(self, seed, length, taken=()):
        self.seed, self.length, self.taken = seed, length, list(taken)

    def allowed(self):
        n = len(self.taken)
        if n >= self.length:
            return [0]
        first = (self.seed * 7 + n * 11 + sum(self.taken)) % 50 + 5
        return [first] if n % 4 == 3 else sorted({first, (first * 3) % 50 + 5, (first * 5) % 50 + 5})

    def fill_mask(self, mask):
        mask[:] = 0
        for token in self.allowed():
            mask[token // 32] |= np.uint32(1 << (token % 32))

    def accept(self, token):
        assert token in self.allowed()
        self.taken.append(token)

    def fork(self):
        return Grammar(self.seed, self.length, self.taken)

    def forced_tokens(self, limit):
        twin, out = self.fork(), []
        while len(out) < limit and len(twin.allowed()) == 1 and len(twin.taken) < twin.length:
            out += twin.allowed()
            twin.accept(out[-1])
        return out


def a_sampling(draw):
    return Sampling(
        seed=draw(st.integers(0, 3)),
        temperature=draw(st.sampled_from([0.0, 0.8, 1.5])),
        repeat_penalty=draw(st.sampled_from([1.0, 1.2])),
        repeat_last_n=draw(st.sampled_from([-1, 8])),
        mirostat=draw(st.sampled_from([0, 0, 0, 2])),
        logprobs=1,
    )


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_history_of_an_engine_gives_what_each_gets_alone(make_model, tmp_path_factory, data):
    """Joins, cancels, forks, restores, grammars, reuse, drafts and little memory, in any order."""
    draw = data.draw
    name, keys = draw(st.sampled_from(NAMES))
    plain = make_model(name, speculation=False, **keys)
    page = sum(plain.pool.page_bytes)
    draft = make_model(name, seed=draw(st.integers(0, 1)), **keys) if draw(st.booleans()) else None
    model = make_model(
        name,
        budget=draw(st.sampled_from([60, 200])) * page,
        max_rows=draw(st.sampled_from([16, 64])),
        max_sequences=draw(st.integers(2, 9)),
        page_tokens=16,
        prefix_cache=draw(st.sampled_from([0, 20 * page, 1 << 24])),
        draft=draft,
        **keys,
    )
    folder = tmp_path_factory.mktemp("proof")
    contexts = [(model.context(prompt_of(20)), prompt_of(20))]
    checks = []  # (generation, what makes the same one alone)
    after = []  # (context, tokens)

    def generate(context, tokens, random_stream, sampling, how):
        alone = plain.context(tokens)
        alone._state.random_stream = random_stream
        expected = alone.generate(sampling, **({**how, "constraint": constraint_of(how)}))
        checks.append((context.generate(sampling, **how), expected))
        after.append((context, alone))

    def constraint_of(how):
        return how["constraint"].fork() if how.get("constraint") is not None else None

    for _ in range(draw(st.integers(2, 9))):
        kind = draw(st.sampled_from(["ids", "ids", "fork", "forks", "restore", "cancel", "extend"]))
        sampling = a_sampling(draw)
        how = {
            "max_tokens": draw(st.integers(0, 30)),
            "stop": draw(st.lists(st.text("abc", min_size=1, max_size=2), max_size=1)),
            "constraint": Grammar(draw(st.integers(0, 9)), draw(st.integers(1, 20)))
            if draw(st.booleans())
            else None,
        }
        context, tokens = draw(st.sampled_from(contexts))
        if kind in ("ids", "cancel"):
            prompt = [*prompt_of(draw(st.integers(1, 60)), draw(st.integers(0, 2)))]
            more = {"tenant": draw(st.sampled_from(["", "a"])), "priority": draw(st.integers(0, 1))}
            running = model.engine.submit(Request(prompt, sampling, **how, **more))
            if kind == "cancel":
                running.cancel()
            how = {**how, "constraint": constraint_of(how)} if kind == "ids" else how
            if kind == "ids":
                how["constraint"] = (
                    None
                    if how["constraint"] is None
                    else type(how["constraint"])(how["constraint"].seed, how["constraint"].length)
                )
                checks.append((running, plain.engine.submit(Request(prompt, sampling, **how))))
            else:
                checks.append((running, None))
        elif kind == "fork":
            generate(context.fork(), tokens, context._state.random_stream, sampling, how)
        elif kind == "forks":
            for fork in context.fork(2):
                own = {**how, "constraint": constraint_of(how)}
                generate(fork, tokens, fork._state.random_stream, sampling, own)
        elif kind == "restore":
            path = folder / f"{len(checks)}.llamay"
            context.save(path)
            generate(model.restore(path), tokens, context._state.random_stream, sampling, how)
        elif kind == "extend":
            more = prompt_of(draw(st.integers(1, 30)), 5)
            try:
                contexts.append((context.fork().extend(more), [*tokens, *more]))
            except OutOfMemoryError:
                contexts = [c for c in contexts if not c[0]._closed]
    for running, expected in checks:
        assert running.wait(60)
        if isinstance(running.error, OutOfMemoryError):  # contexts that are held may take all there is
            continue
        if expected is None:
            assert running.finish_reason in ("cancelled", "stop", "length")
            continue
        assert running.error is None
        assert (running.text, running.scores) == (expected.text, expected.scores)
        assert running.finish_reason == expected.finish_reason
    failed = {id(g) for g, _ in checks if g.error is not None}
    for context, alone in after:
        if not failed and list(context.tokens) == list(alone.tokens):
            with contextlib.suppress(OutOfMemoryError):
                assert np.array_equal(context.logits, alone.logits)
    for context, tokens in contexts:
        assert list(context.tokens) == tokens
    for context, _ in [*contexts, *after]:
        context.close()
    if model.engine.prefixes is not None:
        model.engine.prefixes.tree.clear()
    model.pool.audit()
    assert model.pool.used_bytes == 0
    assert draft is None or draft.pool.used_bytes == 0
    for kept in (checks, after, contexts):
        kept.clear()
    gc.collect()
    for m in (model, plain, draft):
        if m is not None:
            m.close()


def resident():
    """Bytes of this process in memory, and its open files."""
    status = Path("/proc/self/statm")
    if not status.exists():
        pytest.skip("no /proc to look at")
    return int(status.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"), len(
        list(Path("/proc/self/fd").iterdir())
    )


def soak(make_model, tmp_path, pairs, requests, seed=0):
    """So many random requests from several threads on a full memory budget.

    What must hold at the end, and all the time; returns what there was, and what it came to.
    """
    page = sum(make_model().pool.page_bytes)
    cache = llamay_kv.DiskCache(tmp_path, budget_bytes=1 << 22, min_free_bytes=0)
    model = make_model(
        budget=40 * page,
        prefix_cache=1 << 24,
        disk_cache=cache,
        max_sequences=6,
        max_rows=32,
        max_queue=64,
        tokenizer=pairs,
    )
    plain = make_model(speculation=False, tokenizer=pairs)
    waits, wrong, cancels = [], [], []
    done, held = [0] * 4, []

    def client(number):
        rng = random.Random(seed * 100 + number)
        while sum(done) < requests:
            try:
                one(rng, number)
            except (ContextError, OutOfMemoryError):
                pass
            except Exception as error:
                wrong.append(error)
                return
            done[number] += 1

    def one(rng, number):
        prompt = prompt_of(rng.randint(1, 120), rng.randint(0, 4))
        sampling = Sampling(seed=rng.randint(0, 5), temperature=rng.choice([0.0, 1.0]))
        more = {
            "tenant": rng.choice(["", "a", "b"]),
            "priority": rng.randint(-1, 1),
            "timeout": rng.choice([None, None, 0.002, 5.0]),
            "constraint": Grammar(rng.randint(0, 9), rng.randint(1, 20)) if rng.random() < 0.3 else None,
        }
        request = Request(prompt, sampling, rng.randint(0, 60), **more)
        kind = rng.random()
        began = time.monotonic()
        if kind < 0.6:
            running = model.engine.submit(request)
            if rng.random() < 0.2:
                running.cancel()
                cancels.append(running)
            assert running.wait(60), "a request starves"
            if running.finish_reason in ("stop", "length") and rng.random() < 0.05:
                fresh = (
                    Grammar(more["constraint"].seed, more["constraint"].length)
                    if more["constraint"]
                    else None
                )
                again = Request(prompt, sampling, request.max_tokens, constraint=fresh)
                assert running.tokens == plain.engine.submit(again).tokens
        elif kind < 0.8:
            with model.context(prompt[:40]) as context:
                running = [f.generate(sampling, max_tokens=10) for f in context.fork(rng.randint(1, 3))]
                assert all(g.wait(60) for g in running)
        elif kind < 0.9:
            running = model.engine.submit(request)
            forks = running.fork(2)
            assert all(g.wait(60) for g in [running, *forks])
        else:
            model.engine.submit(request)  # and nobody reads it
        waits.append(time.monotonic() - began)

    threads = [threading.Thread(target=client, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    while sum(done) < requests / 4 and not wrong:
        time.sleep(0.01)
    begin, files = resident()
    while sum(done) < requests and not wrong:
        time.sleep(0.1)
        held.append(model.pool.used_bytes)
    for t in threads:
        t.join()
    assert wrong == []
    assert min(done) > 0
    deadline = time.monotonic() + 30
    while model.engine.active or model.engine.queued:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    gc.collect()
    end, files_now = resident()
    cache.flush()
    model.engine.call(model.engine.prefixes.tree.clear)
    gc.collect()
    model.pool.audit()
    assert model.pool.used_bytes == 0
    assert files_now <= files + 2
    assert end - begin < 64 << 20
    assert max(waits) < 60
    assert max(held, default=0) <= model.pool.budget_bytes
    assert all(g.finish_reason is not None for g in cancels)
    stats = model.engine.stats
    waits.sort()
    print(
        f"{sum(done)} requests, {len(cancels)} cancelled, {stats.preempted} preempted, {stats.timed_out} timed out, "
        f"{stats.prompt_tokens} tokens read, {stats.cached_tokens} reused, {stats.generated_tokens} written; "
        f"resident memory {(end - begin) / 2**20:+.1f} MiB after the first quarter, files {files_now - files:+d}, "
        f"pages {model.pool.used_bytes}; waits: median {waits[len(waits) // 2]:.3f} s, "
        f"99th percentile {waits[int(len(waits) * 0.99)]:.3f} s, longest {waits[-1]:.3f} s"
    )
    model.close()
    cache.close()
    return sum(done), stats


def test_a_soak_leaves_nothing_behind_and_nobody_waits_for_ever(make_model, tmp_path, pairs):
    total, stats = soak(make_model, tmp_path, pairs, 150)
    assert total >= 150
    assert stats.cached_tokens > 0


@pytest.mark.slow
def test_a_long_soak(make_model, tmp_path, pairs):
    """An hour of a request a second, as fast as they go: LLAMAY_SOAK_REQUESTS is another number of them."""
    total, stats = soak(
        make_model, tmp_path, pairs, int(os.environ.get("LLAMAY_SOAK_REQUESTS", "3600")), seed=1
    )
    assert total >= 200
    assert min(stats.preempted, stats.cancelled, stats.timed_out, stats.accepted_tokens) > 0
