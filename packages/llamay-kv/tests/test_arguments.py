"""A wrong argument of any public function is an error of one sentence that names it."""

import array
import ast
import inspect
import re
from pathlib import Path

import numpy as np
import pytest

import llamay_kv as kv

WHOLE = ("x", 1.5, None, [1], True, -1, 2**70, np.float32(1), np.ones(2, int))
MAYBE_WHOLE = tuple(value for value in WHOLE if value is not None)
ANY_WHOLE = ("x", 1.5, None, [1], True, np.float32(1))
IDS = (
    *("x", 5, 1.5, None, b"ab", {1: 2}, ["x"], [1.5], [None], [True], [2**40], (1, -(2**31) - 1)),
    *(np.ones(2), np.ones((2, 2), int), np.array([1, 2**40]), np.array([2**31], "u4"), np.ones(2, bool)),
)
MAYBE_WHOLES = ("x", 5, 1.5, b"ab", {1: 2}, ["x"], [1.5], [-1], np.ones(2), np.array([-1]))
OBJECT = ("x", 5, 1.5, [1], None, np.ones(2))
MAYBE_OBJECT = tuple(value for value in OBJECT if value is not None)
TEXT = (5, 1.5, b"x", [1], None)
MAYBE_TEXT = TEXT[:-1]
FLAG = ("x", 5, None, [1])
ARRAY = ("x", 5, None, [1.0], np.ones(2, "f4"), np.array([object()]))
BYTES = ("x", 5, None, [1], 1.5)
PATH = (5, 1.5, None, [1], b"x")
KEYS = ("x", 5, [5], b"x", {"a": 1})
NUMBER = ("x", None, [1], True, -1.0, float("nan"))
SECONDS = ("x", [1], True, float("nan"))
MAPPING = ("x", 5, [1], 1.5)
WORD = ("x", 5, None, [1])
PLACE = {"identity": OBJECT, "tenant": TEXT}
LOCATED = {"identity": MAYBE_OBJECT, "tenant": TEXT}
FILES = {"directory": PATH, "budget_bytes": WHOLE[:-3], "key": MAYBE_OBJECT, "min_free_bytes": WHOLE[:-3]}
FILES |= {"ram_bytes": WHOLE[:-3], "durable": FLAG, "vfs": MAYBE_OBJECT}
LAYERS = ("x", 5, None, [5], [None])
ROWS = (*MAPPING, {0: 5, 1: 5}, {0: "ab", 1: "ab"})
SIDE = (*MAPPING, {5: (1, b"")}, {"side": 5}, {"side": ("x", b"")}, {"side": (1, "x")}, {"side": (1, 2, 3)})
READ = {"layer": WHOLE, "begin": WHOLE, "end": MAYBE_WHOLE, "raw": FLAG, "out": ("x", 5, (1, 2), [1])}
SPAN = {"group": WHOLE, "begin": WHOLE, "end": WHOLE}

