"""Models come when they are used and go when memory or time asks for it, and never while somebody uses them."""

import threading
import time

import pytest

from llamay_models import ModelPool
from llamay_models.errors import ModelError, PoolFullError


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
        with pytest.raises(PoolFullError, match="no room for b beside the models in use: a"), pool.use("b"):
            pass
        with pytest.raises(PoolFullError, match="a is in use 1 times"):
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
        pytest.raises(PoolFullError, match="large takes 100 bytes, but all models together may take 25"),
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


def test_a_lease_does_not_wait_and_a_load_that_nobody_waits_for_is_given_up(make_pool, loads):
    pool = make_pool()
    pool.add("a", "10")
    loads.hold.clear()
    first, second = pool.lease("a"), pool.lease("a")
    assert first.model is second.model is None
    first.release()
    first.release()
    second.release()
    loads.hold.set()
    wait_for(lambda: not pool.status()["a"].loading)
    assert loaded(pool) == set()
    assert pool.status()["a"].users == 0
    loads.hold.clear()
    first, second = pool.lease("a"), pool.lease("a")
    first.release()
    loads.hold.set()
    assert second.ready.result(5) is second.model is pool.peek("a")
    assert pool.lease("a").model is second.model, "it is there at once"


def test_who_comes_while_a_load_is_being_given_up_gets_the_model(make_pool, loads):
    pool = make_pool()
    pool.add("a", "10")
    for _ in range(20):
        loads.hold.clear()
        pool.lease("a").release()
        loads.hold.set()
        late = pool.lease("a")
        assert late.ready.result(5).nbytes == 10
        late.release()
        pool.unload("a")


def test_who_gives_up_by_raising_leaves_the_load_to_others(make_pool, loads):
    pool = make_pool()
    pool.add("a", "10")
    loads.hold.clear()

    def stop(*_):
        raise KeyboardInterrupt

    heard = []
    one, other = pool.lease("a", progress=stop), pool.lease("a", progress=lambda *a: heard.append(a))
    loads.hold.set()
    assert other.ready.result(5).nbytes == 10
    with pytest.raises(KeyboardInterrupt):
        one.ready.result(5)
    assert heard == [("loading", 1, 1)]
    assert pool.status()["a"].users == 1


def test_a_failure_is_told_to_all_who_wait(make_pool, loads):
    pool = make_pool()
    pool.add("a", "10")
    loads.hold.clear()
    loads.fail = True
    leases = [pool.lease("a") for _ in range(3)]
    loads.hold.set()
    for lease in leases:
        with pytest.raises(ModelError):
            lease.ready.result(5)
    assert pool.status()["a"].users == 0


def test_a_model_that_was_given_ready_made_is_never_unloaded(make_pool):
    pool, model = make_pool(max_models=1, keep_alive=0), Fake(20)
    pool.add("ours", "ours", model=model)
    pool.add("a", "20")
    with pool.use("ours") as found:
        assert found is model
    with pytest.raises(PoolFullError) as refused, pool.use("a"):
        pass
    assert refused.value.passing
    with pytest.raises(PoolFullError, match="was given ready made"):
        pool.unload("ours")
    assert pool.status()["ours"].pinned
    pool.close()
    assert model.closed


def test_how_long_it_is_kept_may_be_said_for_this_time(make_pool, loads):
    pool = make_pool(keep_alive=-1)
    pool.add("a", "10")
    with pool.use("a"):
        pool.keep("a", 0)
    wait_for(lambda: loaded(pool) == set())
    with pool.use("a"):
        pass
    time.sleep(0.05)
    assert loaded(pool) == {"a"}


def test_room_that_is_being_made_is_waited_for(make_pool, loads):
    pool = make_pool(max_models=1)
    pool.add("a", "10")
    pool.add("b", "10")
    pool.add("c", "10")
    with pool.use("a"):
        pass
    gate, close = threading.Event(), loads.made[0].close
    loads.made[0].close = lambda: (gate.wait(5), close())
    first = pool.lease("b")
    wait_for(lambda: pool.peek("a") is None)
    second = pool.lease("b")
    gate.set()
    assert first.ready.result(5) is second.ready.result(5)
    refused = pool.lease("c")
    with pytest.raises(PoolFullError):
        refused.ready.result(5)


def wait_for(condition):
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)
