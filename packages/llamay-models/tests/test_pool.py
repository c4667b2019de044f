"""Models come when they are used and go when memory or time asks for it, and never while somebody uses them."""

import threading
import time

import pytest

from llamay_models import ModelPool
from llamay_models.errors import ModelError, PoolFull


class Fake:
    def __init__(self, nbytes):
        self.nbytes, self.closed = nbytes, False

    def close(self):
        self.closed = True


class Loads:
    """Stands in for `load`: a path is the number of bytes that its model takes."""

    def __init__(self):
        self.made, self.hold, self.fail = [], threading.Event(), False
        self.hold.set()

    def __call__(self, path, *, progress=None, **options):
        assert self.hold.wait(10)
        if progress is not None:
            progress("loading", 1, 1)
        if self.fail:
            raise ModelError("no good")
        self.made.append(Fake(int(path.name)))
        return self.made[-1]


@pytest.fixture
def loads():
    return Loads()


@pytest.fixture
def make_pool(loads):
    made = []

    def make(**options):
        made.append(ModelPool(loader=loads, **options))
        return made[-1]

    yield make
    for pool in made:
        pool.close()


def loaded(pool):
    return {name for name, s in pool.status().items() if s.loaded}


def test_a_model_is_loaded_once_and_stays(make_pool, loads):
    pool = make_pool()
    pool.add("a", "10")
    assert loaded(pool) == set()
    with pool.use("a") as first, pool.use("a") as second:
        assert first is second
        assert pool.status()["a"].users == 2
    assert pool.status()["a"].nbytes == 10
    assert len(loads.made) == 1
    assert loaded(pool) == {"a"}


def test_the_one_unused_for_longest_goes_first(make_pool, loads):
    told = []
    pool = make_pool(budget_bytes=25, before_unload=lambda name, model: told.append((name, model.closed)))
    for name in "abc":
        pool.add(name, "10")
    for name in "aba":
        with pool.use(name):
            pass
    with pool.use("c"):
        assert loaded(pool) == {"a", "c"}
    assert told == [("b", False)]
    assert [m.closed for m in loads.made] == [False, True, False]


def test_models_in_use_are_never_unloaded(make_pool):
    pool = make_pool(max_models=1)
    pool.add("a", "10")
    pool.add("b", "10")
    with pool.use("a") as model:
        with pytest.raises(PoolFull, match="no room for b beside the models in use: a"), pool.use("b"):
            pass
        with pytest.raises(PoolFull, match="a is in use 1 times"):
            pool.unload("a")
        assert not model.closed
    with pool.use("b"):
        assert model.closed


def test_many_that_ask_wait_for_one_load(make_pool, loads):
    pool = make_pool()
    pool.add("a", "10")
    loads.hold.clear()
    got = []

    def use():
        with pool.use("a") as model:
            got.append(model)

    threads = [threading.Thread(target=use) for _ in range(5)]
    for t in threads:
        t.start()
    time.sleep(0.02)
    assert pool.status()["a"].loading
    loads.hold.set()
    for t in threads:
        t.join()
    assert len(loads.made) == 1
    assert len(got) == 5


def test_a_load_that_fails_or_is_given_up_leaves_nothing(make_pool, loads):
    pool = make_pool()
    pool.add("a", "10")
    loads.fail = True
    with pytest.raises(ModelError), pool.use("a"):
        pass
    loads.fail = False

    def stop(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), pool.use("a", progress=stop):
        pass
    assert loaded(pool) == set()
    with pool.use("a"):
        assert pool.status()["a"].users == 1


def test_idle_models_go_when_their_time_is_up(make_pool):
    pool = make_pool(keep_alive=0.05)
    pool.add("a", "10")
    pool.add("b", "10", keep_alive=-1)
    with pool.use("a"), pool.use("b"):
        time.sleep(0.1)
        assert loaded(pool) == {"a", "b"}
    deadline = time.monotonic() + 5
    while loaded(pool) != {"b"}:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_no_time_at_all_unloads_at_once(make_pool, loads):
    pool = make_pool()
    pool.add("a", "10")
    with pool.use("a", keep_alive=0.0):
        pass
    deadline = time.monotonic() + 5
    while not loads.made[0].closed:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_what_can_never_fit_and_what_is_not_known_say_so(make_pool, tmp_path):
    pool = make_pool(budget_bytes=25)
    large = tmp_path / "100"
    large.write_bytes(bytes(100))
    pool.add("large", large)
    with (
        pytest.raises(PoolFull, match="large takes 100 bytes, but all models together may take 25"),
        pool.use("large"),
    ):
        pass
    with pytest.raises(KeyError, match="no model is called 'x'; known are: large"), pool.use("x"):
        pass
    with pytest.raises(ValueError, match="there is a model called 'large' already"):
        pool.add("large", "10")
    pool.remove("large")
    assert pool.status() == {}


def test_closing_unloads_everything(make_pool, loads):
    pool = make_pool()
    pool.add("a", "10")
    with pool.use("a"):
        pass
    pool.close()
    pool.close()
    assert loads.made[0].closed
    with pytest.raises(ModelError, match="closed"), pool.use("a"):
        pass