# By name: the wrong values of each argument. The good values are in `World.good`.
CALLS = {
    "Pool": {
        "layout": OBJECT,
        "page_tokens": WHOLE,
        "budget_bytes": MAYBE_WHOLE,
        "pages": MAYBE_WHOLE,
        "spill": MAYBE_OBJECT,
        "allocator": MAYBE_OBJECT,
        "checkpoint_bytes": MAYBE_WHOLE,
    },
    "Pool.rows": {"digest": BYTES, "n": WHOLE},
    "Pool.digest_of": {"row": ANY_WHOLE},
    "Pool.packed_bytes": {"group": WHOLE, "positions": WHOLE},
    "Pool.holders": {"group": WHOLE, "page": ANY_WHOLE},
    "Pool.spill_out": {"bytes": WHOLE},
    "Pool.restore": {
        "path": PATH,
        "identity": MAYBE_OBJECT,
        "legacy": WORD,
        "owner": MAYBE_TEXT,
        "vfs": MAYBE_OBJECT,
        "markings": ("x", 5, None, [5], b"x"),
        "keys": KEYS,
        "digest": ("x", 5, [1]),
    },
    "Context": {"pool": OBJECT},
    "Context.extend": {"tokens": IDS, "rows": (*ROWS, None), "states": MAPPING},
    "Context.save": {
        "path": PATH,
        "identity": MAYBE_OBJECT,
        "side": SIDE,
        "key": MAYBE_OBJECT,
        "durable": FLAG,
        "precision": ("x", 5, [1]),
        "vfs": MAYBE_OBJECT,
    },
    "Context.fork": {"n": WHOLE},
    "Context.truncate": {"n": WHOLE},
    "Context.nearest": {"n": WHOLE},
    "Context.forget_checkpoint": {"at": WHOLE},
    "Context.forget_checkpoints": {"before": WHOLE},
    "Context.token_slice": {"begin": WHOLE, "end": WHOLE},
    "Context.reserve": {"n": WHOLE, "first": MAYBE_WHOLES, "states": MAYBE_WHOLES},
    "Context.page_numbers": {"group": WHOLE},
    "Context.side": {"side": (*SIDE, None)},
    "Context.owner": {"owner": MAYBE_TEXT},
    "Context.marking": {"marking": MAYBE_TEXT},
    "Context.read": READ,
    "Context.overwrite": {"layer": WHOLE, "begin": WHOLE, "k": ARRAY, "v": ARRAY},
    "Context.page": {"layer": WHOLE, "index": WHOLE},
    "Context.scales": {"layer": WHOLE, "index": WHOLE},
    "Context.state": {"layer": WHOLE, "at": MAYBE_WHOLE},
    "Context.pack_into": SPAN | {"out": (*ARRAY, b"x", np.zeros((2, 2), "u1"))},
    "Context.packed_view": SPAN,
    "Context.pack_state": {"group": WHOLE, "at": WHOLE},
    "Lease.commit": {"tokens": IDS, "checkpoints": FLAG},
    "Lease.read": READ,
    "Lease.read_state": {"layer": WHOLE, "after": WHOLE},
    "Lease.write": {"layer": WHOLE, "k": ARRAY, "v": ARRAY, "offset": WHOLE},
    "Lease.write_state": {"layer": WHOLE, "k": ARRAY, "v": ARRAY, "after": MAYBE_WHOLE},
    "Lease.unpack_from": SPAN | {"data": ARRAY},
    "Lease.packed_target": SPAN,
    "Lease.unpack_state": {"group": WHOLE, "after": WHOLE, "data": ARRAY},
    "PrefixTree": {
        "pool": OBJECT,
        "budget_bytes": WHOLE,
        "per_token": NUMBER,
        "per_token_and_position": NUMBER,
    },
    "PrefixTree.insert": {"context": OBJECT, "shared": WHOLE} | PLACE,
    "PrefixTree.match": {"tokens": IDS} | PLACE,
    "PrefixTree.known": {"tokens": IDS} | PLACE,
    "PrefixTree.pin": {"tokens": IDS} | PLACE,
    "PrefixTree.explain_miss": {"tokens": IDS} | PLACE,
    "PrefixTree.reclaim": {"bytes": WHOLE},
    "PrefixTree.unpin": {"number": WHOLE},
    "PrefixTree.insert_in": {"context": OBJECT, "space": BYTES, "tenant": BYTES, "shared": WHOLE},
    "PrefixTree.match_in": {"tokens": IDS, "space": BYTES, "tenant": BYTES},
    "PrefixTree.trace_in": {"tokens": IDS, "space": BYTES, "tenant": BYTES},
    "PrefixTree.pin_in": {"tokens": IDS, "space": BYTES, "tenant": BYTES},
    "PrefixTree.entries_in": {"space": BYTES},
    "Identity": {"fields": (*MAPPING, {"fields": [1]}, {5: "fields"}), "more": ([1], object())},
    "Identity.stored_as": {"precision": TEXT},
    "Identity.implying": {"fields": (*MAPPING, {5: "fields"}), "more": ([1], object())},
    "Identity.difference": {"other": OBJECT},
    "Identity.require": {"stored": OBJECT, "path": ()},
    "Identity.from_json": {"fields": (*MAPPING, None, {"fields": 5}, {"fields": "x"})},
    "Layer": dict.fromkeys(("index", "kv_heads", "k_dim", "v_dim"), WHOLE[:-3]),
    "Group": {"kind": WORD, "layers": LAYERS, "window": WHOLE[:-3], "precision": WORD, "stride": WHOLE[:-3]},
    "Group.full": {"layers": LAYERS, "precision": WORD},
    "Group.sliding": {"window": WHOLE[:-3], "layers": LAYERS, "precision": WORD},
    "Group.latent": {"layers": LAYERS, "precision": WORD},
    "Group.recurrent": {"layers": LAYERS, "precision": WORD, "stride": WHOLE[:-3]},
    "Layout": {"groups": LAYERS},
    "Layout.uniform": {
        **dict.fromkeys(("n_layers", "kv_heads", "k_dim"), WHOLE[:-3]),
        "v_dim": MAYBE_WHOLE[:-3],
        "precision": WORD,
    },
    "Layout.layer": {"index": WHOLE[:-3]},
    "Layout.difference": {"other": OBJECT},
    "Key": {"name": TEXT, "secret": BYTES},
    "Key.generate": {"name": TEXT},
    "Spill": {
        "folder": PATH,
        "bytes": (*WHOLE[:-3], 0),
        "min_free_bytes": WHOLE[:-3],
        "key": MAYBE_OBJECT,
        "scratch": OBJECT,
    },
    "diff": {"a": PATH, "b": PATH, "keys": KEYS, "vfs": MAYBE_OBJECT},
    "inspect": {"path": PATH, "vfs": MAYBE_OBJECT},
    "rekey": {"path": PATH, "key": MAYBE_OBJECT, "keys": KEYS, "vfs": MAYBE_OBJECT},
    "stored_tokens": {"path": PATH, "keys": KEYS, "vfs": MAYBE_OBJECT},
    "sweep": {"directory": PATH, "older_than": (*SECONDS, None), "vfs": MAYBE_OBJECT},
    "verify": {"path": PATH, "keys": KEYS, "vfs": MAYBE_OBJECT},
    "BlockStore": FILES | PLACE,
    "BlockStore.put": {"blocks": ("x", 5, None, [5], ["ab"], {"x": b""}, {b"x": "blocks"}, [(b"x", b"", 1)])},
    "BlockStore.get": {"key": BYTES},
    "BlockStore.get_into": {"key": BYTES, "out": ("x", 5, None, b"x", [1])},
    "BlockStore.touch": {"keys": ("x", 5, None, b"x", ["x"], [5])},
    "BlockStore.pin": {"key": BYTES},
    "BlockStore.unpin": {"key": BYTES},
    "BlockStore.remove": {"keys": ("x", 5, None, b"x", ["x"], [5])},
    "CacheFolder": {"directory": PATH, "key": MAYBE_OBJECT, "vfs": MAYBE_OBJECT},
    "CacheFolder.collect": {"budget_bytes": MAYBE_WHOLE[:-3], "older_than": SECONDS, "damaged": FLAG},
    "CacheFolder.explain_miss": {"layout": OBJECT, "tokens": IDS} | LOCATED,
    "DiskCache": FILES | {"queue_contexts": (*WHOLE[:-3], 0)},
    "DiskCache.save": {"context": OBJECT} | PLACE,
    "DiskCache.load": {
        **({"pool": OBJECT, "tokens": IDS, "onto": MAYBE_OBJECT, "seconds_per_token": SECONDS} | PLACE),
    },
}
# Errors, what functions return, and the operations of files, which pass on what the system says.
OTHERS = {
    *("File", "Listed", "LocalVfs", "Vfs", "Manifest", "Miss", "Difference", "FolderMiss", "Survey", "Pin"),
    *("Rows", "Lease", "ObjectVfs"),
}
RIDDLES = (
    *("incompatible function arguments", "std::", "has no attribute", "object is not iterable", "bad_cast"),
    *("cannot be interpreted", "unsized object", "not subscriptable", "expected str", "unpack"),
)


