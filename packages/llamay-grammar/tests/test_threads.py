"""Compilations of several threads do not wait for each other."""

from __future__ import annotations

import threading
import time

import llamay_grammar as lg

SLOW = "^(.*a.*b.*c.*d.*e|.*e.*d.*c.*b){%d}$"
SECONDS = 1.5


def test_a_cheap_compilation_does_not_wait_for_slow_ones(bytes_vocabulary: lg.Vocabulary) -> None:
    budget = lg.Budget(seconds=SECONDS, states=1 << 30)

    def compile_slowly(i: int) -> None:
        try:
            lg.compile_regex(SLOW % (30 + i), bytes_vocabulary, budget=budget)
        except lg.CompileError as error:
            refusals.append(error.keyword)

    refusals: list[str] = []
    slow = [threading.Thread(target=compile_slowly, args=(i,)) for i in range(4)]
    for thread in slow:
        thread.start()
    time.sleep(SECONDS / 5)  # so that all of them are at it
    lg.compile_regex("^cheap[0-9]$", bytes_vocabulary)
    running = sum(thread.is_alive() for thread in slow)
    for thread in slow:
        thread.join()
    assert refusals == ["budget"] * len(slow), "slow enough for this test"
    assert running == len(slow)
