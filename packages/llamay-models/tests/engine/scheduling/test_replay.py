"""A text that was cut into tokens otherwise than a tokenizer does is read as it will come back, while nobody waits."""

import time

import numpy as np
import pytest

from llamay_models.engine import Request, Sampling
from llamay_models.engine.scheduling.replay import Replays

GREEDY = Sampling(temperature=0)


class Script:
    """A constraint that allows one text."""

    def __init__(self, script):
        self.script, self.at = script, 0

    def fill_mask(self, mask):
        mask[:] = 0
        token = self.script[self.at] if self.at < len(self.script) else 0
        mask[token // 32] |= np.uint32(1 << token % 32)

    def accept(self, token):
        self.at += 1


def settle(model):
    deadline = time.monotonic() + 10
    while model.engine.active or len(model.engine._loop._replays):
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_what_comes_back_in_other_tokens_was_read_already(make_model, pairs):
    model, plain = (make_model(tokenizer=pairs, prefix_cache=size) for size in (1 << 20, 0))
    prompt = [0, *(5 + i % 40 for i in range(60)), 0]
    written = [10, 11, 20, 10, 11] * 6
    first = model.engine.submit(Request(prompt, GREEDY, 40, constraint=Script(written)))
    assert list(first.tokens) == written
    settle(model)
    again = [*prompt, *pairs.encode(first.text), 0, 9, 9]
    assert again[: len(prompt) + len(written)] != [*prompt, *written]
    second = model.engine.submit(Request(again, GREEDY, 10, ignore_eos=True))
    assert second.tokens == plain.engine.submit(Request(again, GREEDY, 10, ignore_eos=True)).tokens
    assert second.usage.cached_tokens >= len(prompt) + 18
    stats = model.engine.stats
    assert 18 <= stats.replayed_tokens <= 40
    assert stats.prompt_tokens <= len(prompt) + 4
    assert stats.finished == 2
    model.engine.prefixes.tree.clear()
    assert model.pool.used_bytes == 0


def test_who_comes_meanwhile_does_not_wait_for_it(make_model, pairs):
    model = make_model(tokenizer=pairs, prefix_cache=1 << 20, max_rows=16)
    prompt = [0, *(5 + i % 40 for i in range(60))]
    first = model.engine.submit(Request(prompt, GREEDY, 150, constraint=Script([10, 11] * 70)))
    first.wait()
    second = model.engine.submit(Request([7, 8, 9], GREEDY, 3, ignore_eos=True))
    assert second.wait(10)
    settle(model)
    assert model.engine.stats.cancelled == 0


class TestReplays:
    @pytest.fixture
    def take(self, pairs):
        def take(tokens, written):
            replays = Replays(pairs)
            replays.note(tokens, written, "ann")
            return replays.take()

        return take

    def test_only_what_comes_back_differently(self, take):
        assert take([0, 5, 6, 7], 2) is None
        assert take([0, 5, 10, 11, 7], 2) == ([0, 5, 60, 7], "ann")

    def test_the_end_of_a_turn_stays(self, take):
        assert take([0, 5, 10, 11, 0], 3) == ([0, 5, 60, 0], "ann")

    def test_a_special_token_is_a_border(self, take):
        assert take([10, 11, 0, 10, 11], 2) == ([10, 11, 0, 60], "ann")

    def test_part_of_a_character_cannot_come_back(self, take):
        assert take([0, 10, 11, 1, 2], 4) is None

    def test_without_a_tokenizer_that_says_how_it_cuts_there_are_none(self, tokenizer):
        replays = Replays(tokenizer)
        replays.note([0, 10, 11], 2, "")
        assert replays.take() is None