class World:
    """Good arguments for every call."""

    def __init__(self, folder):
        self.folder = folder
        attention = kv.Group.full([kv.Layer(0, 1, 2, 2)], "f32")
        self.layout = kv.Layout([attention, kv.Group.recurrent([kv.Layer(1, 1, 2, 4)])])
        self.pool = kv.Pool(self.layout, 16, pages=64)
        self.identity = kv.Identity(a=1)
        self.context = self.pool.context()
        self.rows = {0: (np.ones((2, 1, 2), "f4"),) * 2}
        self.states = {1: (np.ones((1, 2), "f4"), np.ones((1, 4), "f4"))}
        self.context.extend([1, 2], self.rows, states=self.states)
        self.path = folder / "a.kv"
        self.context.save(self.path)
        self.tree = kv.PrefixTree(self.pool, 1 << 20)
        small = {"budget_bytes": 1 << 20, "min_free_bytes": 0}
        self.cache = kv.DiskCache(folder / "cache", **small)
        self.store = kv.BlockStore(folder / "blocks", **small)
        self.shelf = kv.CacheFolder(folder / "cache")

    def call(self, name, **arguments):
        """Call a function with good arguments but for the given ones."""
        owner, _, method = name.partition(".")
        fields, more = arguments.pop("fields", ()), arguments.pop("more", None)
        first = [fields] if fields != () else []
        given = self.good(name) | arguments | ({"more": more} if more is not None else {})
        if owner in ("Context", "Lease") and method:
            context = self.context.fork()
            if name in ("Context.side", "Context.owner", "Context.marking"):
                setattr(context, method, given[method])
                return
            lease = context.reserve(2) if owner == "Lease" else None
            getattr(lease or context, method)(*first, **given)
            return
        objects = {
            "Pool": self.pool,
            "PrefixTree": self.tree,
            "BlockStore": self.store,
            "Layout": self.layout,
        }
        objects |= {"Identity": self.identity, "DiskCache": self.cache, "CacheFolder": self.shelf}
        function = getattr(objects.get(owner, getattr(kv, owner)), method) if method else getattr(kv, owner)
        function(*first, **given)

    def good(self, name):
        k, v = self.rows[0]
        layers, place = [kv.Layer(0, 1, 2, 2)], {"space": b"", "tenant": b""}
        span = {"group": 0, "begin": 0, "end": 2}
        small = {"budget_bytes": 1 << 20, "min_free_bytes": 0}
        return {
            "Pool": {"layout": self.layout, "pages": 1},
            "Pool.rows": {"digest": bytes(32), "n": 1},
            "Pool.packed_bytes": {"group": 0, "positions": 1},
            "Pool.holders": {"group": 0, "page": 0},
            "Pool.restore": {"path": self.path},
            "Context": {"pool": self.pool},
            "Context.extend": {"tokens": [1, 2], "rows": self.rows, "states": self.states},
            "Context.save": {"path": self.folder / "b.kv"},
            "Context.token_slice": {"begin": 0, "end": 1},
            "Context.reserve": {"n": 1},
            "Context.read": {"layer": 0},
            "Context.overwrite": {"layer": 0, "begin": 0, "k": k, "v": v},
            "Context.page": {"layer": 0, "index": 0},
            "Context.scales": {"layer": 0, "index": 0},
            "Context.state": {"layer": 1},
            "Context.pack_into": span | {"out": np.zeros(32, "u1")},
            "Context.packed_view": span,
            "Context.pack_state": {"group": 1, "at": 2},
            "Lease.commit": {"tokens": [1, 2]},
            "Lease.read": {"layer": 0},
            "Lease.read_state": {"layer": 1},
            "Lease.write": {"layer": 0, "k": k, "v": v},
            "Lease.write_state": {"layer": 1, "k": self.states[1][0], "v": self.states[1][1]},
            "Lease.unpack_from": {"group": 0, "begin": 2, "end": 4, "data": np.zeros(32, "u1")},
            "Lease.packed_target": span,
            "Lease.unpack_state": {"group": 1, "after": 2, "data": np.zeros(24, "u1")},
            "PrefixTree": {"pool": self.pool, "budget_bytes": 1 << 20},
            "PrefixTree.insert": {"context": self.context},
            **{
                f"PrefixTree.{name}": {"tokens": [1, 2]} for name in ("match", "known", "pin", "explain_miss")
            },
            **{f"PrefixTree.{name}_in": {"tokens": [1, 2]} | place for name in ("match", "trace", "pin")},
            "PrefixTree.insert_in": {"context": self.context, "shared": 0} | place,
            "Identity.require": {"stored": self.identity},
            "Layer": {"index": 0, "kv_heads": 1, "k_dim": 2, "v_dim": 2},
            "Group": {"kind": "full", "layers": layers},
            "Group.sliding": {"window": 1, "layers": layers},
            **{f"Group.{kind}": {"layers": layers} for kind in ("full", "latent", "recurrent")},
            "Layout.uniform": {"n_layers": 1, "kv_heads": 1, "k_dim": 2},
            "Key": {"name": "k", "secret": bytes(32)},
            "Spill": {"folder": self.folder, "bytes": 1},
            "diff": {"a": self.path, "b": self.path},
            **{name: {"path": self.path} for name in ("inspect", "stored_tokens", "verify")},
            "rekey": {"path": self.path, "key": None},
            "sweep": {"directory": self.folder},
            "BlockStore": {"directory": self.folder / "blocks"} | small,
            "BlockStore.get_into": {"key": b"x", "out": bytearray(2)},
            "CacheFolder": {"directory": self.folder / "cache"},
            "CacheFolder.explain_miss": {"layout": self.layout, "tokens": [1]},
            "DiskCache": {"directory": self.folder / "cache"} | small,
            "DiskCache.save": {"context": self.context},
            "DiskCache.load": {"pool": self.pool, "tokens": [1]},
        }.get(name, {})


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return World(tmp_path_factory.mktemp("arguments"))


