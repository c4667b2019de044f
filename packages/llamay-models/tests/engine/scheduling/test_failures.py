"""The engine's thread outlives every error: the texts at fault end, others go on, and nobody waits for ever."""

import threading

import pytest

from llamay_models import LlamayError, Request, Sampling
from llamay_models.errors import ConstraintError, EngineClosedError

GREEDY = Sampling(temperature=0)


class Raises:
    """A constraint that allows everything, and raises in one of its methods after some tokens."""

    def __init__(self, error, method, after=2):
        self.error, self.method, self.after, self.accepted = error, method, after, 0

    def _at(self, method):
        if method == self.method and self.accepted >= self.after:
            raise self.error("enough")

    def fill_mask(self, mask):
        self._at("fill_mask")
        mask[:] = 0xFFFFFFFF

    def accept(self, token):
        self._at("accept")
        self.accepted += 1

    def fork(self):
        self._at("fork")
        return Raises(self.error, self.method)


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit, ValueError, MemoryError])
@pytest.mark.parametrize("method", ["fill_mask", "accept"])
def test_what_a_constraint_raises_ends_its_own_text(make_model, error, method):
    model = make_model()
    others = [model.engine.submit(Request([5, i], GREEDY, 40, ignore_eos=True)) for i in (6, 7)]
    bad = model.engine.submit(Request([5, 8], GREEDY, 40, constraint=Raises(error, method), ignore_eos=True))
    with pytest.raises(ConstraintError, match=f"{error.__name__}: enough"):
        _ = bad.text
    assert bad.finish_reason == "error"
    assert [len(each.tokens) for each in others] == [40, 40]


def test_a_constraint_that_leaves_while_it_forks(make_model, gate):
    model = make_model()
    context = model.context([5, 8])
    running = context.generate(GREEDY, max_tokens=40, constraint=gate, ignore_eos=True)
    gate.fork = lambda: (_ for _ in ()).throw(SystemExit("enough"))
    threading.Timer(0.1, gate.open).start()
    with pytest.raises(LlamayError, match=r"SystemExit: enough|has not begun|has ended"):
        running.fork()
    assert len(running.tokens) == 40
    assert model.context([5, 9]).generate(GREEDY, max_tokens=2, ignore_eos=True).tokens


@pytest.mark.parametrize("error", [RuntimeError, SystemExit])
def test_an_error_in_admission_ends_what_waits_and_not_the_thread(make_model, monkeypatch, error):
    model = make_model(prefix_cache=1 << 20)
    prefixes = model.engine.prefixes
    match, left = prefixes.match, [1]

    def fails_once(*given, **named):
        if left and left.pop():
            raise error("no prefix")
        return match(*given, **named)

    monkeypatch.setattr(prefixes, "match", fails_once)
    bad = model.engine.submit(Request([5, 6, 7], GREEDY, 3, ignore_eos=True))
    with pytest.raises(LlamayError, match=f"{error.__name__}: no prefix"):
        _ = bad.text
    assert len(model.engine.submit(Request([5, 6, 7], GREEDY, 3, ignore_eos=True)).tokens) == 3
    assert (model.engine.queued, model.engine.active) == (0, 0)


def test_an_error_outside_all_sequences_ends_them_all_and_not_the_thread(make_model, monkeypatch):
    model = make_model()
    waiting = type(model.engine._loop._admission)
    admit, left = waiting.admit_waiting, [1]

    def fails_once(self):
        if left and left.pop():
            raise RuntimeError("out of order")
        return admit(self)

    monkeypatch.setattr(waiting, "admit_waiting", fails_once)
    first = model.engine.submit(Request([5, 6, 7], GREEDY, 3, ignore_eos=True))
    with pytest.raises(LlamayError, match="the engine failed: RuntimeError: out of order"):
        _ = first.text
    assert len(model.engine.submit(Request([5, 6, 7], GREEDY, 3, ignore_eos=True)).tokens) == 3


def test_closing_ends_all_texts_also_where_the_cache_fails(make_model, monkeypatch, gate):
    model = make_model(prefix_cache=1 << 20)
    monkeypatch.setattr(
        model.engine.prefixes, "close", lambda: (_ for _ in ()).throw(OSError("the disk is gone"))
    )
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    running = model.engine.submit(Request([5, 6], GREEDY, 200, constraint=gate, ignore_eos=True))
    closing = threading.Thread(target=model.close)
    closing.start()
    gate.open()
    closing.join(20)
    assert not closing.is_alive()
    assert running.wait(20)
    assert running.finish_reason == "cancelled"
    with pytest.raises(EngineClosedError):
        model.engine.submit(Request([5, 6], GREEDY, 1))
