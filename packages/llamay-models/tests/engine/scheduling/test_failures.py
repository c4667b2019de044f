"""The engine's thread outlives every error: the texts at fault end, others go on, and nobody waits for ever."""

import asyncio
import threading

import pytest

from llamay_models import LlamayError, Request, Sampling
from llamay_models.errors import ConstraintError, ContextError, EngineClosedError

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


class Anything:
    """A constraint that allows everything; `at` names what runs `do` when it is used after two tokens."""

    def __init__(self, at, do):
        self.at, self.do, self.accepted = at, do, 0

    def _used(self, name):
        if name == self.at and self.accepted >= 2:
            self.do()

    @property
    def fill_mask(self):
        self._used("fill_mask property")
        return self._fill

    @property
    def forced_tokens(self):
        self._used("forced_tokens property")
        return lambda limit: self._used("forced_tokens") or []

    @property
    def __llamay_token_constraint__(self):
        self._used("capsule")
        raise AttributeError

    def _fill(self, mask):
        self._used("fill_mask")
        mask[:] = 0xFFFFFFFF

    def accept(self, token):
        self._used("accept")
        self.accepted += 1


class UnreadableError(BaseException):
    def __str__(self):
        raise UnreadableError


def leave():
    raise SystemExit(1)


def unreadable():
    raise UnreadableError


@pytest.mark.parametrize("do", [leave, unreadable])
@pytest.mark.parametrize(
    "at", ["fill_mask property", "forced_tokens property", "capsule", "fill_mask", "accept"]
)
def test_whatever_a_constraint_does_no_other_text_ends(make_model, at, do):
    model = make_model()
    other = model.engine.submit(Request([5, 6], GREEDY, 60, ignore_eos=True))
    early = "property" in at or at == "capsule"
    constraint = Anything(at, do)
    constraint.accepted = 2 if early else 0
    bad = model.engine.submit(Request([5, 8], GREEDY, 40, constraint=constraint, ignore_eos=True))
    with pytest.raises(
        ConstraintError, match=r"SystemExit: 1|UnreadableError: \(its message cannot be read\)"
    ):
        _ = bad.text
    assert len(other.tokens) == 60
    assert len(model.engine.submit(Request([5, 9], GREEDY, 2, ignore_eos=True)).tokens) == 2


@pytest.mark.parametrize("work", ["generate", "context", "embed", "score", "wait"])
def test_a_constraint_cannot_wait_for_its_own_model(make_model, work):
    model = make_model("qwen3")
    other = model.engine.submit(Request([5, 6], GREEDY, 60, ignore_eos=True))

    def do():
        if work == "embed":
            model.embed([[5, 6]])
        elif work == "score":
            model.score([5, 6, 7])
        elif work == "context":
            model.context([5, 6, 7])
        elif work == "wait":
            other.wait()
        else:
            _ = model.engine.submit(Request([5, 9], GREEDY, 2)).text

    bad = model.engine.submit(Request([5, 8], GREEDY, 40, constraint=Anything("accept", do), ignore_eos=True))
    if work == "wait":
        bad.wait(60)
    else:
        with pytest.raises(LlamayError, match="cannot wait"):
            _ = bad.text
    assert len(other.tokens) == 60


def test_a_cache_that_fails_costs_no_text(make_model, monkeypatch):
    model = make_model(prefix_cache=1 << 20)

    def fail(*_, **__):
        raise SystemExit("the disk is gone")

    monkeypatch.setattr(model.engine.prefixes, "save", fail)
    context = model.context([5, 6])
    assert len(context.generate(GREEDY, max_tokens=3, ignore_eos=True).tokens) == 3
    context.close()


class Exits(str):
    """A stop string that raises where it is used."""

    __slots__ = ()

    def __len__(self):
        raise SystemExit

    def __str__(self):
        raise SystemExit


def test_a_stop_string_is_taken_as_plain_text(make_model):
    model = make_model()
    plain = model.engine.submit(Request([5, 6], GREEDY, 20, stop="zz", ignore_eos=True)).text
    assert model.engine.submit(Request([5, 6], GREEDY, 20, stop=Exits("zz"), ignore_eos=True)).text == plain


@pytest.mark.parametrize("error", [asyncio.CancelledError, GeneratorExit, StopIteration, ValueError])
def test_a_consumer_that_raises_ends_its_own_iteration_only(make_model, error):
    model = make_model()

    def consume(*_):
        raise error

    async def read(generation, consumer=None):
        if consumer is not None:
            generation.divert(consumer)
        return len([token async for piece in generation for token in piece.tokens])

    async def all_of_them():
        start = [model.engine.submit(Request([5, i], GREEDY, 40, ignore_eos=True)) for i in (6, 7, 8)]
        work = [read(start[0], consume), read(start[1]), read(start[2])]
        return await asyncio.wait_for(asyncio.gather(*work, return_exceptions=True), 60)

    bad, *others = asyncio.run(all_of_them())
    assert isinstance(bad, LlamayError | ValueError | int)
    assert others == [40, 40]


def test_one_coroutine_reads_a_generation(make_model, gate):
    model = make_model()

    async def read(generation):
        return [piece async for piece in generation]

    async def two():
        running = model.engine.submit(Request([5, 6], GREEDY, 20, constraint=gate, ignore_eos=True))
        first = asyncio.ensure_future(read(running))
        await asyncio.sleep(0.05)
        with pytest.raises(ContextError, match="another coroutine reads this generation"):
            await asyncio.wait_for(read(running), 20)
        gate.open()
        return await asyncio.wait_for(first, 20)

    assert asyncio.run(two())


def test_closing_gives_up_a_begun_step_before_the_last_calls_run(make_model, monkeypatch):
    model = make_model()
    loop, order = model.engine._loop, []
    abandon, take = loop._overlapped.abandon, loop._take_requests
    monkeypatch.setattr(loop._overlapped, "abandon", lambda: (order.append("abandon"), abandon()))
    monkeypatch.setattr(loop, "_take_requests", lambda: (order.append("calls"), take()))
    model.close()
    assert order[:2] == ["abandon", "calls"], "a call may touch a context, which must not be at work"