CASES = [(name, argument) for name, arguments in CALLS.items() for argument in arguments]


@pytest.mark.parametrize(("name", "argument"), CASES, ids=[".".join(case) for case in CASES])
def test_a_wrong_argument_is_named(world, name, argument):
    for wrong in CALLS[name][argument]:
        with pytest.raises((TypeError, ValueError)) as caught:  # the first that is taken fails
            world.call(name, **{argument: wrong})
        message = str(caught.value)
        assert re.search(rf"\b{argument}\b", message), f"{wrong!r}: {message}"
        assert not [riddle for riddle in RIDDLES if riddle in message], message
        assert "\n" not in message
        assert len(message) < 300


def native_parameters():
    """Names of the parameters of native methods, as the stub has them."""
    stub = ast.parse(Path(kv.__file__).with_name("_kv.pyi").read_text())
    found = {}
    for kind in (node for node in stub.body if isinstance(node, ast.ClassDef)):
        for method in (node for node in kind.body if isinstance(node, ast.FunctionDef)):
            names = {each.arg for each in (*method.args.args, *method.args.kwonlyargs)}
            found.setdefault(f"{kind.name}.{method.name}", set()).update(names - {"self"})
    return found


def parameters(name, function, native):
    try:
        return inspect.signature(function).parameters.keys() - {"self"}
    except ValueError:
        return native[name if "." in name else f"{name}.__init__"]


