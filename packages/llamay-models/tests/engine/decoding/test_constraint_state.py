"""Constraints behind the C interface: masks of all texts are filled in one call, and the texts are the same."""

import ctypes

import numpy as np
import pytest

from llamay_models.engine import Request, Sampling
from llamay_models.engine.decoding.constraint_state import ConstraintState, fill_all_masks
from llamay_models.errors import ConstraintError

FILL = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint32), ctypes.c_uint32)


class Face(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("self", ctypes.c_void_p),
        ("vocab_size", ctypes.c_uint32),
        ("mask_words", ctypes.c_uint32),
        ("fill_mask", FILL),
        *(
            (name, ctypes.c_void_p)
            for name in ("accept", "rollback", "fork", "forced", "complete", "release")
        ),
    )


class Steps:
    """Some letters that depend on how many there were; after `length` of them only the end."""

    def __init__(self, seed, length, taken=0):
        self.seed, self.length, self.taken, self.asked = seed, length, taken, 0

    def allowed(self):
        if self.taken >= self.length:
            return [0]
        return [5 + (self.seed * 7 + self.taken * 11 + i * i) % 50 for i in range(1 + self.taken % 3)]

    def words(self):
        out = np.zeros(2, np.uint32)
        for token in self.allowed():
            out[token // 32] |= np.uint32(1 << token % 32)
        return out

    def fill_mask(self, mask):
        self.asked += 1
        mask[:] = self.words()

    def accept(self, token):
        assert token in self.allowed()
        self.taken += 1


class Native(Steps):
    """The same behind the C interface. `status` is what it fails with, after so many tokens."""

    def __init__(self, *args, fails_after=None, vocab=60, **kwargs):
        super().__init__(*args, **kwargs)

        def fill(_, mask, words):
            if fails_after is not None and self.taken >= fails_after:
                return 3
            for i, word in enumerate(self.words()):
                mask[i] = int(word)
            return 0

        self.function = FILL(fill)
        self.face = Face(ctypes.sizeof(Face), None, vocab, (vocab + 31) // 32, self.function)

    def __llamay_token_constraint__(self):
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        return make(ctypes.addressof(self.face), b"llamay.token_constraint.v1", None)


def request(constraint, seed):
    return Request([20 + seed, 9, 31], Sampling(seed=seed), 40, constraint=constraint)


@pytest.mark.parametrize("threads", [1, 3])
def test_texts_are_the_same_through_python_and_through_c_alone_and_together(make_model, threads):
    model = make_model(threads=threads)
    expected = [model.engine.submit(request(Steps(i, 4 + i), i)).tokens for i in range(8)]
    assert [len(tokens) for tokens in expected] == [4 + i for i in range(8)]
    natives = [Native(i, 4 + i) for i in range(8)]
    kinds = [n if i % 3 else Steps(i, 4 + i) for i, n in enumerate(natives)]
    running = model.engine.call(lambda: [model.engine.submit(request(c, i)) for i, c in enumerate(kinds)])
    assert [g.tokens for g in running] == expected
    assert all(g.finish_reason == "stop" for g in running)
    assert sum(n.asked for n in natives) == 0


def test_one_that_fails_ends_alone(make_model):
    model = make_model()
    expected = model.engine.submit(request(Steps(1, 12), 1)).tokens
    bad, good = (model.engine.submit(request(c, 1)) for c in (Native(1, 12, fails_after=5), Native(1, 12)))
    assert good.tokens == expected
    assert bad.wait()
    assert bad.finish_reason == "error"
    assert bad.usage.completion_tokens == 5
    assert "out of memory or over a budget" in str(bad.error).replace(",", "")


def test_one_that_does_not_fit_is_asked_through_python(make_model):
    other = Native(2, 6, vocab=500)
    model = make_model()
    running = [model.engine.submit(request(c, 2)) for c in (other, Native(2, 6))]
    assert running[0].tokens == running[1].tokens
    assert other.asked > 0


def test_masks_are_filled_at_once_and_each_is_told_of_its_own(backend):
    ends = frozenset({0})
    many = [
        ConstraintState(constraint, 60, ends, backend.fill_masks)
        for constraint in (*(Native(i, i) for i in range(3)), Native(1, 0, fails_after=0))
    ]
    fill_all_masks(many, backend.threads(2))
    assert [b.stale for b in many] == [False] * 4
    assert [b.allows_text for b in many] == [False, True, True, False]
    assert many[0].finished
    assert not many[1].finished
    with pytest.raises(ConstraintError):
        _ = many[3].mask