def test_every_argument_of_every_public_function_is_here():
    missing, native = [], native_parameters()
    for name in kv.__all__:
        member = getattr(kv, name)
        error = inspect.isclass(member) and issubclass(member, BaseException)
        if not callable(member) or name in OTHERS - {"Lease"} or error:
            continue
        functions = {name: member} if name != "Lease" else {}
        if inspect.isclass(member):
            for key in dir(member):
                if key[0] != "_" and callable(method := getattr(member, key)):
                    functions[f"{name}.{key}"] = method
        functions.pop("Spill.scratch", None)  # a default
        for key, function in functions.items():
            missing += [
                f"{key}: {name}" for name in parameters(key, function, native) - CALLS.get(key, {}).keys()
            ]
    assert not missing


def test_a_secret_is_in_no_message():
    with pytest.raises(TypeError, match=r"^secret must be bytes, not a value of the type str$"):
        kv.Key("k", "hunter2" * 6)


def test_a_pair_of_arrays_that_do_not_fit_names_them(world):
    with world.context.fork().reserve(2) as lease, pytest.raises(TypeError, match="k and v must both be"):
        lease.write(0, np.ones((2, 1, 2), "f4"), np.ones((2, 1, 2), "f2"))


INTEGERS = ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_numpys_integers_are_whole_numbers(world, dtype):
    one = np.dtype(dtype).type(1)
    context = world.context.fork()
    with context.reserve(one + one, states=np.array([1, 2], dtype)) as lease:
        lease.write(one - one, *world.rows[0])
        lease.write_state(one, *world.states[1], after=one)
        lease.write_state(one, *world.states[1])
        lease.commit(np.array([7, 0, 8], dtype)[::2], checkpoints=np.True_)
    assert context.tokens == [1, 2, 7, 8]
    assert context.token_slice(one, one + one) == [2]
    context.truncate(one + one + one)
    assert len(context) == 3
    assert len(context.fork(one + one)) == 2
    assert kv.Layer(one, one, one, one) == kv.Layer(1, 1, 1, 1)
    assert kv.Identity(a=one).digest == kv.Identity(a=1).digest
    assert kv.Pool(world.layout, np.int64(16), pages=one).budget_bytes
    assert world.tree.known(np.array([5], dtype)) == (0, 0)
    assert world.shelf.explain_miss(world.layout, np.array([5], dtype)).length == 1


@pytest.mark.parametrize(
    "make", [tuple, range, lambda n: array.array("q", range(n)), lambda n: memoryview(bytes(n))]
)
def test_any_sequence_of_whole_numbers_are_token_ids(world, make):
    ids = make(2) if make is not tuple else (0, 1)
    context = world.context.fork()
    context.extend(ids, world.rows, states=world.states)
    assert context.tokens == [1, 2, *ids]


def test_tensors_are_taken_like_arrays(world):
    torch = pytest.importorskip("torch")
    context = world.context.fork()
    context.extend(torch.tensor([3, 4]), world.rows, states=world.states)
    context.truncate(torch.tensor(4))
    assert context.tokens == [1, 2, 3, 4]


def test_an_object_store_takes_its_buffer_in_bytes():
    pytest.importorskip("obstore", reason="needs the extra object-store")
    with pytest.raises(TypeError, match="buffer_bytes must be a whole number from 0 on, not '1 MB'"):
        kv.ObjectVfs(None, buffer_bytes="1 MB")
